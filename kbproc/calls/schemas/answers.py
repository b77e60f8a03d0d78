"""What the schemas of answers say beyond their types.

Owns: which members are always there, which numbers and times hold for every answer, and that
answers are open: a later version may add members, and values to those that are named.
Refuses to know: which schemas there are (schema.py), and params, which are closed.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import UNSET, Struct

from kbproc.base.params import structs_in

Schema = dict[str, Any]

# The only members whose numbers may be below 0: what clients have chosen, and JSON-RPC's codes.
_ANY_SIGN = frozenset({"request_id", "metadata", "code"})


def structs(annotation: Any) -> list[type[Struct]]:
    """Every Struct that is met within a type."""
    found: dict[type[Struct], None] = {}
    waiting = [annotation]
    while waiting:
        for struct in structs_in(waiting.pop()):
            if struct not in found:
                found[struct] = None
                waiting += [info.type for info in _members(struct)]
    return list(found)


@functools.cache
def _members(struct: type[Struct]) -> tuple[msgspec.structs.FieldInfo, ...]:
    """Kept: reading annotations costs more than all else that a schema needs."""
    return msgspec.structs.fields(struct)


def require(schema: Schema, struct: type[Struct]) -> None:
    """Adds, in place, the members that have a default and are written all the same."""
    if struct.__struct_config__.array_like:
        return
    always = set(_written(struct))
    for name in always:
        schema["properties"][name].pop("default", None)
    wanted = {*schema.get("required", ()), *always}
    schema["required"] = [name for name in schema["properties"] if name in wanted]


def _written(struct: type[Struct]) -> Iterator[str]:
    """Of members with defaults; one that is unset is never written."""
    if struct.__struct_config__.omit_defaults:
        return
    for info in _members(struct):
        if not info.required and info.default is not UNSET:
            yield info.encode_name


def told(schema: Any, *, name: str = "") -> Any:
    """A copy with bounds and formats, and open. `name`: of the member that it describes."""
    if isinstance(schema, list):
        return [told(part, name=name) for part in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: _told_of(key, value, name) for key, value in schema.items()}
    if made.get("additionalProperties") is False:
        del made["additionalProperties"]
    if made.get("type") == "integer" and name not in _ANY_SIGN:
        made.setdefault("minimum", 0)
    if made.get("type") == "string" and _is_time(name):
        made["format"] = "date-time"
    return _opened(made)


def _told_of(key: str, value: Any, name: str) -> Any:
    """What stands under one keyword of a schema."""
    if key in {"properties", "$defs"}:
        return {inner: told(part, name=inner) for inner, part in value.items()}
    if key in {"required", "enum", "const", "default", "discriminator"}:
        return value
    return told(value, name=name)


def _is_time(name: str) -> bool:
    return name == "ts" or name.endswith(("_at", "_ts"))


def _opened(schema: Schema) -> Schema:
    """Named values become those known today, and any other text; a single one is what it is."""
    if "anyOf" in schema:
        kinds = [kind for part in schema["anyOf"] for kind in part.get("anyOf", [part])]
        return {**schema, "anyOf": kinds}
    values = schema.get("enum", [])
    if len(values) < 2 or not all(isinstance(value, str) for value in values):
        return schema
    rest = {key: value for key, value in schema.items() if key != "enum"}
    return {**rest, "anyOf": [{"enum": values}, {"type": "string"}]}
