"""Which agent asks, and what it may see.

Owns: telling an agent from a mere name, and what its knowledge bases and scopes let it see.
Refuses to know: how a store is narrowed to it (store/visible.py).
"""

from __future__ import annotations

from kbproc.base.errors import KbprocError
from kbproc.base.suggest import nearest
from kbproc.views.catalog.reader import EVERYTHING, Sight
from kbproc.views.catalog.rows import AgentRow, Roster


def require_agent(roster: Roster, actor: str, named: bool) -> AgentRow | None:
    """The agent of that name; None for a mere name, unless it was `named` as an agent's.

    Raises resource.not_found. The name of a deleted agent does not become a mere name: that
    would give it every right.
    """
    agent = roster.agents.get(actor)
    if agent is not None and agent.deleted_at is None:
        return agent
    if agent is None and not named:
        return None
    known = [slug for slug, row in roster.agents.items() if row.deleted_at is None]
    why = f"There is no agent {actor!r}."
    if agent is not None:
        known, why = [], f"Agent {actor!r} was deleted at {agent.deleted_at}."
    raise KbprocError(
        "resource.not_found",
        why,
        field="--agent" if named else "KBPROC_AGENT",
        valid_values=nearest(actor, known),
        hint="Create it with agent.create, in a process that is bound to no agent.",
    )


def visible_to(agent: AgentRow | None, scopes: frozenset[str]) -> Sight | None:
    """None: everything. An agent sees its knowledge bases, and no notes but its own."""

    notes = None if agent is None else (agent.slug,)
    sight = Sight(
        kbs=None if agent is None or agent.kbs is None else tuple(agent.kbs),
        notes=notes if "note:read" in scopes else (),
        entries="knowledge:read" in scopes,
    )
    return None if sight == EVERYTHING else sight
