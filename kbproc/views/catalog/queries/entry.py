"""What is asked of knowledge entries, in SQL.

Owns: entries with their lifecycle, and chains of them.
Refuses to know: what may be done to them.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import asdict

from kbproc.events.entry import EntryFacts
from kbproc.views.catalog.filters import DocumentFilter
from kbproc.views.catalog.reader import Reader
from kbproc.views.catalog.rows import ChainRow, EntryRow, facts_in


class EntryQueries(Reader):
    def entry(self, id: int) -> EntryRow | None:
        """A deleted one too: see `deleted_at`."""
        which = "id = ? and type = 'knowledge'"
        return next(iter(self._documents(EntryRow, which, [id])), None)

    def entries(
        self, wanted: DocumentFilter, *, after: int = 0, limit: int = 1_000_000_000
    ) -> list[EntryRow]:
        """By id, from the one after `after`."""
        where, values = wanted.where()
        which = f"id > ? and type = 'knowledge' and {where} order by id limit ?"
        return self._documents(EntryRow, which, [after, *values, limit])

    def entries_by_id(self, ids: Sequence[int]) -> dict[int, EntryRow]:
        """Deleted ones too."""
        which = "type = 'knowledge' and id in (select unnest(?::bigint[]))"
        return {row.id: row for row in self._documents(EntryRow, which, [list(ids)])}

    def entry_facts(self, id: int) -> EntryFacts | None:
        """What its event says of it; None if it is no entry."""
        row = self.entry(id)
        return None if row is None else facts_in(asdict(row))

    def superseded_by(self, ids: Sequence[int]) -> list[EntryRow]:
        """The live entries whose direct successor is one of these, by id."""
        which = "deleted_at is null and superseded_by in (select unnest(?::bigint[])) order by id"
        return self._documents(EntryRow, which, [list(ids)])

    def successors(self, head: int) -> dict[int, int]:
        """Each superseded entry behind this head → what supersedes it directly."""
        sql = "select id, superseded_by from documents where head = ? and superseded_by is not null"
        return dict(self._rows(sql, [head]))

    def chains(self, ids: Sequence[int]) -> dict[int, ChainRow]:
        """These entries and all that are linked with them, over any number of steps.

        Deleted ones too; of what was purged nothing.
        """
        sql = (
            "select id, superseded_by, deleted_at is null from documents where head in "
            "(select head from documents where id in (select unnest(?::bigint[])))"
        )
        return {row[0]: ChainRow(*row) for row in self._rows(sql, [list(ids)])}

    def entries_owned(self, owner: str) -> int:
        """Entries of an owner that are not deleted, wherever they are."""
        sql = (
            "select count(*) from documents where type = 'knowledge' and created_by = ? "
            "and deleted_at is null"
        )
        return int(self._rows(sql, [owner])[0][0])
