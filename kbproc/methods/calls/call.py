"""One request on its way: who asks, and what may be used.

Owns: the peer, the store as the peer may see it, cancellation.
Refuses to know: how a request runs (run.py), pipes, flags, tools.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from kbproc.base.errors import KbprocError
from kbproc.base.host import Host
from kbproc.base.params import PastListParams, PastParams
from kbproc.calls.progress import progress
from kbproc.calls.registry import Registry
from kbproc.settings.config import DEFAULT_ACTOR

if TYPE_CHECKING:
    from pathlib import Path

    from kbproc.library.library import Library
    from kbproc.store.state import SeenStore, State
    from kbproc.views.catalog.reader import Sight
    from kbproc.views.catalog.rows import AgentRow, Roster


class Peer(Struct, frozen=True, kw_only=True):
    """Who is at the other end of a connection, and what it may do.

    `named_by`: what said that `actor` is the slug of an agent, which must be there; None for a
    mere name. `scoped`: somebody said which scopes it has. `is_self_named`: `actor` is what the
    client calls itself, which means no agent. `profile`: its settings, by name.
    `profiles`: the names that `describe` lists.
    """

    actor: str
    scopes: frozenset[str]
    cwd: Path
    root: Path | None
    kb: str
    surface: str = "serve"
    named_by: str | None = None
    scoped: bool = False
    is_self_named: bool = False
    profile: str | None = None
    profiles: tuple[str, ...] = ()
    allow_private_addresses: bool = False


def known(peer: Peer, roster: Roster) -> Peer:
    """The peer as the user where it calls itself by the name of an agent, or of another writer of
    the log. Nobody has vouched for such a name, so that it must not count as one.
    """
    from kbproc.agents.agent import RESERVED

    if peer.is_self_named and (peer.actor in roster.agents or peer.actor in RESERVED):
        return replace(peer, actor=DEFAULT_ACTOR)
    return peer


Emit = Callable[[str, dict[str, Any]], None]


class Call:
    """One request on its way: who asks, what may be used, how to say something meanwhile."""

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
    ) -> None:
        """`begin_turn` is called when a short write has its turn, and raises if it is too late.
        `gathers`: its answer may be asked for later, so that several writes share a commit.

        `crowded`, `max_line_bytes`: what the way to the client can take.

        `folder`: where the store lies, for a command in a process of its own, which has
        not opened the store yet.
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
        self.agent: AgentRow | None = None
        self.scopes = peer.scopes
        self.sight: Sight | None = None
        self._open_library = open_library
        self._store: SeenStore | None = None
        self._meant: dict[int | str, tuple[int, str]] = {}  # by as_of

    @property
    def library(self) -> Library:
        """Everything that is open, whoever asks. Raises what opening it raised."""
        return self._open_library()

    @property
    def store(self) -> SeenStore:
        """The store as far as it may be seen. Raises what opening it raised."""
        if self._store is None:
            self._store = self.library.store
        return self._store

    def bind(self, *, whole: bool) -> None:
        """Narrows scopes and store to those of the agent that asks, if it is one.

        `whole`: for a method that concerns the whole store, which no agent may call.
        Raises resource.not_found for an agent that is not there (any more).
        """
        from kbproc.agents.access import require_agent, scopes_of, visible_to
        from kbproc.store.visible import narrowed_store

        store = self.library.store
        roster = store.published.roster
        self.peer = peer = known(self.peer, roster)
        self.agent = require_agent(roster, peer.actor, peer.named_by)
        self.scopes = scopes_of(self.agent, self.peer.scopes, named=self.peer.scoped)
        self.sight = None if whole else visible_to(self.agent, self.scopes)
        self._store = narrowed_store(store, self.sight)

    @property
    def own_names(self) -> frozenset[str]:
        """Names under which the caller wrote: a client that names itself was the user before."""
        names = {self.peer.actor, DEFAULT_ACTOR} if self.peer.is_self_named else {self.peer.actor}
        return frozenset(names)

    @contextlib.contextmanager
    def state(self, params: PastParams | PastListParams) -> Iterator[State]:
        """The store as the params mean it: now, or as it was. Raises input.invalid_params."""
        from kbproc.store.visible import narrowed

        if params.as_of is None:
            yield self.store
            return
        seq, _ = self._resolved(params.as_of)
        with self.library.pasts.at(seq) as past:
            yield narrowed(past, self.sight)

    def moment(self, params: PastParams | PastListParams) -> str:
        """When the answer holds: now, or the moment that `as_of` means."""
        return self.now if params.as_of is None else self._resolved(params.as_of)[1]

    def _resolved(self, as_of: int | str) -> tuple[int, str]:
        """Position and moment, looked up once. Raises input.invalid_params."""
        if as_of not in self._meant:
            from kbproc.library.past import resolve

            self._meant[as_of] = resolve(self.store, as_of, self.now)
        return self._meant[as_of]

    def progress(
        self, stage: str, current: int, total: int | None, message: str, *, last: bool | None = None
    ) -> None:
        """Tells the client how far it is; see progress.py."""
        self.emit("progress", progress(stage, current, total, message, last=last))

    def check_cancelled(self, **detail: Any) -> None:
        """Raises operation.cancelled; `detail` says what stays."""
        if self.cancelled():
            raise KbprocError(
                "operation.cancelled", "The client cancelled the request.", detail=detail
            )
