"""A document and its chunks as methods return them: structs, source and whole text."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from kbproc.base.errors import KbprocError
from kbproc.base.structs import common_members
from kbproc.base.text.passage import passage
from kbproc.base.values import Scalar
from kbproc.base.wording import there_is_no
from kbproc.engine.events.entry import Anchor
from kbproc.engine.events.origin import Origin
from kbproc.engine.projections.catalog.rows import ChunkRow, DocumentRow, marks_of
from kbproc.engine.store.model import IndexStatus, Model

DocType = Literal[
    "pdf",
    "markdown",
    "text",
    "html",
    "docx",
    "code",
    "knowledge",
    "note",
    "sheet",
    "slides",
    "notebook",
    "odt",
    "rtf",
    "book",
    "table",
    "mail",
    "doc",
    "picture",
    "archive",
    "conversation",
]


class Source(Struct, kw_only=True, frozen=True):
    """A document's origin: one of path, url and source_id, or none of them.

    `ocr`: true where text recognition has read it, wholly or in part.
    """

    path: str | None = None
    url: str | None = None
    source_id: str | None = None
    ocr: bool | UnsetType = UNSET


Change = Literal["changed", "gone", "superseded", "reverted"]


class SourceChange(Struct, kw_only=True, frozen=True, omit_defaults=True):
    """A source that is no longer as it was when the entry was derived from it.

    `cite`: the source in words. `was_revision`: the document's revision then; `revision`: its
    revision now, the same where only its file has changed. Lines are those of then.
    """

    change: Change
    cite: str
    document_id: int | None = None
    was_revision: int | None = None
    revision: int | None = None
    path: str | None = None
    start_line: int | None = None
    end_line: int | None = None
    commit: str | None = None


def places_of(anchors: Iterable[Anchor]) -> list[str]:
    """Returns the files and commits, as a writer names them."""
    return [
        f"commit:{one.commit}"
        if one.commit is not None
        else f"{one.path}{'' if one.start_line is None else f':{one.start_line}-{one.end_line}'}"
        for one in anchors
        if one.path is not None
    ]


Unread = Annotated[
    dict[str, int],
    Meta(description="parts of the source that are not in the text: how many, by kind"),
]


class Document(Struct, kw_only=True, frozen=True):
    """A document. `unread`: left out where the whole source is in the text.

    `origin`: who its text is from. `modified_at`: when its file was last changed, for a file in a
    git repository the date of the commit that has its bytes; left out where that is unknown.
    """

    id: int
    kb: str
    title: str
    type: DocType
    source: Source
    tags: list[str]
    metadata: dict[str, Scalar]
    revision: int
    chunk_count: int
    size_bytes: int
    sha256: str
    index_status: IndexStatus
    created_at: str
    updated_at: str
    pages: int | None = None
    unread: Unread | UnsetType = UNSET
    origin: Origin = "agent"
    modified_at: str | UnsetType = UNSET


_of_row = common_members(Document, DocumentRow, but=("metadata", "modified_at"))


def document_of(row: DocumentRow, embedding: Model) -> Document:
    return Document(
        **_of_row(row),
        source=Source(
            path=row.path,
            url=row.url,
            source_id=row.source_id,
            ocr=True if row.facts is not None and row.facts.metadata.get("ocr") else UNSET,
        ),
        metadata=msgspec.json.decode(row.metadata),
        index_status=embedding.status_of(row.id),
        unread=row.unread or UNSET,
        modified_at=row.modified_at or UNSET,
    )


# ---------------------------------------------------------------------- chunks


class ChunkView(Struct, kw_only=True, frozen=True):
    """A chunk as it is shown: `chunk_index` counts from 0 within its document.

    `start_line` and `end_line` where the source is text.
    """

    id: int
    document_id: int
    chunk_index: int
    text: str
    page: int | None
    section: str | None
    page_end: int | None
    start_line: int | None
    end_line: int | None


def chunk_view_of(row: ChunkRow) -> ChunkView:
    location = passage(marks_of(row.marks), row.text, 0, len(row.text))
    return ChunkView(
        id=row.id,
        document_id=row.document_id,
        chunk_index=row.idx,
        text=row.text,
        page=row.page,
        section=row.section,
        page_end=location.page_end or row.page,
        start_line=location.start_line,
        end_line=location.end_line,
    )


def chunks_not_found(ids: list[int], field: str) -> KbprocError:
    return KbprocError(
        "resource.not_found",
        there_is_no("chunk", ids),
        field=field,
        hint="Chunk ids change with each new revision of a document: search or list again.",
        detail={"missing": ids[:100]},
    )
