"""Methods as data, and how one request becomes one answer.

Owns: the Method declaration, the explicit registry, decoding of params into
typed errors, scopes, waiting for a position, and the meta of every answer.
Refuses to know: pipes, flags, tools: surfaces read the declarations.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args, get_origin

import msgspec
from msgspec import UNSET, Struct, UnsetType

from kbproc import commit as pipeline
from kbproc.config import MAX_IN_FLIGHT, MAX_LINE_BYTES
from kbproc.errors import KbprocError, nearest
from kbproc.host import Host
from kbproc.model import Freshness, Params, Plan, ReadParams, WriteParams

if TYPE_CHECKING:
    from pathlib import Path

    from kbproc.store import Store

# What this version can do, for `init` and `describe`.
CAPABILITIES: dict[str, Any] = {
    "batch": True,
    "cancel": True,
    "streams": True,
    "dry_run": True,
    "confirm": True,
    "client_token": True,
    "modes": ["hybrid", "fts", "vector"],
    "fusion": ["blend", "rrf"],
    "max_line_bytes": MAX_LINE_BYTES,
    "max_in_flight": MAX_IN_FLIGHT,
}

_MOST_SHOWN = 100  # characters of what a client sent
_MOST_SAID = 500

Kind = Literal["read", "write", "destructive"]
F = TypeVar("F", bound=Callable[..., Any])


class Example(Struct, frozen=True, kw_only=True):
    """A request that a test runs; `exit` is what the shell ends with."""

    params: dict[str, Any]
    what: str
    exit: int = 0
    positional: bool = False


class Method(Struct, frozen=True, kw_only=True):
    """Everything there is to know of a method, in one place."""

    name: str
    params: type[Params]
    result: Any
    handler: Callable[..., Any]
    summary: str
    when_to_use: str
    kind: Kind
    streams: bool
    scope: str
    errors: tuple[str, ...]
    examples: tuple[Example, ...]
    alias: str | None
    positional: tuple[str, ...]
    needs_store: bool
    idempotent: bool

    @property
    def schema(self) -> str:
        """The name of its result schema."""
        return f"{self.name}/1"

    @property
    def long(self) -> bool:
        return self.streams and self.kind != "read"

    @property
    def all_errors(self) -> tuple[str, ...]:
        """Its own, and those that come with its kind."""
        common = ["input.invalid_params", "auth.insufficient_scope", "operation.cancelled",
                  "internal.error"]  # fmt: skip
        if self.needs_store:
            common += ["store.io", "store.corrupt", "operation.timeout"]
        if self.kind != "read":
            common += ["resource.conflict"]
        if self.kind == "destructive":
            common += ["input.confirmation_required", "resource.plan_stale"]
        return tuple(sorted({*common, *self.errors}))


def method(
    name: str,
    *,
    params: type[Params],
    result: Any,
    summary: str,
    when_to_use: str,
    examples: Iterable[Example],
    kind: Kind = "read",
    streams: bool = False,
    scope: str | None = None,
    errors: Iterable[str] = (),
    alias: str | None = None,
    positional: Iterable[str] = (),
    needs_store: bool = True,
    idempotent: bool | None = None,
) -> Callable[[F], F]:
    """Declares the function below it as the method's handler.

    A read's handler is `(call, params) -> Reply`; a short write's is
    `(call, params) -> Decide`: slow work happens there, outside the lane; a
    long write's is `(call, params, write) -> Reply`.
    """
    noun = name.split(".", maxsplit=1)[0]
    default_scope = f"{noun}:{'read' if kind == 'read' else 'write'}"
    declared = {
        "name": name,
        "params": params,
        "result": result,
        "summary": summary,
        "when_to_use": when_to_use,
        "kind": kind,
        "streams": streams,
        "scope": "admin" if kind == "destructive" else scope or default_scope,
        "errors": tuple(errors),
        "examples": tuple(examples),
        "alias": alias,
        "positional": tuple(positional),
        "needs_store": needs_store,
        "idempotent": kind == "read" if idempotent is None else idempotent,
    }

    def declare(handler: F) -> F:
        handler.method = Method(handler=handler, **declared)  # type: ignore[attr-defined]
        return handler

    return declare


class Registry:
    """The methods of one process, by name, in the order of their modules."""

    def __init__(self, methods: Iterable[Method]) -> None:
        self.methods: dict[str, Method] = {m.name: m for m in methods}

    @classmethod
    def of(cls, *modules: ModuleType) -> Registry:
        """Collects what the modules declare; importing them registers nothing."""
        return cls(
            value.method
            for module in modules
            for value in vars(module).values()
            if isinstance(getattr(value, "method", None), Method)
            and value.__module__ == module.__name__
        )

    def find(self, name: str) -> Method:
        """Raises input.unknown_method with the nearest names."""
        found = self.methods.get(name)
        if found is None:
            shown = name[:_MOST_SHOWN]
            near = nearest(shown, self.methods)
            raise KbprocError(
                "input.unknown_method",
                f"There is no method {shown!r}.",
                field="$.method",
                valid_values=near,
                hint=f"Did you mean {near[0]}? Call describe for the list of methods.",
            )
        return found

    @property
    def scopes(self) -> tuple[str, ...]:
        """Every scope there is."""
        return tuple(sorted({m.scope for m in self.methods.values()}))


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


class Wait(Struct, frozen=True, kw_only=True):
    """A handler's way to wait; see `Parked`."""

    ready: Callable[[], bool]
    resume: Callable[[], Reply]
    timeout_ms: int | None
    expired: Callable[[], KbprocError]


