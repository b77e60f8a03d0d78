"""Runs one request to its answer.

It checks scopes, waits for a position, runs the handler by its kind, and makes the dry run and the
approval of a long write.
"""

from __future__ import annotations

import contextlib
import logging
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec
from msgspec import UNSET, Struct

from kbproc.base import paths
from kbproc.base.errors import KbprocError
from kbproc.base.params import (
    DestructiveParams,
    LeanParams,
    Params,
    ReadParams,
    WriteParams,
    decode_params,
)
from kbproc.base.settings.config import DEFAULT_ACTOR, DEFAULT_KB
from kbproc.methods.calls.reply import (
    Answer,
    Entered,
    Meta,
    Parked,
    Partial,
    Reply,
    Wait,
    check_fields,
    is_lean,
    lean,
)

if TYPE_CHECKING:
    from kbproc.engine.store.decision import PartialSuccess
    from kbproc.engine.store.pipeline import LongWrite, Outcome
    from kbproc.methods.calls.call import Call
    from kbproc.methods.calls.method import Method

S = TypeVar("S", bound=Struct)
_logger = logging.getLogger(__name__)


def run(call: Call, name: str, raw: bytes | msgspec.Raw) -> Answer | Parked | Entered:
    """Runs one request from its raw params to its answer. Raises KbprocError."""
    method = call.registry.find(name)
    _check_scope(call, method, own=call.peer.actor != DEFAULT_ACTOR)
    params = _with_kb(decode_params(method.decoder, raw), raw, call.peer.kb)
    params = _located(params, call.peer.cwd)
    check_fields(params, method.result)
    _bind(call, method)
    # An agent may hold fewer scopes than its process.
    _check_scope(call, method, own=call.agent is not None)
    if isinstance(params, ReadParams) and params.min_seq is not None and method.needs_store:
        return _when_reached(call, method, params, params.min_seq)
    if isinstance(params, WriteParams):
        return _write(call, method, params)
    return _read(call, method, params)


def _with_kb(params: Params, raw: bytes | msgspec.Raw, kb: str) -> Params:
    """Returns params with the connection's knowledge base if the request names none but needs
    one.
    """
    if kb == DEFAULT_KB or getattr(params, "kb", None) != DEFAULT_KB:
        return params
    if "kb" in msgspec.json.decode(raw):
        return params
    return msgspec.structs.replace(params, kb=kb)


def _located(params: S, folder: Path) -> S:
    """Returns params with a relative path prefix made absolute from the caller's folder."""
    prefix = getattr(params, "path_prefix", None)
    with contextlib.suppress(ValueError):
        prefix = None if prefix is None else paths.from_uri(prefix)
    if prefix is not None and not prefix.startswith(("/", "~")):
        prefix = paths.printable(folder / prefix)
    if prefix is not None:
        params = msgspec.structs.replace(params, path_prefix=prefix)
    if isinstance(where := getattr(params, "where", None), Struct):
        params = msgspec.structs.replace(params, where=_located(where, folder))
    return params


def _bind(call: Call, method: Method) -> None:
    """Narrows the call to the caller's agent, if an open store knows it."""
    if method.needs_store:
        call.bind(whole=method.whole)
        return
    if not method.whole or call.folder is not None:  # a command has not opened the store yet
        return
    try:
        call.bind(whole=True)
    except KbprocError as error:
        if not error.type.startswith("store."):
            raise


def _check_scope(call: Call, method: Method, *, own: bool) -> None:
    """Raises auth.insufficient_scope; `own`: the caller is, or may be, an agent with its own
    things.
    """
    if method.whole and call.agent is not None:
        raise KbprocError(
            "auth.insufficient_scope",
            f"{method.name} concerns the whole store, and agent {call.agent.slug} sees a part.",
            hint="Ask in a process that is bound to no agent.",
            detail={"agent": call.agent.slug},
        )
    enough = {method.scope, method.own_scope} if own else {method.scope}
    missing = None if enough & call.scopes else method.scope
    if missing is None and method.also_needs not in {None, *call.scopes}:
        missing = method.also_needs
    if missing is not None:
        raise KbprocError(
            "auth.insufficient_scope",
            f"{method.name} needs the scope {missing}.",
            hint=who_gives(call, missing),
            detail={"needed": missing, "scopes": sorted(call.scopes)},
        )


def check_person(call: Call) -> None:
    """Raises auth.insufficient_scope for an agent's program, which decides on no plan."""
    if call.peer.surface == "mcp":
        raise KbprocError(
            "auth.insufficient_scope",
            "A person decides on plans, not the program of an agent.",
            hint="The person opens the page (kbproc open), or uses kbproc plan in a shell.",
        )


