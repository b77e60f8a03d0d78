"""A note's next revision.

Owns: a note's file as content, read ahead of being recorded, the event that writes it,
how many go into one record, whether a note is still what it was, and why it must wait.
Refuses to know: who has written the bytes, and whether they may become a revision.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from kbproc.base.errors import KbprocError
from kbproc.documents.content import Intake, read_content
from kbproc.documents.revision import Content, Ids, written
from kbproc.events.document import DocWritten
from kbproc.notefiles import folder as notefolder
from kbproc.notefiles.file import digest, file_name, title_of
from kbproc.notefiles.folder import Unavailable
from kbproc.notes.diff import Action, Found
from kbproc.store.decision import Here
from kbproc.views.catalog.queries.all import Queries
from kbproc.views.catalog.reader import NOTES
from kbproc.views.catalog.rows import DocumentRow

_NOT_THE_TEXTS_FAULT = {"store.io", "operation.cancelled"}
_AHEAD = 8
_BATCH_NOTES = 32
_BATCH_CHUNKS = 400


_EVERY = 1_000_000_000


class Pending(KbprocError):
    """The note's newest revision is not durable yet; if it never is, its file has the only copy."""

    def __init__(self, row: DocumentRow) -> None:
        super().__init__(
            "operation.timeout",
            f"The note {row.source_id} is being written by many others.",
            hint="Repeat the change.",
        )
        self.after = row.touched


class Moved(KbprocError):
    """The agent got another folder since its notes were looked at."""

    def __init__(self, agent: str) -> None:
        super().__init__(
            "resource.conflict",
            f"The notes folder of {agent} was changed meanwhile.",
            hint="Repeat the change.",
        )


class Item(Struct, frozen=True):
    """What is recorded of one note; `row` is what it was made for."""

    action: Action
    slug: str
    row: DocumentRow | None
    content: Content


def full(batch: list[Item]) -> bool:
    """Whether that is enough for one record."""
    chunks = sum(len(item.content.chunks) for item in batch)
    return len(batch) >= _BATCH_NOTES or chunks >= _BATCH_CHUNKS


def same(now: DocumentRow | None, row: DocumentRow) -> bool:
    """Whether the note `now` is still what `row` says."""
    return now is not None and now.deleted_at is None and now.revision == row.revision


def content_of(intake: Intake, slug: str, data: bytes) -> Content:
    """What is kept of a note. What no parser can read is kept, too, but not found by its words.

    Raises store.io, operation.cancelled.
    """
    title = title_of(data.decode(), slug)
    try:
        name = file_name(slug)
        content = read_content(intake, data, "markdown", name, title=title)
    except KbprocError as error:
        if error.type in _NOT_THE_TEXTS_FAULT:
            raise
        content = Content(
            title=title,
            doc_type="note",
            chunks=[],
            sha256=intake.blobs.put(data),
            size_bytes=len(data),
        )
    return replace(content, doc_type="note", tags=[], metadata={})


def read_ahead(intake: Intake, folder: Path, found: Sequence[Found]) -> Generator[Item | None]:
    """In their order, a few being parsed ahead; None for one that has changed meanwhile."""
    if len(found) == 1:  # as a rule, and a pool of threads takes a while to start
        yield _read(intake, folder, found[0])
        return
    with ThreadPoolExecutor(_AHEAD, thread_name_prefix="notes") as executor:
        ahead: deque[Future[Item | None]] = deque()
        remaining = iter(found)
        try:
            while True:
                while len(ahead) < _AHEAD and (one := next(remaining, None)) is not None:
                    ahead.append(executor.submit(_read, intake, folder, one))
                if not ahead:
                    return
                yield ahead.popleft().result()
        finally:
            for future in ahead:
                future.cancel()


def _read(intake: Intake, folder: Path, found: Found) -> Item | None:
    try:
        data = notefolder.read(folder, found.slug)
    except Unavailable:
        raise
    except KbprocError:
        return None
    if digest(data) != found.sha256:
        return None
    return Item(found.action, found.slug, found.row, content_of(intake, found.slug, data))


def note_written(
    here: Here, content: Content, *, agent: str, slug: str, row: DocumentRow | None, ids: Ids
) -> DocWritten:
    """The event for a new note, or the next revision of `row`."""

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


def removed_by(actor: str, queries: Queries, agent: str, slug: str) -> DocumentRow | None:
    """The newest note of that slug whose deletion is recorded of this actor."""

    seqs = queries.matching_records(0, _EVERY, ["doc.deleted"], actor, None)
    ids = [event.document_id for event in queries.events_of_records(seqs)]
    rows = queries.documents_by_id([id for id in ids if id is not None]).values()
    its = [
        row
        for row in rows
        if (row.kb, row.source_id) == (NOTES + agent, slug) and row.deleted_at is not None
    ]
    return max(its, key=lambda row: row.touched, default=None)
