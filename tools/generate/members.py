"""Reads the members of a method's result from its schema, for the reference."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from kbproc.methods.calls.method import Method
from kbproc.methods.calls.schemas import result_schema

_DEEPEST = 3  # steps of paths such as `results[].source.title`
Schema = dict[str, Any]


class Member(NamedTuple):
    """A member of a result; `path` is empty for the result as a whole."""

    path: str
    type: str
    meaning: str


def forms(method: Method) -> list[list[Member]]:
    """Returns the members of each form of the result's data; the first one is the whole form."""
    schema = result_schema(method)
    data, definitions = schema["properties"]["data"], schema.get("$defs", {})
    resolved, nullable = _resolved(data, definitions)
    if "anyOf" not in resolved:
        return [list(_members(data, definitions, "", 0))]
    variants = [list(_members(form, definitions, "", 1)) for form in resolved["anyOf"]]
    whole = variants[0][0]
    variants[0][0] = whole._replace(type=whole.type + nullable)
    return variants


def _members(schema: Schema, definitions: Schema, path: str, depth: int) -> Iterator[Member]:
    resolved, nullable = _resolved(schema, definitions)
    meaning = _meaning(schema, definitions) or _meaning(resolved, definitions)
    yield Member(path, _type(resolved, definitions) + nullable, meaning)
    if "items" in resolved:
        resolved, path = _resolved(resolved["items"], definitions)[0], f"{path}[]"
        if description := resolved.get("description"):
            yield Member(path, _type(resolved, definitions), " ".join(description.split()))
    if depth < _DEEPEST:
        for name, member in resolved.get("properties", {}).items():
            below = f"{path}.{name}" if path else name
            yield from _members(member, definitions, below, depth + 1)


def _meaning(schema: Schema, definitions: Schema) -> str:
    """Returns the schema's description, or those of its variants."""
    description = schema.get("description")
    if description is None and "anyOf" in schema:
        description = " Or: ".join(
            filter(None, (_meaning(k, definitions) for k in schema["anyOf"]))
        )
    if not description and "$ref" in schema:
        description = _meaning(_resolved(schema, definitions)[0], definitions)
    return " ".join((description or "").split())


def _resolved(schema: Schema, definitions: Schema) -> tuple[Schema, str]:
    """Returns the schema without reference and null, and " or null" if it had one."""
    kinds = schema.get("anyOf", [schema])
    remaining = [kind for kind in kinds if kind != {"type": "null"}]
    nullable = " or null" if len(remaining) < len(kinds) else ""
    if len(remaining) != 1:
        return {"anyOf": remaining}, nullable
    target = remaining[0]
    if "$ref" in target:
        target = {**definitions[target["$ref"].rsplit("/", 1)[1]]}
    if "anyOf" in target:
        return _resolved(target, definitions)
    return target, nullable


def _type(schema: Schema, definitions: Schema) -> str:
    if "anyOf" in schema:
        named = any("enum" in kind for kind in schema["anyOf"])  # then any other text may come, too
        kinds = [kind for kind in schema["anyOf"] if not named or kind != {"type": "string"}]
        types = [_type(_resolved(kind, definitions)[0], definitions) for kind in kinds]
        return " or ".join(dict.fromkeys(types))
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if "const" in schema:
        return f"`{schema['const']}`"
    if schema.get("type") == "array":
        item = _resolved(schema["items"], definitions)[0] if schema.get("items") else {}
        return f"list of {_type(item, definitions)}s" if "type" in item else "list"
    return str(schema.get("type", "any"))
