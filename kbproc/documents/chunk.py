"""A chunk as it is shown.

Owns: the ChunkView struct, made from a row, and the answer where there is no such chunk.
Refuses to know: how a text is cut into chunks (sources/chunk.py).
"""

from __future__ import annotations

from msgspec import Struct

from kbproc.base.errors import KbprocError
from kbproc.base.wording import there_is_no
from kbproc.text.passage import passage
from kbproc.views.catalog.rows import ChunkRow, IndexRow, marks_of


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


def shown(row: ChunkRow | IndexRow) -> ChunkView:
    where = passage(marks_of(row.marks), row.text, 0, len(row.text))
    return ChunkView(
        id=row.chunk_id if isinstance(row, IndexRow) else row.id,
        document_id=row.document_id,
        chunk_index=row.idx,
        text=row.text,
        page=row.page,
        section=row.section,
        page_end=where.page_end or row.page,
        start_line=where.start_line,
        end_line=where.end_line,
    )


def not_found(ids: list[int], field: str) -> KbprocError:
    return KbprocError(
        "resource.not_found",
        there_is_no("chunk", ids),
        field=field,
        hint="Chunk ids change with each new revision of a document: search or list again.",
        detail={"missing": ids[:100]},
    )
