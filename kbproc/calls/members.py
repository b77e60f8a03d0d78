"""The members of a method's result, in words: for the reference.

Owns: reading them from the result's schema, nested ones by their paths.
Refuses to know: how a schema is made, and Markdown.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from kbproc.calls.method import Method
from kbproc.calls.schemas.schema import result_schema

_DEEPEST = 3  # of paths such as `results[].source.title`
Schema = dict[str, Any]


class Member(NamedTuple):
    """`path` is empty for the result as a whole."""

    path: str
    type: str
    meaning: str


def forms(method: Method) -> list[list[Member]]:
    """Of each form that the result's data may have: it as a whole, then its members."""
    schema = result_schema(method)
    data, known = schema["properties"]["data"], schema.get("$defs", {})
    resolved, nullable = _resolved(data, known)
    if "anyOf" not in resolved:
        return [list(_members(data, known, "", 0))]
    found = [list(_members(form, known, "", 1)) for form in resolved["anyOf"]]  # in less detail
    whole = found[0][0]
    found[0][0] = whole._replace(type=whole.type + nullable)
    return found


def _members(schema: Schema, known: Schema, path: str, depth: int) -> Iterator[Member]:
    resolved, nullable = _resolved(schema, known)
    meaning = _meaning(schema, known) or _meaning(resolved, known)
    yield Member(path, _type(resolved, known) + nullable, meaning)
    if "items" in resolved:
        resolved, path = _resolved(resolved["items"], known)[0], f"{path}[]"
        if told := resolved.get("description"):
            yield Member(path, _type(resolved, known), " ".join(told.split()))
    if depth < _DEEPEST:
        for name, member in resolved.get("properties", {}).items():
            below = f"{path}.{name}" if path else name
            yield from _members(member, known, below, depth + 1)


def _meaning(schema: Schema, known: Schema) -> str:
    """What it says of itself, or what each of those says that it may be."""
    told = schema.get("description")
    if told is None and "anyOf" in schema:
        told = " Or: ".join(filter(None, (_meaning(k, known) for k in schema["anyOf"])))
    if not told and "$ref" in schema:
        told = _meaning(_resolved(schema, known)[0], known)
    return " ".join((told or "").split())


def _resolved(schema: Schema, known: Schema) -> tuple[Schema, str]:
    """Without a reference and without null; the latter is said behind the type."""
    kinds = schema.get("anyOf", [schema])
    left = [kind for kind in kinds if kind != {"type": "null"}]
    nullable = " or null" if len(left) < len(kinds) else ""
    if len(left) != 1:
        return {"anyOf": left}, nullable
    found = left[0]
    if "$ref" in found:
        found = {**known[found["$ref"].rsplit("/", 1)[1]]}
    if "anyOf" in found:
        return _resolved(found, known)
    return found, nullable


def _type(schema: Schema, known: Schema) -> str:
    if "anyOf" in schema:
        named = any("enum" in kind for kind in schema["anyOf"])  # then any text may come, too
        kinds = [kind for kind in schema["anyOf"] if not named or kind != {"type": "string"}]
        types = [_type(_resolved(kind, known)[0], known) for kind in kinds]
        return " or ".join(dict.fromkeys(types))
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if "const" in schema:
        return f"`{schema['const']}`"
    if schema.get("type") == "array":
        item = _resolved(schema["items"], known)[0] if schema.get("items") else {}
        return f"list of {_type(item, known)}s" if "type" in item else "list"
    return str(schema.get("type", "any"))
