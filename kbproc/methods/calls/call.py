"""Holds one request in progress: its peer, the store as the peer may see it, its cancellation."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from kbproc.base.errors import KbprocError
from kbproc.base.settings.config import DEFAULT_ACTOR
from kbproc.methods.calls.plans import PendingPlans

if TYPE_CHECKING:
    from pathlib import Path

    from kbproc.base.host import Host
    from kbproc.base.params import PastListParams, PastParams
    from kbproc.engine.events.origin import Origin
    from kbproc.engine.projections.catalog.queries import Queries
    from kbproc.engine.projections.catalog.reader import Sight
    from kbproc.engine.projections.catalog.rows import AgentRow, Roster
    from kbproc.engine.store.state import SeenStore, State
    from kbproc.knowledge.app.library import Library
    from kbproc.knowledge.documents.anchors import Sources
    from kbproc.methods.calls.registry import Registry


def progress(
    stage: str, current: int, total: int | None, message: str, *, last: bool | None = None
) -> dict[str, Any]:
    """Returns the members; an event that is `last` or reaches its total is always sent."""
    return {
        "stage": stage,
        "current": current,
        "total": total,
        "percent": round(100 * current / total, 1) if total else None,
        "message": message,
        "last": current == total if last is None else last,
    }


class Peer(Struct, frozen=True, kw_only=True):
    """The other end of a connection, and what it may do.

    `named_by`: the origin of the claim that `actor` is an agent's slug, so that the agent must
    exist; None for a mere name. `scoped`: the scopes were chosen explicitly. `is_self_named`:
    `actor` is the client's own name for itself, which means no agent. `profile`: its settings, by
    name. `profiles`: the names that `describe` lists. `runtime`: the folder of its sockets, logs
    and secrets, which no ingest reads. `allow_private_addresses`: fetching is
    allowed from all of them, else from `approved_addresses`. `awaits_approval`: a request that
    needs a confirmation waits for a person, instead of an error.
    """

    actor: str
    scopes: frozenset[str]
    cwd: Path
    root: Path | None
    kb: str
    runtime: Path | None = None
    surface: str = "serve"
    named_by: str | None = None
    scoped: bool = False
    is_self_named: bool = False
    profile: str | None = None
    profiles: tuple[str, ...] = ()
    allow_private_addresses: bool = False
    approved_addresses: frozenset[str] = frozenset()
    awaits_approval: bool = False


def known_peer(peer: Peer, roster: Roster) -> Peer:
    """Returns the peer, as the user if it has given itself the name of an agent or of another
    writer of the log.

    Nothing proves such a name, so it must not count as the agent.
    """
    if not peer.is_self_named:
        return peer
    from kbproc.knowledge.agents.agent import RESERVED

    is_of_others = peer.actor in roster.agents or peer.actor in RESERVED
    return replace(peer, actor=DEFAULT_ACTOR) if is_of_others else peer


Emit = Callable[[str, dict[str, Any]], None]


class Call:
    """One request: its peer, what it may use, and how to report its progress."""

    def __init__(
        self,
        *,
        registry: Registry,
        host: Host,
        peer: Peer,
        open_library: Callable[[], Library],
        emit: Emit,
        now: str,
        cancelled: Callable[[], bool] = lambda: False,
        begin_turn: Callable[[], None] = lambda: None,
        gathers: bool = False,
        crowded: Callable[[], bool] = lambda: False,
        max_line_bytes: int = sys.maxsize,
        folder: Path | None = None,
        plans: PendingPlans | None = None,
    ) -> None:
        """`begin_turn` is called when a short write has its turn, and raises if it is too late.
        `gathers`: the answer may be fetched later, so that several writes share a commit.

        `crowded`, `max_line_bytes`: limits of the way to the client.

        `folder`: the store's folder, for a command in its own process, which has not opened the
        store yet.

        `plans`: those of the owner that no person has confirmed.
        """
        self.registry = registry
        self.host = host
        self.peer = peer
        self.emit = emit
        self.now = now
        self.cancelled = cancelled
        self.begin_turn = begin_turn
        self.gathers = gathers
        self.crowded = crowded
        self.max_line_bytes = max_line_bytes
        self.folder = folder
        self.plans = plans or PendingPlans("", lambda: None)
        self.approved_by: str | None = None  # the person who approved of this request's plan
        self.agent: AgentRow | None = None
        self.scopes = peer.scopes
        self.sight: Sight | None = None
        self._open_library = open_library
        self._store: SeenStore | None = None
        self._resolved_moments: dict[int | str, tuple[int, str]] = {}  # as_of → seq, moment

    def for_peer(self, peer: Peer, *, approved_by: str) -> Call:
        """Returns a call for another client's request with a person's approval."""
        call = Call(
            registry=self.registry,
            host=self.host,
            peer=peer,
            open_library=self._open_library,
            emit=lambda name, fields: None,
            now=self.now,
            max_line_bytes=self.max_line_bytes,
            plans=self.plans,
        )
        call.approved_by = approved_by
        return call

    @property
    def library(self) -> Library:
        """Returns everything that is open, for any caller. Raises the error of opening it."""
        return self._open_library()

    @property
    def store(self) -> SeenStore:
        """Returns the store as the caller may see it. Raises the error of opening it."""
        if self._store is None:
            self._store = self.library.store
        return self._store

    def bind(self, *, whole: bool) -> None:
        """Narrows scopes and store to the caller's agent, if it is one.

        `whole`: for a method of the whole store, which no agent may call. Raises resource.not_found
        for an agent that does not exist.
        """
        from kbproc.engine.store.visible import narrowed_store
        from kbproc.knowledge.agents.access import require_agent, scopes_of, visible_to

        store = self.library.store
        roster = store.published.roster
        self.peer = peer = known_peer(self.peer, roster)
        self.agent = require_agent(roster, peer.actor, peer.named_by)
        self.scopes = scopes_of(self.agent, self.peer.scopes, named=self.peer.scoped)
        self.sight = None if whole else visible_to(self.agent, self.scopes)
        self._store = narrowed_store(store, self.sight)

    @property
    def own_names(self) -> frozenset[str]:
        """Returns the names under which the caller wrote: a client that names itself was the user
        before.
        """
        names = {self.peer.actor, DEFAULT_ACTOR} if self.peer.is_self_named else {self.peer.actor}
        return frozenset(names)

    @property
    def review_sight(self) -> Sight:
        """Returns what the caller may see, together with the entries in review that it may see: a
        reviewer sees all of them, others see their own.
        """
        from kbproc.engine.projections.catalog.reader import PUBLISHED

        is_reviewer = not self.scopes.isdisjoint({"admin", "review:write"})
        names = None if is_reviewer else tuple(sorted(self.own_names))
        return replace(self.sight or PUBLISHED, in_review=names)

    @property
    def origin(self) -> Origin:
        """Returns the origin of what the caller writes: an agent's, or a person's.

        An agent of this store, a client of MCP and a client that names itself are agents.
        """
        is_agent = self.agent is not None or self.peer.is_self_named
        return "agent" if is_agent or self.peer.surface == "mcp" else "user"

    @contextlib.contextmanager
    def state(self, params: PastParams | PastListParams) -> Iterator[State]:
        """Yields the store of now, or as it was at `as_of`. Raises input.invalid_params."""
        from kbproc.engine.store.visible import narrowed

        if params.as_of is None:
            yield self.store
            return
        seq, _ = self._resolve(params.as_of)
        with self.library.pasts.at(seq) as past:
            yield narrowed(past, self.sight)

    def sources(self, params: PastParams | PastListParams, queries: Queries) -> Sources:
        """Returns the sources of entries: with their files, unless the answer is of the past."""
        from kbproc.knowledge.documents.anchors import Sources

        now_ms = self.library.store.host.now_ms if self.sees_files(params) else None
        return Sources(queries, self.store.blobs.get, now_ms=now_ms)

    def sees_files(self, params: PastParams | PastListParams) -> bool:
        """Returns whether an answer may say what this machine's files are like now."""
        return params.as_of is None and self.library.store.is_local

    def moment(self, params: PastParams | PastListParams) -> str:
        """Returns the moment of the answer: now, or that of `as_of`."""
        return self.now if params.as_of is None else self._resolve(params.as_of)[1]

    def _resolve(self, as_of: int | str) -> tuple[int, str]:
        """Returns position and moment of `as_of`, looked up once. Raises input.invalid_params."""
        if as_of not in self._resolved_moments:
            from kbproc.knowledge.app.past import resolve

            self._resolved_moments[as_of] = resolve(self.store, as_of, self.now)
        return self._resolved_moments[as_of]

    def progress(
        self, stage: str, current: int, total: int | None, message: str, *, last: bool | None = None
    ) -> None:
        """Sends the client a progress event."""
        self.emit("progress", progress(stage, current, total, message, last=last))

    def check_cancelled(self, **detail: Any) -> None:
        """Raises operation.cancelled if the client cancelled; `detail` says what stays."""
        if self.cancelled():
            raise KbprocError(
                "operation.cancelled", "The client cancelled the request.", detail=detail
            )
