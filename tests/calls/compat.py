"""Finds changes to the schemas that break existing clients.

The baseline holds every schema as last released. `python -m tests.calls.compat` adds
what is new to it, and refuses if a change breaks clients.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kbproc.methods.all import registry
from kbproc.methods.calls.schemas import all_schemas

BASELINE = Path(__file__).with_name("schemas_v1.json")
Schema = dict[str, Any]
_ANOTHER_KIND = "{} has not the same kinds: breaks {}"


def breaks(old: dict[str, Schema], new: dict[str, Schema]) -> list[str]:
    """Returns a sentence for each change that breaks an existing client."""
    messages = [f"{name} is gone: clients that use it break" for name in old if name not in new]
    for name, schema in old.items():
        if name in new:
            who = "callers" if name.endswith(".params") else "readers"
            messages += _compare(name, schema, new[name], schema, new[name], who)
    asked_for = {
        _ANOTHER_KIND.format(f"{name}.result.data", "readers") for name in _grown(old, new)
    }
    return [message for message in messages if message not in asked_for]


def _grown(old: dict[str, Schema], new: dict[str, Schema]) -> Iterator[str]:
    """Yields methods with new params: a caller that sends one knows the new answer."""
    for name, schema in old.items():
        method, _, part = name.rpartition(".")
        now = new.get(name, {}).get("properties", {})
        if part == "params" and now.keys() - schema.get("properties", {}).keys():
            yield method


def _compare(
    path: str, old: Any, new: Any, old_root: Schema, new_root: Schema, who: str
) -> Iterator[str]:
    old, new = _resolved(old, old_root), _resolved(new, new_root)
    if not isinstance(old, dict) or not isinstance(new, dict):
        return
    yield from _types(path, old, new, who)
    yield from _members(path, old, new, old_root, new_root, who)
    yield from _values(path, old, new, who)
    yield from _limits(path, old, new, who)
    yield from _openness(path, old, new, who)
    for name, below in (("items", "[]"), ("additionalProperties", "{}")):
        before, after = old.get(name), new.get(name)
        if isinstance(before, dict) and isinstance(after, dict):
            yield from _compare(f"{path}{below}", before, after, old_root, new_root, who)
    yield from _alternatives(path, old, new, old_root, new_root, who)


def _alternatives(
    path: str, old: Schema, new: Schema, old_root: Schema, new_root: Schema, who: str
) -> Iterator[str]:
    """Yields changes that give readers an unknown kind, or refuse a kind that callers send."""
    before, after = _alternatives_of(old), _alternatives_of(new)
    wrong = {
        (i, j): list(_compare(f"{path}|{j}", b, a, old_root, new_root, who))
        for i, b in enumerate(before)
        for j, a in enumerate(after)
    }
    matches = {pair for pair, messages in wrong.items() if not messages}
    removed = [
        i for i in range(len(before)) if not any((i, j) in matches for j in range(len(after)))
    ]
    came = [j for j in range(len(after)) if not any((i, j) in matches for i in range(len(before)))]
    changed = [(i, i if i in came else came[0]) for i in removed] if came else []
    for pair in changed:
        yield from wrong[pair]
    # Readers skip unknown kinds if a member names the kind.
    tells = "discriminator" in old and "discriminator" in new
    others = removed if who == "callers" else () if tells else came
    if before and after and not changed and others:
        yield _ANOTHER_KIND.format(path, who)


def _alternatives_of(schema: Schema) -> list[Any]:
    """Returns the alternatives, without named values beside any text: they may change."""
    parts = schema.get("anyOf", [])
    is_open = {"type": "string"} in parts
    return [part for part in parts if not is_open or "enum" not in part]


def _resolved(schema: Any, root: Schema) -> Any:
    while isinstance(schema, dict) and "$ref" in schema:
        schema = root["$defs"][schema["$ref"].rsplit("/", 1)[1]]
    return schema


def _kinds(schema: Schema) -> set[str]:
    if "anyOf" in schema:
        return {kind for part in schema["anyOf"] for kind in _kinds(part)} | (
            {"object"} if any("$ref" in part for part in schema["anyOf"]) else set()
        )
    kind = schema.get("type")
    return set(kind) if isinstance(kind, list) else {kind} if kind else set()


def _types(path: str, old: Schema, new: Schema, who: str) -> Iterator[str]:
    before, after = _kinds(old), _kinds(new)
    if before and not after and who == "readers" and not _is_told(new):
        yield f"{path} may now be anything: breaks readers"
    if after and not before and who == "callers" and not _is_told(old):
        yield f"{path} no longer takes everything: breaks callers"
    if not before or not after:
        return
    wrong = before - after if who == "callers" else after - before
    if wrong:
        verb = "no longer takes" if who == "callers" else "may now be"
        yield f"{path} {verb} {', '.join(sorted(wrong))}: breaks {who}"


def _is_told(schema: Schema) -> bool:
    """Returns whether the schema names its values, and so their types."""
    return "enum" in schema or "const" in schema


def _openness(path: str, old: Schema, new: Schema, who: str) -> Iterator[str]:
    """Yields changes to unnamed members or items, which callers may send and readers find."""
    for name, what in (("additionalProperties", "members"), ("items", "items")):
        before, after = (_how_open(schema.get(name, True)) for schema in (old, new))
        if who == "callers" and after < before:
            yield f"{path} takes fewer {what}: breaks callers"
        if who == "readers" and after > before:
            yield f"{path} may now have other {what}: breaks readers"


def _how_open(schema: Any) -> int:
    """Returns 0 for nothing, 1 for a schema, 2 for anything."""
    return {False: 0, True: 2}[schema] if isinstance(schema, bool) else 1


def _members(
    path: str, old: Schema, new: Schema, old_root: Schema, new_root: Schema, who: str
) -> Iterator[str]:
    before, after = old.get("properties", {}), new.get("properties", {})
    for name, schema in before.items():
        if name not in after:
            yield f"{path}.{name} is gone: breaks {who}"
        else:
            yield from _compare(f"{path}.{name}", schema, after[name], old_root, new_root, who)
    was, now = set(old.get("required", [])), set(new.get("required", []))
    wrong = now - was if who == "callers" else was - now
    for name in sorted(wrong):
        change = "is now required" if who == "callers" else "may now be missing"
        yield f"{path}.{name} {change}: breaks {who}"


def _values(path: str, old: Schema, new: Schema, who: str) -> Iterator[str]:
    if who == "callers" and "enum" in new and "enum" not in old:
        yield f"{path} takes named values only: breaks callers"
    if who == "callers" and "enum" in old:
        for value in old["enum"]:
            if value not in new.get("enum", [value]):
                yield f"{path} no longer takes {value!r}: breaks callers"
    if who == "readers" and "enum" in old:
        for value in new.get("enum", []):
            if value not in old["enum"]:
                yield f"{path} may now be {value!r}: breaks readers"
    if "const" in old and new.get("const") != old["const"]:
        yield f"{path} is no longer {old['const']!r}: breaks {who}"
    if who == "callers" and old.get("default") != new.get("default") and "default" in old:
        yield f"{path} has another default: breaks callers that leave it out"


def _limits(path: str, old: Schema, new: Schema, who: str) -> Iterator[str]:
    before, after = (old, new) if who == "callers" else (new, old)
    word = "narrower" if who == "callers" else "wider"
    for name, narrower in (
        ("minimum", lambda a, b: b > a),
        ("maximum", lambda a, b: b < a),
        ("exclusiveMinimum", lambda a, b: b > a),
        ("exclusiveMaximum", lambda a, b: b < a),
        ("multipleOf", lambda a, b: b != a),
        ("minLength", lambda a, b: b > a),
        ("maxLength", lambda a, b: b < a),
        ("minItems", lambda a, b: b > a),
        ("maxItems", lambda a, b: b < a),
        ("minProperties", lambda a, b: b > a),
        ("maxProperties", lambda a, b: b < a),
    ):
        if name in after and (name not in before or narrower(before[name], after[name])):
            yield f"{path} has a {word} {name}: breaks {who}"
    for name in ("pattern", "format"):
        if name in after and after[name] != before.get(name):
            yield f"{path} has another {name}: breaks {who}"


def main() -> int:
    new = all_schemas(registry().methods.values())
    old = json.loads(BASELINE.read_text()) if BASELINE.exists() else {}
    if messages := breaks(old, new):
        print("\n".join(messages), file=sys.stderr)
        return 1
    BASELINE.write_text(json.dumps(new, separators=(",", ":"), ensure_ascii=False) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
