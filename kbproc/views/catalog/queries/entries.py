"""What is asked of knowledge entries, notes and agents, in SQL.

Owns: entries with their lifecycle, chains, an agent's notes, agents' rows.
Refuses to know: what may be done to them, and files.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kbproc.events.entry import EntryFacts
from kbproc.views.catalog.filters import DocumentFilter
from kbproc.views.catalog.reader import NOTES, Reader
from kbproc.views.catalog.rows import AgentRow, ChainRow, DocumentRow, EntryRow, Roster

_ENTRY = ", ".join(EntryRow.__struct_fields__)
_DOCUMENT = ", ".join(DocumentRow.__struct_fields__)


class EntryQueries(Reader):
    def entry(self, id: int) -> EntryRow | None:
        """A deleted one too: see `deleted_at`."""
        sql = f"select {_ENTRY} from seen.documents where id = ? and type = 'knowledge'"  # noqa: S608
        return next((EntryRow(*row) for row in self._rows(sql, [id])), None)

    def entries(
        self, wanted: DocumentFilter, *, after: int = 0, limit: int = 1_000_000_000
    ) -> list[EntryRow]:
        """By id, from the one after `after`."""
        where, values = wanted.where()
        sql = (
            f"select {_ENTRY} from seen.documents where id > ? and "  # noqa: S608
            f"type = 'knowledge' and {where} order by id limit ?"
        )
        return [EntryRow(*row) for row in self._rows(sql, [after, *values, limit])]

    def entries_by_id(self, ids: Sequence[int]) -> dict[int, EntryRow]:
        """Deleted ones too."""
        sql = (
            f"select {_ENTRY} from seen.documents where type = 'knowledge' "  # noqa: S608
            "and id in (select unnest(?::bigint[]))"
        )
        return {row[0]: EntryRow(*row) for row in self._rows(sql, [list(ids)])}

    def entry_facts(self, id: int) -> EntryFacts | None:
        """What its event says of it; None if it is no entry."""
        row = self.entry(id)
        if row is None:
            return None
        return EntryFacts(
            confidence=row.confidence,
            source=row.source,
            expires_at=row.expires_at,
            task_id=row.task_id,
            task_kind=row.task_kind,
        )

    def superseded_by(self, ids: Sequence[int]) -> list[EntryRow]:
        """The live entries whose direct successor is one of these, by id."""
        sql = (
            f"select {_ENTRY} from seen.documents where deleted_at is null "  # noqa: S608
            "and superseded_by in (select unnest(?::bigint[])) order by id"
        )
        return [EntryRow(*row) for row in self._rows(sql, [list(ids)])]

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

    # -------------------------------------------------------------------- notes

    def note(self, agent: str, slug: str) -> DocumentRow | None:
        """The live note."""
        sql = (
            f"select {_DOCUMENT} from seen.documents where kb = ? "  # noqa: S608
            "and source_id = ? and deleted_at is null"
        )
        rows = self._rows(sql, [NOTES + agent, slug])
        return DocumentRow(*rows[0]) if rows else None

    def notes(
        self, agent: str, *, after: str = "", limit: int = 1_000_000_000
    ) -> list[DocumentRow]:
        """The live notes by slug, from the one after `after`."""
        sql = (
            f"select {_DOCUMENT} from seen.documents where kb = ? "  # noqa: S608
            "and deleted_at is null and source_id > ? order by source_id limit ?"
        )
        return [DocumentRow(*row) for row in self._rows(sql, [NOTES + agent, after, limit])]

    def notes_kbs(self) -> list[str]:
        """The pseudo knowledge bases of all notes that may be seen."""
        if self.sight.notes is not None:
            return [NOTES + slug for slug in self.sight.notes]
        return [NOTES + slug for (slug,) in self._rows("select slug from agents order by slug")]

    def notes_count(self, agent: str) -> int:
        sql = "select count(*) from seen.documents where kb = ? and deleted_at is null"
        return int(self._rows(sql, [NOTES + agent])[0][0])

    # ------------------------------------------------------------------- agents

    def agents(self, after: str = "", limit: int = 1_000_000) -> list[AgentRow]:
        """The live ones by slug."""
        sql = "from agents where slug > ? and deleted_at is null order by slug limit ?"
        return [AgentRow(*row) for row in self._rows(sql, [after, limit])]

    def agent(self, slug: str) -> AgentRow | None:
        """A deleted one too."""
        rows = self._rows("from agents where slug = ?", [slug])
        return AgentRow(*rows[0]) if rows else None

    def roster(self) -> Roster:
        agents = self._rows("from agents order by slug")
        kbs = self._rows(
            "select kb, bool_or(superseded_by is not null and deleted_at is null) from documents "
            "where type = 'knowledge' group by kb order by kb"
        )
        expiring = self._rows(
            "select expires_at, id from documents where expires_at is not null "
            "and deleted_at is null order by 1, 2"
        )
        return Roster(
            agents={row[0]: AgentRow(*row) for row in agents},
            entries=tuple(kb for kb, _ in kbs),
            superseded=tuple(kb for kb, any_ in kbs if any_),
            moments=[moment for moment, _ in expiring],
            expiring=np.array([id for _, id in expiring], dtype=np.int64),
        )
