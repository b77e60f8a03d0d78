"""How much an agent may keep.

Owns: the quotas there are, and refusing what would exceed one.
Refuses to know: how anything is counted. Checked when deciding only: a quota that is
lowered later takes nothing away.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from kbproc.base.errors import KbprocError

if TYPE_CHECKING:
    from kbproc.views.catalog.rows import AgentRow

QUOTAS = ("knowledge_stored", "notes_stored")


def quotas_of(agent: AgentRow) -> dict[str, int]:
    return msgspec.json.decode(agent.quotas, type=dict[str, int])


def check_quota(agent: AgentRow | None, name: str, used: int, *, instead: str) -> None:
    """For one more. Raises quota.exceeded; `instead` says how to make room."""
    limit = None if agent is None else quotas_of(agent).get(name)
    if agent is None or limit is None or used < limit:
        return
    raise KbprocError(
        "quota.exceeded",
        f"Agent {agent.slug} has used up its quota {name}: {used} of {limit}.",
        hint=f"{instead} (which needs the scope admin), or have the quota raised: agent.update.",
        detail={"quota": name, "limit": limit, "used": used},
    )
