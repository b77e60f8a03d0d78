"""JSON Schemas of everything that crosses the wire, and the check against them.

Owns: how a method's Params and Result, the events and the error become JSON
Schema 2020-12; the validator that every outgoing message passes.
Refuses to know: where the generated files lie, and pipes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any, Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType

from kbproc.base.errors import ERRORS
from kbproc.base.values import LEARNING
from kbproc.calls.method import Method
from kbproc.calls.reply import Meta
from kbproc.store.plan import Plan
from kbproc.store.state import Freshness

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def named_in_meta(name: str) -> str:
    """`search/1`, as `meta.schema` says it, is the schema search.result; error/1 is error."""
    noun = name.removesuffix("/1")
    return name if noun == name else noun if noun == "error" else f"{noun}.result"


class ErrorRisk(Struct, kw_only=True, frozen=True):
    level: str
    action: str


class ErrorRetry(Struct, kw_only=True, frozen=True, omit_defaults=True):
    method: str
    params: dict[str, Any]
    argv: list[str] | UnsetType = UNSET


class ErrorData(Struct, kw_only=True, frozen=True, omit_defaults=True):
    """`error.data`: what an agent decides by."""

    schema: str
    type: str
    message: str
    exit_code: int
    retryable: bool | None
    hint: str
    doc_url: str
    detail: dict[str, Any]
    retry: ErrorRetry | UnsetType = UNSET
    retry_after_ms: int | UnsetType = UNSET
    field: str | UnsetType = UNSET
    valid_values: list[Any] | UnsetType = UNSET
    risk: ErrorRisk | UnsetType = UNSET
    plan: Plan | UnsetType = UNSET
    seq: int | UnsetType = UNSET


class Server(Struct, kw_only=True, frozen=True):
    name: str
    version: str


class Capabilities(Struct, kw_only=True, frozen=True):
    """What this version can do; `max_line_bytes` and `max_in_flight` are what it does unasked."""

    batch: bool
    cancel: bool
    streams: bool
    dry_run: bool
    confirm: bool
    client_token: bool
    modes: list[str]
    fusion: list[str]
    max_line_bytes: int
    max_in_flight: int


class ProcessInit(Struct, kw_only=True, frozen=True, tag="init"):
    """The first line of a process."""

    protocol: str
    server: Server
    store: str
    actor: str
    scopes: list[str]
    capabilities: Capabilities


class Ready(Struct, kw_only=True, frozen=True, omit_defaults=True, tag="ready"):
    """The store is open; what was sent before is answered now.

    `agent` and `scopes`: to a process bound to an agent, and what both allow it.
    """

    seq: int
    freshness: Freshness
    agent: str | UnsetType = UNSET
    scopes: list[str] | UnsetType = UNSET


class Failed(Struct, kw_only=True, frozen=True, tag="error"):
    """The store could not be opened; methods that need none still answer."""

    error: ErrorData


class StreamInit(Struct, kw_only=True, frozen=True, tag="init"):
    """First of a stream."""

    request_id: int | str
    index: int


class Progress(Struct, kw_only=True, frozen=True, tag="progress", omit_defaults=True):
    request_id: int | str
    index: int
    stage: str
    current: int
    total: int | None
    percent: float | None
    eta_ms: int | None
    message: str


class Item(Struct, kw_only=True, frozen=True, tag="item"):
    """One finding of a stream, as it is found: see the schema METHOD.item."""

    request_id: int | str
    index: int
    item: dict[str, Any]


class Warned(Struct, kw_only=True, frozen=True, tag="warning"):
    request_id: int | str
    index: int
    message: str


PROCESS_EVENTS: dict[str, type] = {"init": ProcessInit, "ready": Ready, "error": Failed}
STREAM_EVENTS: dict[str, type] = {
    "init": StreamInit,
    "progress": Progress,
    "item": Item,
    "warning": Warned,
}


def of_type(annotation: Any, *, title: str) -> dict[str, Any]:
    """The JSON Schema of a type, self-contained, members in declared order."""
    with LEARNING:
        (schema,), components = msgspec.json.schema_components(
            [annotation], ref_template="#/$defs/{name}"
        )
    if list(schema) == ["$ref"]:
        schema = components.pop(schema["$ref"].rsplit("/", 1)[1])
    full: dict[str, Any] = {"$schema": DIALECT, "title": title, **schema, "title ": None}
    del full["title "]
    full["title"] = title
    if components:
        full["$defs"] = components
    return full


def params_schema(method: Method) -> dict[str, Any]:
    return of_type(method.params, title=f"{method.name} params")


def result_schema(method: Method) -> dict[str, Any]:
    """The whole `result` member: `data` and `meta`; in a dry run `data` is null."""
    data = of_type(method.result, title=f"{method.name} data")
    meta = of_type(Meta, title="meta")
    defs = {**meta.pop("$defs", {}), **data.pop("$defs", {})}
    for part in (data, meta):
        part.pop("$schema")
    meta["properties"]["schema"] = {"const": method.schema}
    nullable = {"anyOf": [data, {"type": "null"}]} if method.kind != "read" else data
    full: dict[str, Any] = {
        "$schema": DIALECT,
        "title": f"{method.name} result",
        "type": "object",
        "properties": {"data": nullable, "meta": meta},
        "required": ["data", "meta"],
    }
    if defs:
        full["$defs"] = defs
    return full


def lean_schema(method: Method) -> dict[str, Any]:
    """Of a result from which the caller has left out members: none of `data` must be there."""
    full = result_schema(method)
    meta = full["properties"]["meta"]
    bare: dict[str, Any] = _without_required(full)
    bare["properties"]["meta"] = meta
    return bare


def _without_required(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_without_required(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        name: _without_required(part)
        for name, part in schema.items()
        if name != "required" or not isinstance(part, list)
    }


def event_schema(name: str) -> dict[str, Any]:
    """The `params` of an event notification."""
    kinds = [kinds[name] for kinds in (PROCESS_EVENTS, STREAM_EVENTS) if name in kinds]
    schemas = [of_type(kind, title=f"{kind.__name__} event") for kind in kinds]
    if len(schemas) == 1:
        return schemas[0]
    defs: dict[str, Any] = {}
    for schema in schemas:
        schema.pop("$schema")
        defs |= schema.pop("$defs", {})
    full: dict[str, Any] = {"$schema": DIALECT, "title": f"{name} event", "anyOf": schemas}
    return {**full, "$defs": defs} if defs else full


def error_schema() -> dict[str, Any]:
    """The JSON-RPC `error` member."""
    data = of_type(ErrorData, title="error data")
    defs = data.pop("$defs", {})
    data.pop("$schema")
    data["properties"]["type"] = {"enum": list(ERRORS)}
    return {
        "$schema": DIALECT,
        "title": "error",
        "type": "object",
        "properties": {"code": {"type": "integer"}, "message": {"type": "string"}, "data": data},
        "required": ["code", "message", "data"],
        "$defs": defs,
    }


def all_schemas(methods: Iterable[Method]) -> dict[str, dict[str, Any]]:
    """Schema name → schema; the name is its file's, below schemas/v1."""
    found: dict[str, dict[str, Any]] = {"error": error_schema()}
    for name in {**PROCESS_EVENTS, **STREAM_EVENTS}:
        found[f"event.{name}"] = event_schema(name)
    for method in methods:
        found[f"{method.name}.params"] = params_schema(method)
        found[f"{method.name}.result"] = result_schema(method)
        if method.item is not None:
            found[f"{method.name}.item"] = of_type(method.item, title=f"{method.name} item")
    return found


