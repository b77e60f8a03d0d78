"""Makes the JSON Schemas (2020-12) of all messages on the wire.

They are made from Params, Results, events and errors. The schema of an answer also has the members
that are always there, the bounds of numbers and times, and openness: a later version may add
members, and values to named ones.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import msgspec
from msgspec import UNSET, Struct, UnsetType, field

from kbproc.base.errors import ERRORS
from kbproc.base.params import structs_in
from kbproc.base.values import LEARNING, published
from kbproc.methods.calls.messages import PROCESS_EVENTS, STREAM_EVENTS, ErrorData
from kbproc.methods.calls.method import Method
from kbproc.methods.calls.reply import Meta

Schema = dict[str, Any]

# Only these members may hold numbers below 0: clients choose some, and JSON-RPC defines the codes.
_ANY_SIGN = frozenset({"request_id", "metadata", "code"})


def structs_within(annotation: Any) -> list[type[Struct]]:
    """Returns every Struct within a type."""
    visited: dict[type[Struct], None] = {}
    waiting = [annotation]
    while waiting:
        for struct in structs_in(waiting.pop()):
            if struct not in visited:
                visited[struct] = None
                waiting += [info.type for info in _members(struct)]
    return list(visited)


@functools.cache
def _members(struct: type[Struct]) -> tuple[msgspec.structs.FieldInfo, ...]:
    """Returns the members; cached, because reading annotations costs more than the rest of a
    schema.
    """
    return msgspec.structs.fields(struct)


def require_written(schema: Schema, struct: type[Struct]) -> None:
    """Adds, in place, the members that have a default and are written all the same."""
    if struct.__struct_config__.array_like:
        return
    always = set(_always_written(struct))
    for name in always:
        schema["properties"][name].pop("default", None)
    required = {*schema.get("required", ()), *always}
    schema["required"] = [name for name in schema["properties"] if name in required]


def _always_written(struct: type[Struct]) -> Iterator[str]:
    """Yields the members with defaults that are written; one that is unset never is."""
    if struct.__struct_config__.omit_defaults:
        return
    for info in _members(struct):
        if not info.required and info.default is not UNSET:
            yield info.encode_name


def as_answer(schema: Any, *, name: str = "") -> Any:
    """Returns an open copy with bounds and formats. `name`: the member that the schema
    describes.
    """
    if isinstance(schema, list):
        return [as_answer(part, name=name) for part in schema]
    if not isinstance(schema, dict):
        return schema
    copy = {key: _keyword(key, value, name) for key, value in schema.items()}
    if copy.get("additionalProperties") is False:
        del copy["additionalProperties"]
    if copy.get("type") == "integer" and name not in _ANY_SIGN:
        copy.setdefault("minimum", 0)
    if copy.get("type") == "string" and _is_time(name):
        copy["format"] = "date-time"
    return _opened(copy)


def _keyword(key: str, value: Any, name: str) -> Any:
    """Returns the value of one keyword of a schema."""
    if key in {"properties", "$defs"}:
        return {inner: as_answer(part, name=inner) for inner, part in value.items()}
    if key in {"required", "enum", "const", "default", "discriminator"}:
        return value
    return as_answer(value, name=name)


def _is_time(name: str) -> bool:
    return name == "ts" or name.endswith(("_at", "_ts"))


def _opened(schema: Schema) -> Schema:
    """Returns named values as those known today, or any other text; a single one stays as it is."""
    if "anyOf" in schema:
        kinds = [kind for part in schema["anyOf"] for kind in part.get("anyOf", [part])]
        return {**schema, "anyOf": kinds}
    values = schema.get("enum", [])
    if len(values) < 2 or not all(isinstance(value, str) for value in values):
        return schema
    rest = {key: value for key, value in schema.items() if key != "enum"}
    return {**rest, "anyOf": [{"enum": values}, {"type": "string"}]}


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
    """Returns a schema's name from `meta.schema`: `search/1` is search.result; error/1 is error."""
    noun = name.removesuffix("/1")
    return name if noun == name else noun if noun == "error" else f"{noun}.result"


