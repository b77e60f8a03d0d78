"""What is asked of knowledge bases, in SQL.

Owns: their rows, and what they hold together.
Refuses to know: single documents.
"""

from __future__ import annotations

from collections.abc import Sequence

from kbproc.views.catalog.reader import Reader
from kbproc.views.catalog.rows import KbRow


class KbQueries(Reader):
    def kbs(self, after: str = "", limit: int = 1_000_000) -> list[KbRow]:
        sql = "from seen.kbs where slug > ? order by slug limit ?"
        return [KbRow(*row) for row in self._rows(sql, [after, limit])]

    def kb(self, slug: str) -> KbRow | None:
        sql = "from seen.kbs where slug = ?"
        return next((KbRow(*row) for row in self._rows(sql, [slug])), None)

    def kb_slugs(self) -> list[str]:
        return [row[0] for row in self._rows("select slug from seen.kbs order by slug")]

    def kb_counts(self, kbs: Sequence[str]) -> dict[str, tuple[int, int, int]]:
        """slug → documents, chunks, bytes of their sources."""
        sql = (
            "select kb, count(*), sum(chunk_count), sum(size_bytes) from seen.documents "
            "where deleted_at is null and list_contains(?, kb) group by kb"
        )
        return {row[0]: (row[1], int(row[2]), int(row[3])) for row in self._rows(sql, [list(kbs)])}
