"""What is asked of chunks, in SQL.

Owns: a document's chunks, and how many there are.
Refuses to know: scores, and who asks.
"""

from __future__ import annotations

from collections.abc import Sequence

from kbproc.views.catalog.reader import Reader
from kbproc.views.catalog.rows import ChunkRow


class ChunkQueries(Reader):
    def chunk_total(self) -> int:
        return int(self._rows("select count(*) from seen.chunks")[0][0])

    def chunks_of(self, document_id: int, after: int = 0, limit: int = 1_000_000) -> list[ChunkRow]:
        """In order, from the one after chunk id `after`."""
        sql = "from seen.chunks where document_id = ? and id > ? order by id limit ?"
        return [ChunkRow(*row) for row in self._rows(sql, [document_id, after, limit])]

    def chunks(self, ids: Sequence[int]) -> dict[int, ChunkRow]:
        sql = (
            "select c.* from (select unnest(?::bigint[]) as wanted) "
            "join seen.chunks c on c.id = wanted"
        )
        return {row[0]: ChunkRow(*row) for row in self._rows(sql, [list(ids)])}

    def chunk_counts(self, after_seq: int = 0) -> dict[int, int]:
        """document id → number of its chunks, for live documents that have any.

        `after_seq`: only those that have been changed after this position.
        """
        sql = (
            "select id, chunk_count from seen.documents where deleted_at is null "
            "and chunk_count > 0 and touched > ?"
        )
        return dict(self._rows(sql, [after_seq]))
