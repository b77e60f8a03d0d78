"""How much an agent may keep.

Owns: the quotas there are, what counts against each, and refusing what would exceed one.
Refuses to know: what is kept. A quota is checked when deciding only: one that is lowered
later takes nothing away.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

import msgspec

from kbproc.base.errors import KbprocError
from kbproc.views.catalog.queries.all import Queries
from kbproc.views.catalog.rows import AgentRow

QUOTAS = ("knowledge_stored", "notes_stored")


def quotas_of(agent: AgentRow) -> dict[str, int]:
    return msgspec.json.decode(agent.quotas, type=dict[str, int])


def used(queries: Queries, agent: AgentRow, scopes: Collection[str]) -> dict[str, int]:
    """What counts against each quota, as far as these scopes let it be seen."""
    counted = {}
    if "knowledge:read" in scopes:
        counted["knowledge_stored"] = queries.entries_owned(agent.slug)
    if "note:read" in scopes:
        counted["notes_stored"] = queries.notes_count(agent.slug)
    return counted


def check_quota(
    agent: AgentRow | None, name: str, count: Callable[[], int], *, instead: str
) -> None:
    """For one more. Raises quota.exceeded; `instead` says how to make room.

    What is used is counted where there is a limit only: that takes the catalog.
    """
    limit = None if agent is None else quotas_of(agent).get(name)
    if agent is None or limit is None or (used := count()) < limit:
        return
    raise KbprocError(
        "quota.exceeded",
        f"Agent {agent.slug} has used up its quota {name}: {used} of {limit}.",
        hint=f"{instead}, or have the quota raised: agent.update.",
        detail={"quota": name, "limit": limit, "used": used},
    )
