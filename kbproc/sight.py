"""A store as somebody sees it who may not see all.

Owns: what a connection's agent and scopes let it see, and the store narrowed to that.
Refuses to know: methods, and who is asking for what.

Whoever may see everything gets the store itself. Anybody else gets this in its place, so
that a read can't forget to look: all that it finds, counts and names is narrowed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeVar, cast

import msgspec

from kbproc.errors import KbprocError, nearest
from kbproc.snapshot import Snapshot

if TYPE_CHECKING:
    from kbproc.model import Freshness
    from kbproc.past import State
    from kbproc.views.reader import Sight
    from kbproc.views.rows import AgentRow, Roster

S = TypeVar("S", bound="State")


def require_agent(roster: Roster, actor: str, named: bool) -> AgentRow | None:
    """The agent of that name; None where it is only a name, unless it is `named` as one.

    Raises resource.not_found. An agent that was deleted does not become a mere name:
    that would give it every right.
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
        "resource.not_found", why, field="--agent" if named else "KBPROC_AGENT",
        valid_values=nearest(actor, known),
        hint="Create it with agent.create, in a process that is bound to no agent.",
    )  # fmt: skip


def sight_of(agent: AgentRow | None, scopes: frozenset[str]) -> Sight | None:
    """None: everything. An agent sees its knowledge bases, and no notes but its own."""
    from kbproc.views.reader import EVERYTHING, Sight

    notes = None if agent is None else (agent.slug,)
    sight = Sight(
        kbs=None if agent is None or agent.kbs is None else tuple(agent.kbs),
        notes=notes if "note:read" in scopes else (),
        entries="knowledge:read" in scopes,
    )
    return None if sight == EVERYTHING else sight


def narrowed(state: S, sight: Sight | None) -> S:
    """The store, or a past of it, as far as it may be seen."""
    return state if sight is None else cast(S, _Narrowed(state, sight))


class _Narrowed:
    """In the place of a store; what is not said here is the store's own."""

    _state: State
    _sight: Sight

    def __init__(self, state: State, sight: Sight) -> None:
        vars(self).update(_state=state, _sight=sight)

    def __getattr__(self, name: str) -> Any:
        return getattr(vars(self)["_state"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(vars(self)["_state"], name, value)

    @contextlib.contextmanager
    def reading(self) -> Iterator[Snapshot]:
        snapshot = Snapshot(self._state, self._sight)
        try:
            yield snapshot
        finally:
            snapshot.close()

    @property
    def chunks(self) -> int:
        with self.reading() as snapshot:
            return snapshot.queries.chunk_total()

    def freshness(self, snapshot: Snapshot) -> Freshness:
        """Counts only what may be seen to wait for its vector."""
        freshness = self._state.freshness(snapshot)
        if not freshness.pending_embeddings:
            return freshness
        waiting = self._state.embedding.pending_documents()
        seen = snapshot.queries.documents_by_id(waiting)
        count = sum(chunks for id, chunks in waiting.items() if id in seen)
        return msgspec.structs.replace(freshness, pending_embeddings=count)
