"""What is asked of agents' notes, in SQL.

Owns: the live notes of an agent.
Refuses to know: their files.
"""

from __future__ import annotations

from kbproc.views.catalog.reader import NOTES, Reader
from kbproc.views.catalog.rows import DocumentRow


class NoteQueries(Reader):
    def note(self, agent: str, slug: str) -> DocumentRow | None:
        """The live note."""
        which = "kb = ? and source_id = ? and deleted_at is null"
        return next(iter(self._documents(DocumentRow, which, [NOTES + agent, slug])), None)

    def notes(
        self, agent: str, *, since: str = "", after: str = "", limit: int = 1_000_000_000
    ) -> list[DocumentRow]:
        """The live notes by slug, from the one after `after`; those changed later than `since`."""
        which = "kb = ? and deleted_at is null and source_id > ? and updated_at > ? "
        which += "order by source_id limit ?"
        return self._documents(DocumentRow, which, [NOTES + agent, after, since, limit])

    def notes_count(self, agent: str, *, since: str = "") -> int:
        sql = (
            "select count(*) from seen.documents where kb = ? and deleted_at is null "
            "and updated_at > ?"
        )
        return int(self._rows(sql, [NOTES + agent, since])[0][0])