def params_schema(method: Method) -> dict[str, Any]:
    (schema,), components = _schemas_of(method.params)
    return _complete(schema, components, title=f"{method.name} params")


def _answer_schema(annotation: Any, *, title: str) -> dict[str, Any]:
    """Returns the schema of an answer; a tuple of types means any of them."""
    kinds = annotation if isinstance(annotation, tuple) else (annotation,)
    structs = [struct for kind in kinds for struct in structs_within(kind)]
    schemas, components = _schemas_of(*kinds, *structs)
    for struct, reference in zip(structs, schemas[len(kinds) :], strict=True):
        require_written(components[_name_in(reference)], struct)
    schema = schemas[0] if len(kinds) == 1 else {"anyOf": schemas[: len(kinds)]}
    return as_answer(_complete(schema, components, title=title))  # type: ignore[no-any-return]


def _schemas_of(*kinds: Any) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Returns each type's schema; those of Structs are references to the definitions."""
    from inspect import cleandoc  # which few processes need, and msgspec before 0.23 does not call

    with LEARNING:
        schemas, components = msgspec.json.schema_components(kinds, ref_template="#/$defs/{name}")
    for schema in _objects_in([schemas, components]):
        if isinstance(schema.get("pattern"), str):  # a member may have that name, too
            schema["pattern"] = published(schema["pattern"])
        if isinstance(schema.get("description"), str):
            schema["description"] = cleandoc(schema["description"])
    return list(schemas), components


def _objects_in(value: Any) -> Iterator[dict[str, Any]]:
    """Yields every object in the value, itself included."""
    if isinstance(value, dict):
        yield value
        value = value.values()
    elif not isinstance(value, (list, tuple)):
        return
    for part in value:
        yield from _objects_in(part)


def _name_in(reference: dict[str, Any]) -> str:
    return str(reference["$ref"]).rsplit("/", 1)[1]


def _complete(schema: dict[str, Any], components: dict[str, Any], *, title: str) -> dict[str, Any]:
    """Returns a schema with its definitions, members in declared order."""
    if list(schema) == ["$ref"]:
        schema = components.pop(_name_in(schema))
    full = {"$schema": DIALECT, "title": title} | schema | {"title": title}
    return {**full, "$defs": components} if components else full


def result_schema(method: Method) -> dict[str, Any]:
    """Returns the schema of the whole `result`: `data` and `meta`; in a dry run `data` is null."""
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


def event_schema(name: str) -> dict[str, Any]:
    """Returns the schema of an event notification's `params`."""
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
    """Returns the schema of the JSON-RPC `error` member."""
    data = _answer_schema(ErrorData, title="error data")
    defs = data.pop("$defs", {})
    data.pop("$schema")
    data["properties"]["type"] = as_answer({"enum": list(ERRORS)})
    return {
        "$schema": DIALECT,
        "title": "error",
        "type": "object",
        "properties": {"code": {"type": "integer"}, "message": {"type": "string"}, "data": data},
        "required": ["code", "message", "data"],
        "$defs": defs,
    }


def all_schemas(methods: Iterable[Method]) -> dict[str, dict[str, Any]]:
    """Returns schema name → schema; files below schemas/v1 have these names."""
    return {name: make() for name, make in makers(methods).items()}


def makers(methods: Iterable[Method]) -> dict[str, Callable[[], dict[str, Any]]]:
    """Returns schema name → its maker, because making all takes a tenth of a second."""
    makers_by_name: dict[str, Callable[[], dict[str, Any]]] = {"error": error_schema}
    for name in {**PROCESS_EVENTS, **STREAM_EVENTS}:
        makers_by_name[f"event.{name}"] = partial(event_schema, name)
    for method in methods:
        makers_by_name[f"{method.name}.params"] = partial(params_schema, method)
        makers_by_name[f"{method.name}.result"] = partial(result_schema, method)
        if method.item is not None:
            makers_by_name[f"{method.name}.item"] = partial(
                _answer_schema, method.item, title=f"{method.name} item"
            )
    return makers_by_name