class Parked(Struct, frozen=True, kw_only=True):
    """A request that waits: it holds no thread and no place until `ready` is true.

    `ready` is asked again whenever the store shows something new; it may emit
    progress, and raises KbprocError if waiting has become pointless.
    """

    ready: Callable[[], bool]
    resume: Callable[[], Answer | Parked]
    timeout_ms: int | None
    expired: Callable[[], KbprocError]


class Peer(Struct, frozen=True, kw_only=True):
    """Who is at the other end of a connection."""

    actor: str
    scopes: frozenset[str]
    cwd: Path
    root: Path | None
    kb: str
    surface: str = "serve"


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
        self._open_store = open_store
        self._store: Store | None = None

    @property
    def store(self) -> Store:
        """Raises what opening it raised."""
        if self._store is None:
            self._store = self._open_store()
        return self._store

    def check_cancelled(self, **detail: Any) -> None:
        """Raises operation.cancelled; `detail` says what stays."""
        if self.cancelled():
            raise KbprocError(
                "operation.cancelled", "The client cancelled the request.", detail=detail
            )


_PATH = re.compile(r" - at `(?P<path>[^`]*)`$")
_UNKNOWN = re.compile(r"unknown field `(?P<name>[^`]*)`")
_NAMES = re.compile(r"\.(\w+)")
_MISSING = re.compile(r"missing required field `(?P<name>[^`]*)`")


def decode_params(params: type[Params], raw: bytes | msgspec.Raw) -> Params:
    """Raises input.invalid_params that names the field and the valid values."""
    try:
        return msgspec.json.decode(raw, type=params)
    except msgspec.ValidationError as error:
        raise _invalid(params, str(error)) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise KbprocError(
            "input.invalid_json",
            f"What params holds is not JSON: {why_not_json(error)}.",
            field="$.params",
        ) from None


def why_not_json(error: Exception) -> str:
    """What keeps bytes from being decoded, as the end of a sentence."""
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if isinstance(error, UnicodeDecodeError):
        return "it is not UTF-8"
    said = str(error).removeprefix("JSON is malformed: ")
    return said[:1].lower() + said[1:]


def _invalid(params: type[Params], message: str) -> KbprocError:
    found = _PATH.search(message)
    path = found["path"] if found else "$"
    field = "$.params" + path.removeprefix("$")
    said = message[: found.start()] if found else message
    valid: list[Any] | None = None
    if unknown := _UNKNOWN.search(said):
        name = unknown["name"][:_MOST_SHOWN]
        members = [m for s in _structs_in(_type_at(params, path)) for m in s.__struct_fields__]
        field += f".{name}"
        said = f"{field} is not a parameter of this method"
        valid = nearest(name, members)
    elif missing := _MISSING.search(said):
        field += f".{missing['name']}"
        said = f"{field} is required"
    else:
        valid = list(_literals_in(_type_at(params, path))) or None
        said = f"{field}: {said[:1].lower()}{said[1:_MOST_SAID]}"
    return KbprocError("input.invalid_params", f"{said}.", field=field, valid_values=valid)


def _type_at(annotation: Any, path: str) -> Any:
    """What is declared where a path such as `$.where.tags[0]` leads."""
    for name in _NAMES.findall(path):
        fields = [info for s in _structs_in(annotation) for info in msgspec.structs.fields(s)]
        annotation = next((info.type for info in fields if info.name == name), None)
    return annotation


def _structs_in(annotation: Any) -> Iterable[type[Struct]]:
    for part in _parts(annotation):
        if isinstance(part, type) and issubclass(part, Struct):
            yield part


def _literals_in(annotation: Any) -> Iterable[Any]:
    for part in _parts(annotation):
        if get_origin(part) is Literal:
            yield from get_args(part)


def _parts(annotation: Any) -> Iterable[Any]:
    yield annotation
    for inner in get_args(annotation):
        yield from _parts(inner)


def run(call: Call, name: str, raw: bytes | msgspec.Raw) -> Answer | Parked:
    """One request, from its raw params to its answer. Raises KbprocError."""
    found = call.registry.find(name)
    if found.scope not in call.peer.scopes:
        raise KbprocError(
            "auth.insufficient_scope",
            f"{name} needs the scope {found.scope}.",
            detail={"needed": found.scope, "scopes": sorted(call.peer.scopes)},
        )
    params = decode_params(found.params, raw)
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


def _finish(call: Call, found: Method, params: Params) -> Answer | Parked:
    started = call.host.monotonic_ms()
    reply = _handle(call, found, params)
    if isinstance(reply, Wait):
        return Parked(
            ready=reply.ready,
            resume=lambda: _answer(call, found, params, reply.resume(), started),
            timeout_ms=reply.timeout_ms,
            expired=reply.expired,
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
    request = pipeline.Request(
        method=found.name,
        actor=call.peer.actor,
        params=params,
        destructive=found.kind == "destructive",
        now=call.now,
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
