"""Writes the bundle and the index as TypeScript: a type for each schema, a table of methods."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

Schema = dict[str, Any]
_HEAD = """// Made by `make generate` from schemas/v1; change the methods' declarations instead.
import type { Ask } from "./call.js";
"""
_SIMPLE = {
    "string": "string",
    "integer": "number",
    "number": "number",
    "boolean": "boolean",
    "null": "null",
}
# Types of whole lines and answers, which the client reads and writes by the table of methods.
_LINES = ("Request", "Result", "ClientLine", "ServerLine", "Response", "Notification")
_ANY_OTHER = "(string & {})"  # so that editors still suggest the named values


def typescript(bundle: Schema, index: Schema) -> str:
    """Returns the whole module."""
    lines = [_HEAD]
    for name, schema in bundle["$defs"].items():
        if not name.endswith(_LINES):
            lines += [*_description(schema, ""), f"export {_declared(name, schema)}", ""]
    lines += [*_methods(index), "", *_api(index)]
    return "\n".join(lines) + "\n"


def _description(schema: Schema, indent: str) -> Iterator[str]:
    if text := schema.get("description"):
        yield f"{indent}/** {' '.join(text.split()).replace('*/', '*∕')} */"


def _declared(name: str, schema: Schema) -> str:
    if "properties" not in schema:
        return f"type {name} = {_type(schema, '')};"
    return f"interface {name} {_members(schema, '')}"


def _members(schema: Schema, indent: str) -> str:
    required, inner = schema.get("required", ()), f"{indent}  "
    lines: list[str] = []
    for name, part in schema["properties"].items():
        lines += _description(part, inner)
        key = name if name.isidentifier() else json.dumps(name)
        mark = "" if name in required else "?"
        lines.append(f"{inner}{key}{mark}: {_type(part, inner)};")
    return "\n".join(["{", *lines, f"{indent}}}"]) if lines else "{}"


def _type(schema: Schema, indent: str) -> str:
    kinds = schema.get("anyOf") or schema.get("oneOf")
    if "$ref" in schema:
        return str(schema["$ref"]).rsplit("/", 1)[1]
    if kinds:
        is_open = any("enum" in kind for kind in kinds)
        types = [
            _ANY_OTHER if is_open and kind == {"type": "string"} else _type(kind, indent)
            for kind in kinds
        ]
        return " | ".join(dict.fromkeys(types))
    if "const" in schema or "enum" in schema:
        return " | ".join(json.dumps(value) for value in schema.get("enum", [schema.get("const")]))
    if schema.get("type") == "array":
        return _list(schema, indent)
    if schema.get("type") == "object":
        return _object(schema, indent)
    return _SIMPLE.get(str(schema.get("type")), "unknown")


def _list(schema: Schema, indent: str) -> str:
    if "prefixItems" in schema:
        least = schema.get("minItems", 0)
        parts = enumerate(_type(part, indent) for part in schema["prefixItems"])
        return f"[{', '.join(part if at < least else f'({part})?' for at, part in parts)}]"
    item = _type(schema.get("items") or {}, indent)
    return f"({item})[]" if " " in item else f"{item}[]"


def _object(schema: Schema, indent: str) -> str:
    if "properties" in schema:
        return _members(schema, indent)
    values = schema.get("additionalProperties")
    return f"Record<string, {_type(values, indent) if isinstance(values, dict) else 'unknown'}>"


def _methods(index: Schema) -> Iterator[str]:
    yield "/** Each method's params, result data and stream items. */"
    yield "export interface Methods {"
    for name, method in index["methods"].items():
        item = method["item"]["type"] if "item" in method else "never"
        yield (
            f'  "{name}": {{ params: {method["params"]["type"]}; data: {method["data"]["type"]}; '
            f'item: {item}; kind: "{method["kind"]}" }};'
        )
    yield from ("}", "", "/** Facts about each method, for the client. */")
    yield "export const METHODS: { readonly [Name in keyof Methods]: {"
    yield '  readonly kind: "read" | "write" | "destructive";'
    yield "  readonly streams: boolean;"
    yield "  readonly answer: boolean;"
    yield "} } = {"
    for name, method in index["methods"].items():
        streams, answer = (json.dumps(method[member]) for member in ("streams", "from_log"))
        kind = method["kind"]
        yield f'  "{name}": {{ kind: "{kind}", streams: {streams}, answer: {answer} }},'
    yield "};"


def _api(index: Schema) -> Iterator[str]:
    """Yields the methods as they are called: `kb.search(…)`, `kb.doc.ingest(…)`."""
    nouns: dict[str, list[str]] = {}
    for name, method in index["methods"].items():
        noun, _, verb = name.rpartition(".")
        line = f'{verb}: Ask<"{name}">;'
        nouns.setdefault(noun, []).append(f"/** {method['summary']} */\n  {{}}{line}")
    yield from ("/** Every method under its name. */", "export interface Api {")
    for noun, lines in nouns.items():
        indent = "  " if noun else ""
        if noun:
            yield f"  {noun}: {{"
        for line in lines:
            yield f"  {indent}{line.format(indent)}"
        if noun:
            yield "  };"
    yield "}"
