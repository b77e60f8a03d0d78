"""JSON Schemas of everything that crosses the wire.

Owns: how a method's Params and Result, the events and the error become JSON
Schema 2020-12, and their names.
Refuses to know: where the generated files lie, pipes, and what is checked when (check.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import msgspec
from msgspec import UNSET, Struct, UnsetType, field

from kbproc.base.errors import ERRORS
from kbproc.base.values import LEARNING, published
from kbproc.calls.method import Method
from kbproc.calls.reply import Meta
from kbproc.calls.schemas import answers
from kbproc.calls.schemas.messages import PROCESS_EVENTS, STREAM_EVENTS, ErrorData

DIALECT = "https://json-schema.org/draft/2020-12/schema"


class JsonSchema(Struct, kw_only=True, frozen=True, omit_defaults=True):
    """A JSON Schema of draft 2020-12, which needs no other one."""

    dialect: str = field(name="$schema")
    title: str
    description: str | UnsetType = UNSET
    type: str | UnsetType = UNSET
    properties: dict[str, Any] | UnsetType = UNSET
    required: list[str] | UnsetType = UNSET
    any_of: list[Any] | UnsetType = field(name="anyOf", default=UNSET)
    additional: bool | dict[str, Any] | UnsetType = field(
        name="additionalProperties", default=UNSET
    )
    discriminator: dict[str, Any] | UnsetType = UNSET
    definitions: dict[str, Any] | UnsetType = field(name="$defs", default=UNSET)


def named_in_meta(name: str) -> str:
    """`search/1`, as `meta.schema` says it, is the schema search.result; error/1 is error."""
    noun = name.removesuffix("/1")
    return name if noun == name else noun if noun == "error" else f"{noun}.result"


def params_schema(method: Method) -> dict[str, Any]:
    (schema,), components = _learnt(method.params)
    return _whole(schema, components, title=f"{method.name} params")


def _answer_schema(annotation: Any, *, title: str) -> dict[str, Any]:
    """Of what is answered. A tuple of types: of whatever has one of them."""
    kinds = annotation if isinstance(annotation, tuple) else (annotation,)
    structs = [struct for kind in kinds for struct in answers.structs(kind)]
    found, components = _learnt(*kinds, *structs)
    for struct, reference in zip(structs, found[len(kinds) :], strict=True):
        answers.require(components[_name_in(reference)], struct)
    schema = found[0] if len(kinds) == 1 else {"anyOf": found[: len(kinds)]}
    return answers.told(_whole(schema, components, title=title))  # type: ignore[no-any-return]


def _learnt(*kinds: Any) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Each type's schema; those of Structs are references to the definitions."""
    with LEARNING:
        found, components = msgspec.json.schema_components(kinds, ref_template="#/$defs/{name}")
    for schema in _within([found, components]):
        if isinstance(schema.get("pattern"), str):  # else a member that is called so
            schema["pattern"] = published(schema["pattern"])
    return list(found), components


def _within(value: Any) -> Iterator[dict[str, Any]]:
    """Every object in it, itself included."""
    if isinstance(value, dict):
        yield value
        value = value.values()
    elif not isinstance(value, (list, tuple)):
        return
    for part in value:
        yield from _within(part)


def _name_in(reference: dict[str, Any]) -> str:
    return str(reference["$ref"]).rsplit("/", 1)[1]


def _whole(schema: dict[str, Any], components: dict[str, Any], *, title: str) -> dict[str, Any]:
    """Self-contained, members in declared order."""
    if list(schema) == ["$ref"]:
        schema = components.pop(_name_in(schema))
    full = {"$schema": DIALECT, "title": title} | schema | {"title": title}
    return {**full, "$defs": components} if components else full


def result_schema(method: Method) -> dict[str, Any]:
    """The whole `result` member: `data` and `meta`; in a dry run `data` is null."""
    data = _answer_schema(method.result, title=f"{method.name} data")
    meta = _answer_schema(Meta, title="meta")
    defs = {**meta.pop("$defs", {}), **data.pop("$defs", {})}
    for part in (data, meta):
        part.pop("$schema")
    meta["properties"]["schema"] = {"const": method.schema}
    nullable = _nullable(data) if method.kind != "read" else data
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


def _nullable(schema: dict[str, Any]) -> dict[str, Any]:
    if "anyOf" in schema:
        return {**schema, "anyOf": [*schema["anyOf"], {"type": "null"}]}
    return {"anyOf": [schema, {"type": "null"}]}


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
    schemas = [_answer_schema(kind, title=f"{kind.__name__} event") for kind in kinds]
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
    data = _answer_schema(ErrorData, title="error data")
    defs = data.pop("$defs", {})
    data.pop("$schema")
    data["properties"]["type"] = answers.told({"enum": list(ERRORS)})
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
    return {name: make() for name, make in makers(methods).items()}


def makers(methods: Iterable[Method]) -> dict[str, Callable[[], dict[str, Any]]]:
    """Schema name → what makes it: all of them take a tenth of a second."""
    found: dict[str, Callable[[], dict[str, Any]]] = {"error": error_schema}
    for name in {**PROCESS_EVENTS, **STREAM_EVENTS}:
        found[f"event.{name}"] = partial(event_schema, name)
    for method in methods:
        found[f"{method.name}.params"] = partial(params_schema, method)
        found[f"{method.name}.result"] = partial(result_schema, method)
        if method.item is not None:
            found[f"{method.name}.item"] = partial(
                _answer_schema, method.item, title=f"{method.name} item"
            )
    return found
