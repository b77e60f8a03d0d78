"""Which agent asks, and what it may do and see.

Owns: telling an agent from a mere name, the scopes that are left to it, and what its knowledge
bases and scopes let it see.
Refuses to know: how a store is narrowed to it (store/visible.py).
"""

from __future__ import annotations

from kbproc.base.errors import KbprocError
from kbproc.base.suggest import nearest
from kbproc.views.catalog.reader import EVERYTHING, Sight
from kbproc.views.catalog.rows import AgentRow, Roster

# Nobody who is bound to an agent has these unless they are named: no agent approves a plan of its
# own making by accident.
WITHHELD = frozenset({"admin", "knowledge:write_others"})


def require_agent(roster: Roster, actor: str, named_by: str | None) -> AgentRow | None:
    """The agent of that name; None for a mere name, unless something named it as an agent's.

    `named_by`: the flag, the variable or the file that did. Raises resource.not_found. The name
    of a deleted agent does not become a mere name: that would give it every right.
    """
    agent = roster.agents.get(actor)
    if agent is not None and agent.deleted_at is None:
        return agent
    if agent is None and named_by is None:
        return None
    known = [slug for slug, row in roster.agents.items() if row.deleted_at is None]
    why = f"There is no agent {actor!r}."
    if agent is not None:
        known, why = [], f"Agent {actor!r} was deleted at {agent.deleted_at}."
    raise KbprocError(
        "resource.not_found",
        why,
        field=named_by or "--actor",
        valid_values=nearest(actor, known),
        hint="Create it with agent.create, in a process that is bound to no agent; a mere name "
        "for the log is given by --actor.",
    )


def scopes_of(agent: AgentRow | None, given: frozenset[str], *, named: bool) -> frozenset[str]:
    """What process and agent both allow. `named`: somebody said which scopes the process has."""
    if agent is None:
        return given
    if agent.scopes is not None:
        return given & set(agent.scopes)
    return given if named else given - WITHHELD


def visible_to(agent: AgentRow | None, scopes: frozenset[str]) -> Sight | None:
    """None: everything. An agent sees its knowledge bases, and no notes but its own."""

    notes = None if agent is None else (agent.slug,)
    sight = Sight(
        kbs=None if agent is None or agent.kbs is None else tuple(agent.kbs),
        notes=notes if "note:read" in scopes else (),
        entries="knowledge:read" in scopes,
        sessions=None if agent is None else (agent.slug,),
        texts="doc:read" in scopes,
    )
    return None if sight == EVERYTHING else sight
