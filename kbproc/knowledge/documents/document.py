"""A document as it is shown.

Owns: the Document struct, its source and its whole text, made from rows.
Refuses to know: how documents are found and changed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from kbproc.base.values import Scalar
from kbproc.events.document import ChunkText
from kbproc.store.state import IndexStatus, Model
from kbproc.views.catalog.rows import DocumentRow

_GAP = "\n\n"


def whole_text(chunks: Iterable[ChunkText]) -> str:
    """The text that was cut into `chunks`, without what they repeat."""
    parts: list[str] = []
    for chunk in chunks:
        new = chunk.text[chunk.overlap :]
        if chunk.joint is not None:
            parts += (chunk.joint if parts else "", new)
        elif chunk.overlap:  # cut before joints were kept
            parts += (" ", new.lstrip())
        else:
            parts += (_GAP if parts else "", new)
    return "".join(parts)


def document_of(row: DocumentRow, embedding: Model) -> Document:
    return Document(
        id=row.id,
        kb=row.kb,
        title=row.title,
        type=row.type,  # type: ignore[arg-type]
        source=Source(path=row.path, url=row.url, source_id=row.source_id),
        tags=list(row.tags),
        metadata=msgspec.json.decode(row.metadata),
        revision=row.revision,
        chunk_count=row.chunk_count,
        size_bytes=row.size_bytes,
        sha256=row.sha256,
        index_status=embedding.status_of(row.id),
        created_at=row.created_at,
        updated_at=row.updated_at,
        pages=row.pages,
        unread=row.unread or UNSET,
    )


DocType = Literal["pdf", "markdown", "text", "html", "docx", "code", "knowledge", "note"]


class Source(Struct, kw_only=True, frozen=True):
    """Where a document comes from: one of path, url and source_id, or none of them."""

    path: str | None = None
    url: str | None = None
    source_id: str | None = None


Unread = Annotated[
    dict[str, int],
    Meta(description="parts of the source that are not in the text: how many, by kind"),
]


class Document(Struct, kw_only=True, frozen=True):
    """`unread`: left out where the whole source is in the text."""

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
