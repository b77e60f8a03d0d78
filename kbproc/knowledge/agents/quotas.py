"""Quotas: how much an agent may store, how much it has stored, and the error beyond that."""

from __future__ import annotations

from collections.abc import Callable, Collection

import msgspec

from kbproc.base.errors import KbprocError
from kbproc.engine.projections.catalog.queries import Queries
from kbproc.engine.projections.catalog.rows import AgentRow

QUOTAS = ("knowledge_stored", "notes_stored")


def quotas_of(agent: AgentRow) -> dict[str, int]:
    return msgspec.json.decode(agent.quotas, type=dict[str, int])


def usage(queries: Queries, agent: AgentRow, scopes: Collection[str]) -> dict[str, int]:
    """Returns how much of each quota is used, for the quotas that these scopes may see."""
    counts = {}
    if "knowledge:read" in scopes:
        counts["knowledge_stored"] = queries.entries_owned(agent.slug)
    if "note:read" in scopes:
        counts["notes_stored"] = queries.notes_count(agent.slug)
    return counts


def check_quota(
    agent: AgentRow | None, name: str, count: Callable[[], int], *, instead: str
) -> None:
    """Raises quota.exceeded if one more would exceed the quota; `instead` says how to make room.

    `count` runs only if there is a limit, because it takes the catalog.
    """
    limit = None if agent is None else quotas_of(agent).get(name)
    if agent is None or limit is None or (usage := count()) < limit:
        return
    raise KbprocError(
        "quota.exceeded",
        f"Agent {agent.slug} has used up its quota {name}: {usage} of {limit}.",
        hint=f"{instead}, or have the quota raised: agent.update.",
        detail={"quota": name, "limit": limit, "used": usage},
    )