def who_gives(call: Call, scope: str) -> str | None:
    """Returns how a person gives the caller a scope; None for the error's usual hint."""
    if call.agent is not None and scope in call.peer.scopes:
        slug = call.agent.slug
        return f"Agent {slug} lacks it; the person who looks after it can give it: agent.update."
    if call.peer.surface == "mcp":
        return f"A person can add it where kbproc mcp is started: kbproc mcp --scopes +{scope}."
    if call.peer.surface == "serve":
        return f"The person who starts kbproc serve can add {scope} to its --scopes."
    return None


def _when_reached(call: Call, method: Method, params: ReadParams, position: int) -> Answer | Parked:
    """Reads as soon as the position is visible."""

    def ready() -> bool:
        return call.store.published.seq >= position

    def expired() -> KbprocError:
        given_up = "." if params.timeout_ms is None else f" in {params.timeout_ms} ms."
        return KbprocError(
            "operation.timeout",
            f"Position {position} was not reached{given_up}",
            seq=call.store.published.seq,
            field="$.params.min_seq",
        )

    if ready():
        return _read(call, method, params)
    return Parked(
        ready=ready,
        resume=lambda: _read(call, method, params),
        timeout_ms=params.timeout_ms,
        expired=expired,
    )


def _read(call: Call, method: Method, params: Params) -> Answer | Parked:
    started = call.host.monotonic_ms()
    return _answered(call, method, params, method.handler(call, params), started)


def _answered(
    call: Call, method: Method, params: Params, reply: Reply | Wait, started: float
) -> Answer | Parked:
    if isinstance(reply, Reply):
        return _with_meta(call, method, params, reply, started)
    return Parked(
        ready=reply.ready,
        resume=lambda: _with_meta(call, method, params, reply.resume(), started),
        timeout_ms=reply.timeout_ms,
        expired=reply.expired,
        tail=reply.tail,
        cancel=reply.cancel,
        lasts=reply.lasts,
    )


def _with_meta(call: Call, method: Method, params: Params, reply: Reply, started: float) -> Answer:
    fields = msgspec.structs.asdict(reply)
    data = fields.pop("data")
    fields = {name: value for name, value in fields.items() if value is not None}
    if "seq" not in fields:
        fields["seq"] = call.store.published.seq if method.needs_store else 0
    if isinstance(params, WriteParams) and params.dry_run:
        fields["dry_run"] = True
    if method.needs_store and (warnings := call.library.store.warnings()):
        fields["notice"] = [*fields.get("notice", []), *warnings]
    if isinstance(params, LeanParams) and is_lean(params):
        data, fields["lean"] = lean(params, data), True
    took = round(call.host.monotonic_ms() - started, 3)
    _logger.debug("%s answered in %s ms at position %s", method.name, took, fields["seq"])
    return Answer(data=data, meta=Meta(schema=method.schema, took_ms=took, **fields))


def _write(call: Call, method: Method, params: WriteParams) -> Answer | Parked | Entered:
    from kbproc.engine.store import pipeline  # not above: a read needs none of it
    from kbproc.engine.store.decision import WriteRequest

    started = call.host.monotonic_ms()
    if not params.dry_run and not method.elsewhere:
        call.library.store.check_writable(look=False)
    request = WriteRequest(
        method=method.name,
        actor=call.peer.actor,
        params=params,
        destructive=method.kind == "destructive",
        is_final=method.undone_by == (),
        now=call.now,
        sight=call.review_sight,
        origin=call.origin,
        begin=call.begin_turn,
        approved_by=call.approved_by,
    )
    if method.plan is None:
        outcome = pipeline.enter(call.store, request, method.handler(call, params))

        def end() -> Answer:
            return _with_meta(call, method, params, reply_of(outcome()), started)

        # An agent's sight depends on the outcome of its earlier writes.
        may_wait = call.gathers and call.sight is None and not method.streams
        return Entered(end=end) if may_wait else end()
    if params.dry_run:
        plan = pipeline.preview(call.store, request, method.plan(call, params))
        return _with_meta(call, method, params, reply_of(plan), started)
    reply = _long(call, method, params, pipeline.LongWrite(call.store, request))
    return _answered(call, method, params, reply, started)


def _long(call: Call, method: Method, params: WriteParams, write: LongWrite) -> Reply | Wait:
    """Runs a write of several records; its destructive part is approved before it begins."""
    if not method.from_log and (earlier := write.earlier()):
        return reply_of(earlier)
    if isinstance(params, DestructiveParams) and method.plan is not None:
        write.approve(method.plan(call, params))
    reply: Reply | Wait = method.handler(call, params, write)
    return reply


def reply_of(outcome: Outcome) -> Reply:
    return Reply(
        data=outcome.data,
        seq=outcome.seq,
        plan=outcome.plan,
        hint=outcome.hint,
        duplicate=outcome.duplicate or None,
        partial=None if outcome.partial is None else _partial(outcome.partial),
    )


def _partial(partial: PartialSuccess) -> Partial:
    first = UNSET if partial.first is None else partial.first
    return Partial(message=partial.message, first=first)
