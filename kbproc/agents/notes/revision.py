"""A note's next revision.

Owns: the content of a note's file, files read ahead of being recorded, the event that writes a
note, and whether a note is still what it was.
Refuses to know: who has written the bytes, and whether they may become a revision.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from functools import partial
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from kbproc.agents.notefiles import folder as notefolder
from kbproc.agents.notefiles.file import digest, file_name, title_of
from kbproc.agents.notefiles.folder import Unavailable
from kbproc.agents.notes.diff import Action, FileChange
from kbproc.base.errors import KbprocError
from kbproc.base.threads import map_ahead
from kbproc.documents.content import Intake, read_content
from kbproc.documents.revision import Content, Ids, written
from kbproc.events.document import DocWritten
from kbproc.store.decision import Here
from kbproc.views.catalog.reader import NOTES
from kbproc.views.catalog.rows import DocumentRow

_ENDS_THE_SYNC = {"store.io", "operation.cancelled"}
_READERS = 8


class NewRevision(Struct, frozen=True):
    """What is to be recorded of one note, made for its state `row`."""

    action: Action
    slug: str
    row: DocumentRow | None
    content: Content


def is_unchanged(now: DocumentRow | None, row: DocumentRow) -> bool:
    """Whether the note `now` is still what `row` says."""
    return now is not None and now.deleted_at is None and now.revision == row.revision


def content_of(intake: Intake, slug: str, data: bytes) -> Content:
    """The note's content. A text that no parser can read is kept, but no search finds its words.

    Raises store.io, operation.cancelled.
    """
    title = title_of(data.decode(), slug)
    try:
        name = file_name(slug)
        content = read_content(intake, data, "markdown", name, title=title)
    except KbprocError as error:
        if error.type in _ENDS_THE_SYNC:
            raise
        source = intake.blobs.put(data)
        content = Content(
            title=title,
            doc_type="note",
            chunks=[],
            sha256=source.name,
            size_bytes=len(data),
            source=source,
        )
    return replace(content, doc_type="note", tags=[], metadata={})


def read_ahead(
    intake: Intake, folder: Path, found: Sequence[FileChange]
) -> Generator[NewRevision | None]:
    """The revisions in order, a few being parsed ahead; None for a file that has changed since."""
    if len(found) == 1:  # the common case, and a pool of threads takes a while to start
        yield _read(intake, folder, found[0])
        return
    yield from map_ahead(partial(_read, intake, folder), found, threads=_READERS, name="notes")


def _read(intake: Intake, folder: Path, found: FileChange) -> NewRevision | None:
    try:
        data = notefolder.read(folder, found.slug)
    except Unavailable:
        raise
    except KbprocError:
        return None
    if digest(data) != found.sha256:
        return None
    return NewRevision(found.action, found.slug, found.row, content_of(intake, found.slug, data))


def note_written(
    here: Here, content: Content, *, agent: str, slug: str, row: DocumentRow | None, ids: Ids
) -> DocWritten:
    """The event for a new note, or for the next revision of `row`."""
    return written(
        here,
        content,
        kb=NOTES + agent,
        existing=row,
        ids=ids,
        tags=[],
        metadata={},
        source_id=slug,
    )
