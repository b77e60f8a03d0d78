"""How one request becomes one answer.

Owns: scopes, waiting for a position, running a handler by its kind, and the
meta of every answer.
Refuses to know: pipes, flags, tools, and what handlers do.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET, Struct, UnsetType

from kbproc import commit as pipeline
from kbproc.errors import KbprocError
from kbproc.host import Host
from kbproc.model import (
    DEFAULT_KB,
    Freshness,
    Params,
    PastListParams,
    PastParams,
    Plan,
    ReadParams,
    WriteParams,
)
from kbproc.params import decode_params
from kbproc.readonly import refusal
from kbproc.registry import Method, Registry

if TYPE_CHECKING:
    from pathlib import Path

    from kbproc.past import State
    from kbproc.store import Store
    from kbproc.views.reader import Sight
    from kbproc.views.rows import AgentRow


class Meta(Struct, kw_only=True, frozen=True, omit_defaults=True):
    """What every result says of itself."""

    schema: str
    seq: int
    count: int | UnsetType = UNSET
    total: int | UnsetType = UNSET
    has_more: bool | UnsetType = UNSET
    next_cursor: str | UnsetType = UNSET
    took_ms: float | UnsetType = UNSET
    dry_run: bool | UnsetType = UNSET
    plan: Plan | UnsetType = UNSET
    hint: str | UnsetType = UNSET
    duplicate: bool | UnsetType = UNSET
    notice: list[str] | UnsetType = UNSET
    freshness: Freshness | UnsetType = UNSET


class Reply(Struct, frozen=True, kw_only=True):
    """What a handler answers; only `data` is a must."""

    data: Any
    seq: int | None = None
    count: int | None = None
    total: int | None = None
    has_more: bool | None = None
    next_cursor: str | None = None
    hint: str | None = None
    notice: list[str] | None = None
    freshness: Freshness | None = None
    plan: Plan | None = None
    duplicate: bool | None = None


class Answer(Struct, frozen=True, kw_only=True):
    """`data` is None in a dry run."""

    data: Any
    meta: Meta


class Tail(Struct, frozen=True, kw_only=True):
    """What makes a wait a stream that never ends by itself: `ready` sends and stays false.

    `ready` must not block: it sends a bounded part and only while the client is
    not `crowded`. `more` is true if it has stopped short: then it is asked again as
    soon as there is room. `detail` goes into the error that ends it.
    """

    more: Callable[[], bool]
    detail: Callable[[], dict[str, Any]]


class Wait(Struct, frozen=True, kw_only=True):
    """A handler's way to wait; see `Parked`."""

    ready: Callable[[], bool]
    resume: Callable[[], Reply]
    timeout_ms: int | None
    expired: Callable[[], KbprocError]
    tail: Tail | None = None


class Parked(Struct, frozen=True, kw_only=True):
    """A request that waits: it holds no thread and no place until `ready` is true.

    `ready` is asked again whenever the store shows something new; it may emit
    progress, and raises KbprocError if waiting has become pointless.
    """

    ready: Callable[[], bool]
    resume: Callable[[], Answer | Parked]
    timeout_ms: int | None
    expired: Callable[[], KbprocError]
    tail: Tail | None = None

    def detail(self) -> dict[str, Any]:
        """Of the error that ends the waiting."""
        return {} if self.tail is None else self.tail.detail()


class Peer(Struct, frozen=True, kw_only=True):
    """Who is at the other end of a connection."""

    actor: str
    scopes: frozenset[str]
    cwd: Path
    root: Path | None
    kb: str
    surface: str = "serve"
    named: bool = False  # as an agent, which then must be there


Emit = Callable[[str, dict[str, Any]], None]


