"""What the other views ask of the catalog, in SQL.

Owns: the chunks that are to be indexed, with what a hit shows of each.
Refuses to know: the indexes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from kbproc.views.catalog.filters import LABEL
from kbproc.views.catalog.reader import Reader
from kbproc.views.catalog.rows import DocumentRow, IndexRow, facts_in, note_of

_INDEX_ROWS = (
    f"select c.id, c.document_id, {LABEL}, d.title, c.section, c.text, c.page, "  # noqa: S608
    "c.marks, c.idx, d.chunk_count, d.type, d.path, d.url, d.tags, d.confidence, d.expires_at, "
    "d.superseded_by, case when c.idx = 0 and (d.revision = 1 or d.type = 'note') then d end "
    "from chunks c join documents d on d.id = c.document_id"
)


class IndexQueries(Reader):
    def touched_since(self, seq: int) -> list[int]:
        """Documents whose indexed content has changed, or that are gone, since `seq`."""
        sql = "select id from documents where touched > ? order by id"
        return [row[0] for row in self._rows(sql, [seq])]

    def index_rows(self, document_ids: Sequence[int]) -> list[IndexRow]:
        sql = _INDEX_ROWS + " where c.document_id in (select unnest(?::bigint[])) order by c.id"
        return [_row(row) for row in self._rows(sql, [list(document_ids)])]

    def all_index_rows(self, batch: int = 2000) -> Iterable[IndexRow]:
        """Every live chunk by id, streamed."""
        result = self._cursor.execute(_INDEX_ROWS + " order by c.id")
        while rows := result.fetchmany(batch):
            yield from (_row(row) for row in rows)

    def index_rows_of_chunks(self, ids: Sequence[int]) -> list[IndexRow]:
        sql = (
            _INDEX_ROWS
            + " join (select unnest(?::bigint[]) as wanted) on c.id = wanted order by c.id"
        )
        return [_row(row) for row in self._rows(sql, [list(ids)])]


def _row(columns: Sequence[Any]) -> IndexRow:
    *chunk, of = columns
    if of is None:
        return IndexRow(*chunk)
    document = DocumentRow(*map(of.get, DocumentRow.__struct_fields__))
    facts = facts_in(of) if document.type == "knowledge" else None
    new = document if document.revision == 1 else None
    return IndexRow(*[*chunk, new, facts, note_of(document)])
