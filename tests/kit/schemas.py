"""Whether a message fits its schema, every member of it named there: two validators must agree."""

from __future__ import annotations

import functools
import json
from typing import Any

import jsonschema_rs
from jsonschema import Draft202012Validator


def closed(schema: Any) -> Any:
    """Open to clients, closed to us: a member that no schema names is an error here."""
    if isinstance(schema, list):
        return [closed(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    inner = {key: closed(value) for key, value in schema.items()}
    if isinstance(inner.get("properties"), dict) and inner.get("type") == "object":
        inner.setdefault("additionalProperties", False)
    return inner


@functools.cache
def _validators(schema: str) -> tuple[Draft202012Validator, Any]:
    parsed = json.loads(schema)
    Draft202012Validator.check_schema(parsed)
    strict = closed(parsed)
    return Draft202012Validator(strict), jsonschema_rs.Draft202012Validator(strict)


def fit(value: Any, schema: dict[str, Any]) -> None:
    """By the reference implementation, and by the one that serves."""
    reference, serving = _validators(json.dumps(schema))
    reference.validate(value)
    serving.validate(value)
