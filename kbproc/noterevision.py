"""A note's next revision.

Owns: a note's bytes as content, and the event that writes it.
Refuses to know: who has written the bytes, and whether they may become a revision.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from kbproc import events as ev
from kbproc import notefolder
from kbproc.commit import Here
from kbproc.content import read_content
from kbproc.errors import KbprocError
from kbproc.revision import Content, Ids, written

if TYPE_CHECKING:
    from kbproc.store import Store
    from kbproc.views.queries import DocumentRow

_NOT_THE_TEXTS_FAULT = {"store.io", "operation.cancelled"}


def content_of(store: Store, slug: str, data: bytes) -> Content:
    """What is kept of a note. What no parser can read is kept, too, but not found by its words.

    Raises store.io, operation.cancelled.
    """
    title = notefolder.title_of(data.decode(), slug)
    try:
        name = notefolder.file_name(slug)
        content = read_content(store, data, "markdown", name, title=title)
    except KbprocError as error:
        if error.type in _NOT_THE_TEXTS_FAULT:
            raise
        content = Content(title=title, doc_type="note", chunks=[], sha256=store.blobs.put(data),
                          size_bytes=len(data))  # fmt: skip
    return replace(content, doc_type="note", tags=[], metadata={})


def note_written(
    here: Here, content: Content, *, agent: str, slug: str, row: DocumentRow | None, ids: Ids
) -> ev.DocWritten:
    """The event for a new note, or the next revision of `row`."""
    from kbproc.views.reader import NOTES

    return written(
        here, content, kb=NOTES + agent, existing=row, ids=ids, tags=[], metadata={},
        source_id=slug,
    )  # fmt: skip