class Checker:
    """Validates what goes out; a validator is compiled when first needed."""

    def __init__(self) -> None:
        self._results: dict[tuple[str, bool], Any] = {}

    def result(self, method: Method, value: Any) -> str | None:
        """None, or where and how `value` breaks its schema."""
        lean = bool(value.get("meta", {}).get("lean"))
        validator = self._results.get((method.name, lean))
        if validator is None:
            make = lean_schema if lean else result_schema
            validator = self._results[method.name, lean] = _compile(lambda: make(method))
        return _complaint(validator, value)

    def event(self, name: str, value: Any) -> str | None:
        return _complaint(_event_validator(name), value)

    def error(self, value: Any) -> str | None:
        return _complaint(_error_validator(), value)


def _complaint(validator: Any, value: Any) -> str | None:
    if validator.is_valid(value):
        return None
    error = next(iter(validator.iter_errors(value)))
    where = "/".join(str(step) for step in error.schema_path)
    return f"{where}: {error.message[:300]}"


@functools.cache
def _event_validator(name: str) -> Any:
    return _compile(lambda: event_schema(name))


@functools.cache
def _error_validator() -> Any:
    return _compile(error_schema)


def _compile(make: Callable[[], dict[str, Any]]) -> Any:
    import jsonschema_rs

    return jsonschema_rs.validator_for(make())


EventName = Literal["init", "ready", "error", "progress", "item", "warning"]
