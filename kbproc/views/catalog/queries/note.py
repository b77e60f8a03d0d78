"""What is asked of agents' notes, in SQL.

Owns: the live notes of an agent.
Refuses to know: their files.
"""

from __future__ import annotations

from kbproc.views.catalog.reader import NOTES, Reader
from kbproc.views.catalog.rows import DocumentRow

_DOCUMENT = ", ".join(DocumentRow.__struct_fields__)


class NoteQueries(Reader):
    def note(self, agent: str, slug: str) -> DocumentRow | None:
        """The live note."""
        sql = (
            f"select {_DOCUMENT} from seen.documents where kb = ? "  # noqa: S608
            "and source_id = ? and deleted_at is null"
        )
        rows = self._rows(sql, [NOTES + agent, slug])
        return DocumentRow(*rows[0]) if rows else None

    def notes(
        self, agent: str, *, since: str = "", after: str = "", limit: int = 1_000_000_000
    ) -> list[DocumentRow]:
        """The live notes by slug, from the one after `after`; those changed later than `since`."""
        sql = (
            f"select {_DOCUMENT} from seen.documents where kb = ? "  # noqa: S608
            "and deleted_at is null and source_id > ? and updated_at > ? "
            "order by source_id limit ?"
        )
        values = [NOTES + agent, after, since, limit]
        return [DocumentRow(*row) for row in self._rows(sql, values)]

    def notes_count(self, agent: str, *, since: str = "") -> int:
        sql = (
            "select count(*) from seen.documents where kb = ? and deleted_at is null "
            "and updated_at > ?"
        )
        return int(self._rows(sql, [NOTES + agent, since])[0][0])