class Call:
    """One request on its way: who asks, what may be used, how to say something meanwhile."""

    def __init__(
        self,
        *,
        registry: Registry,
        host: Host,
        peer: Peer,
        open_store: Callable[[], Store],
        emit: Emit,
        now: str,
        cancelled: Callable[[], bool] = lambda: False,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self.registry = registry
        self.host = host
        self.peer = peer
        self.emit = emit
        self.now = now
        self.cancelled = cancelled
        self.settings = settings or {}
        # What the way to the client can take; whoever owns that way says so.
        self.crowded: Callable[[], bool] = lambda: False
        self.max_line_bytes = sys.maxsize
        self.agent: AgentRow | None = None
        self.scopes = peer.scopes
        self.sight: Sight | None = None
        self._open_store = open_store
        self._store: Store | None = None

    @property
    def store(self) -> Store:
        """As far as it may be seen. Raises what opening it raised."""
        if self._store is None:
            self._store = self._open_store()
        return self._store

    def bind(self, *, whole: bool) -> None:
        """Narrows scopes and store to those of the agent that asks, if it is one.

        `whole`: for a method that concerns the whole store, which no agent may call.
        Raises resource.not_found for an agent that is not there (any more).
        """
        from kbproc.sight import narrowed, require_agent, sight_of

        store = self.store
        self.agent = require_agent(store.published.roster, self.peer.actor, self.peer.named)
        if self.agent is not None and self.agent.scopes is not None:
            self.scopes = self.peer.scopes & set(self.agent.scopes)
        self.sight = None if whole else sight_of(self.agent, self.scopes)
        self._store = narrowed(store, self.sight)

    @contextlib.contextmanager
    def state(self, params: PastParams | PastListParams) -> Iterator[State]:
        """The store as the params mean it: now, or as it was. Raises input.invalid_params."""
        from kbproc.past import resolve
        from kbproc.sight import narrowed

        if params.as_of is None:
            yield self.store
            return
        seq, _ = resolve(self.store, params.as_of, self.now)
        with self.store.pasts.at(seq) as past:
            yield narrowed(past, self.sight)

    def moment(self, params: PastParams | PastListParams) -> str:
        """When the answer holds: now, or the moment that `as_of` means."""
        from kbproc.past import resolve

        return self.now if params.as_of is None else resolve(self.store, params.as_of, self.now)[1]

    def check_cancelled(self, **detail: Any) -> None:
        """Raises operation.cancelled; `detail` says what stays."""
        if self.cancelled():
            raise KbprocError(
                "operation.cancelled", "The client cancelled the request.", detail=detail
            )


def run(call: Call, name: str, raw: bytes | msgspec.Raw) -> Answer | Parked:
    """One request, from its raw params to its answer. Raises KbprocError."""
    found = call.registry.find(name)
    _check_scope(call, found)
    params = _with_kb(decode_params(found.params, raw), raw, call.peer.kb)
    if found.needs_store:
        call.bind(whole=found.whole)
    elif found.whole and "folder" not in call.settings:  # where no store is open yet
        _bind_if_open(call)
    _check_scope(call, found)
    if isinstance(params, ReadParams) and params.min_seq is not None and found.needs_store:
        wanted, timeout_ms = params.min_seq, params.timeout_ms
        if call.store.published.seq < wanted:
            return Parked(
                ready=lambda: call.store.published.seq >= wanted,
                resume=lambda: _finish(call, found, params),
                timeout_ms=timeout_ms,
                expired=lambda: _not_reached(call, wanted, timeout_ms),
            )
    return _finish(call, found, params)


def _with_kb(params: Params, raw: bytes | msgspec.Raw, kb: str) -> Params:
    """With the connection's knowledge base where the request named none and one must be."""
    if kb == DEFAULT_KB or getattr(params, "kb", None) != DEFAULT_KB:
        return params
    if "kb" in msgspec.json.decode(raw):
        return params
    return msgspec.structs.replace(params, kb=kb)


def _bind_if_open(call: Call) -> None:
    """A store that can't be opened has nothing to show to anybody."""
    try:
        call.bind(whole=True)
    except KbprocError as error:
        if not error.type.startswith("store."):
            raise


def _check_scope(call: Call, found: Method) -> None:
    if found.scope not in call.scopes:
        raise KbprocError(
            "auth.insufficient_scope",
            f"{found.name} needs the scope {found.scope}.",
            hint=_who_gives(call, found.scope),
            detail={"needed": found.scope, "scopes": sorted(call.scopes)},
        )
    if found.whole and call.agent is not None:
        raise KbprocError(
            "auth.insufficient_scope",
            f"{found.name} concerns the whole store, and agent {call.agent.slug} sees a part.",
            hint="Ask in a process that is bound to no agent.",
            detail={"agent": call.agent.slug},
        )


def _who_gives(call: Call, scope: str) -> str | None:
    """None: the usual hint, that the process was started without it."""
    if call.agent is None or scope not in call.peer.scopes:
        return None
    return f"Agent {call.agent.slug} lacks it; whoever looks after it can give it: agent.update."


def _finish(call: Call, found: Method, params: Params) -> Answer | Parked:
    started = call.host.monotonic_ms()
    reply = _handle(call, found, params)
    if isinstance(reply, Wait):
        return Parked(
            ready=reply.ready,
            resume=lambda: _answer(call, found, params, reply.resume(), started),
            timeout_ms=reply.timeout_ms,
            expired=reply.expired,
            tail=reply.tail,
        )
    return _answer(call, found, params, reply, started)


def _answer(call: Call, found: Method, params: Params, reply: Reply, started: float) -> Answer:
    fields = msgspec.structs.asdict(reply)
    data = fields.pop("data")
    fields = {name: value for name, value in fields.items() if value is not None}
    if "seq" not in fields:
        fields["seq"] = call.store.published.seq if found.needs_store else 0
    if isinstance(params, WriteParams) and params.dry_run:
        fields["dry_run"] = True
    took = round(call.host.monotonic_ms() - started, 3)
    return Answer(data=data, meta=Meta(schema=found.schema, took_ms=took, **fields))


def _handle(call: Call, found: Method, params: Params) -> Reply | Wait:
    if not isinstance(params, WriteParams):
        reply: Reply | Wait = found.handler(call, params)
        return reply
    if not params.dry_run and not found.elsewhere and call.store.read_only:
        raise refusal(call.store.origin)
    request = pipeline.Request(
        method=found.name,
        actor=call.peer.actor,
        params=params,
        destructive=found.kind == "destructive",
        now=call.now,
        sight=call.sight,
    )
    if found.long:
        write = pipeline.LongWrite(call.store, request)
        earlier = None if params.dry_run else write.earlier()
        done: Reply = _reply(earlier) if earlier else found.handler(call, params, write)
        return done
    return _reply(pipeline.write(call.store, request, found.handler(call, params)))


def _reply(outcome: pipeline.Outcome) -> Reply:
    return Reply(
        data=outcome.data,
        seq=outcome.seq,
        plan=outcome.plan,
        duplicate=outcome.duplicate or None,
    )


def _not_reached(call: Call, wanted: int, timeout_ms: int | None) -> KbprocError:
    return KbprocError(
        "operation.timeout",
        f"Position {wanted} was not reached"
        + ("." if timeout_ms is None else f" in {timeout_ms} ms."),
        seq=call.store.published.seq,
        field="$.params.min_seq",
    )
