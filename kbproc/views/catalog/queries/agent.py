"""What is asked of agents, in SQL.

Owns: their rows, and what every request needs to know of agents and entries.
Refuses to know: what an agent may do.
"""

from __future__ import annotations

from kbproc.views.catalog.reader import Reader
from kbproc.views.catalog.rows import AgentRow, Roster


class AgentQueries(Reader):
    def agents(self, after: str = "", limit: int = 1_000_000) -> list[AgentRow]:
        """The live ones by slug."""
        sql = "from agents where slug > ? and deleted_at is null order by slug limit ?"
        return [AgentRow(*row) for row in self._rows(sql, [after, limit])]

    def agent(self, slug: str) -> AgentRow | None:
        """A deleted one too."""
        sql = "from agents where slug = ?"
        return next((AgentRow(*row) for row in self._rows(sql, [slug])), None)

    def roster(self) -> Roster:
        agents = self._rows("from agents order by slug")
        kbs = self._rows(
            "select kb, list(distinct superseded_by) filter (deleted_at is null and superseded_by "
            "is not null) from documents where type = 'knowledge' group by kb order by kb"
        )
        expiring = self._rows(
            "select expires_at, id from documents where expires_at is not null "
            "and deleted_at is null order by 1, 2"
        )
        return Roster(
            agents={row[0]: AgentRow(*row) for row in agents},
            kbs=tuple(slug for (slug,) in self._rows("select slug from kbs order by slug")),
            entries=tuple(kb for kb, _ in kbs),
            superseded=tuple(kb for kb, successors in kbs if successors),
            successors=frozenset(id for _, successors in kbs for id in successors or ()),
            moments=[moment for moment, _ in expiring],
            expiring=[id for _, id in expiring],
        )
