"""How one request becomes one answer.

Owns: scopes, waiting for a position, running a handler by its kind.
Refuses to know: pipes, flags, tools, and what handlers do.
"""

from __future__ import annotations

import msgspec

from kbproc.base.errors import KbprocError
from kbproc.base.params import DestructiveParams, Params, ReadParams, WriteParams, decode_params
from kbproc.calls.call import Call
from kbproc.calls.method import Method
from kbproc.calls.reply import Answer, Meta, Parked, Reply, Wait
from kbproc.settings.config import DEFAULT_KB
from kbproc.store import decision, pipeline
from kbproc.store.folder import refusal


def run(call: Call, name: str, raw: bytes | msgspec.Raw) -> Answer | Parked:
    """One request, from its raw params to its answer. Raises KbprocError."""
    found = call.registry.find(name)
    _check_scope(call, found)
    params = _with_kb(decode_params(found.params, raw), raw, call.peer.kb)
    if found.needs_store:
        call.bind(whole=found.whole)
    elif found.whole and call.folder is None:
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
    request = decision.Request(
        method=found.name,
        actor=call.peer.actor,
        params=params,
        destructive=found.kind == "destructive",
        now=call.now,
        sight=call.sight,
    )
    if found.plan is None:
        return _reply(pipeline.write(call.store, request, found.handler(call, params)))
    if params.dry_run:
        return _reply(pipeline.preview(call.store, request, found.plan(call, params)))
    write = pipeline.LongWrite(call.store, request)
    if earlier := write.earlier():
        return _reply(earlier)
    if isinstance(params, DestructiveParams):
        write.approve(found.plan(call, params))
    done: Reply = found.handler(call, params, write)
    return done


def _reply(outcome: pipeline.Outcome) -> Reply:
    return Reply(
        data=outcome.data,
        seq=outcome.seq,
        plan=outcome.plan,
        hint=outcome.hint,
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
