"""Finds the agent that an actor's name stands for, and what that agent may do and see."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbproc.base.errors import KbprocError
from kbproc.base.suggest import nearest
from kbproc.engine.projections.catalog.reader import PUBLISHED, Sight

if TYPE_CHECKING:
    from kbproc.engine.projections.catalog.rows import AgentRow, Roster

# A process that is bound to an agent has these scopes only if they are named, so that no agent
# approves a plan of its own making by accident.
WITHHELD = frozenset({"admin", "knowledge:write_others", "review:write"})


def require_agent(roster: Roster, actor: str, named_by: str | None) -> AgentRow | None:
    """Returns the agent of that name; None for a name that is no agent's.

    `named_by`: the flag, variable or file that names an agent. Raises resource.not_found if that
    agent does not exist, and for every deleted agent: its name does not become a mere name,
    because that would give it every right.
    """
    agent = roster.agents.get(actor)
    if agent is not None and agent.deleted_at is None:
        return agent
    if agent is None and named_by is None:
        return None
    slugs = [slug for slug, row in roster.agents.items() if row.deleted_at is None]
    message = f"There is no agent {actor!r}."
    if agent is not None:
        slugs, message = [], f"Agent {actor!r} was deleted at {agent.deleted_at}."
    raise KbprocError(
        "resource.not_found",
        message,
        field=named_by or "--actor",
        valid_values=nearest(actor, slugs),
        hint="Create it with agent.create, in a process that is bound to no agent; a mere name "
        "for the log is given by --actor.",
    )


def scopes_of(
    agent: AgentRow | None, process_scopes: frozenset[str], *, named: bool
) -> frozenset[str]:
    """Returns the scopes that process and agent both allow.

    `named`: the scopes of the process were set, and are not its default.
    """
    if agent is None:
        return process_scopes
    if agent.scopes is not None:
        return process_scopes & set(agent.scopes)
    return process_scopes if named else process_scopes - WITHHELD


def visible_to(agent: AgentRow | None, scopes: frozenset[str]) -> Sight | None:
    """Returns what the caller may see; None stands for everything.

    An agent sees its knowledge bases, and no notes but its own.
    """
    notes = None if agent is None else (agent.slug,)
    sight = Sight(
        kbs=None if agent is None or agent.kbs is None else tuple(agent.kbs),
        notes=notes if "note:read" in scopes else (),
        entries="knowledge:read" in scopes,
        sessions=None if agent is None else (agent.slug,),
        texts="doc:read" in scopes,
    )
    return None if sight == PUBLISHED else sight
