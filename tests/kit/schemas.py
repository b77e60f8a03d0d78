"""Checks messages against strict schemas with two validators."""

from __future__ import annotations

import functools
import json
import re
from typing import Any

import jsonschema_rs
from jsonschema import Draft202012Validator, FormatChecker

from kbproc.methods.all import registry
from kbproc.methods.calls.schemas import all_schemas

FORMATS = FormatChecker(formats=())
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


@FORMATS.checks("date-time")
def is_time(value: object) -> bool:
    """Returns True for times as kbproc writes them: RFC 3339 in UTC, with milliseconds."""
    return not isinstance(value, str) or _TIME.fullmatch(value) is not None


@functools.cache
def published() -> dict[str, dict[str, Any]]:
    """Returns the schemas of all methods, events and errors. Callers must not change them."""
    return all_schemas(registry().methods.values())


def closed(schema: Any) -> Any:
    """Returns the schema with unknown members and values forbidden; clients must allow them."""
    if isinstance(schema, list):
        return [closed(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    inner = {key: closed(value) for key, value in schema.items()}
    kinds = inner.get("anyOf", [])
    if any("enum" in kind for kind in kinds):
        inner["anyOf"] = [kind for kind in kinds if kind != {"type": "string"}]
    if isinstance(inner.get("properties"), dict) and inner.get("type") == "object":
        inner.setdefault("additionalProperties", False)
    return inner


def inlined(schema: Any, defs: dict[str, Any], within: tuple[str, ...] = ()) -> Any:
    """Returns the schema with references replaced by definitions, except recursive ones.

    The reference implementation spends most of its time on references.
    """
    if isinstance(schema, list):
        return [inlined(part, defs, within) for part in schema]
    if not isinstance(schema, dict):
        return schema
    name = schema.get("$ref", "").removeprefix("#/$defs/")
    if name in defs and name not in within and schema.keys().isdisjoint(defs[name]):
        here = {key: value for key, value in schema.items() if key != "$ref"}
        return {**here, **inlined(defs[name], defs, (*within, name))}
    return {
        key: value if key == "$defs" else inlined(value, defs, within)
        for key, value in schema.items()
    }


@functools.cache
def _validators(schema: str) -> tuple[Draft202012Validator, Any]:
    """Returns two validators for a schema; other tests check the schema itself."""
    strict = closed(json.loads(schema))
    return (
        Draft202012Validator(inlined(strict, strict.get("$defs", {})), format_checker=FORMATS),
        jsonschema_rs.Draft202012Validator(strict, validate_formats=True),
    )


def fit(value: Any, schema: dict[str, Any]) -> None:
    """Validates with the reference implementation and with the one that kbproc uses."""
    reference, serving = _validators(json.dumps(schema))
    reference.validate(value)
    serving.validate(value)
