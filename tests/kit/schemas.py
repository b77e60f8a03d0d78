"""Whether a message fits its schema, every member of it named there."""

from __future__ import annotations

import functools
import json
from typing import Any

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
def _validator(schema: str) -> Draft202012Validator:
    parsed = json.loads(schema)
    Draft202012Validator.check_schema(parsed)
    return Draft202012Validator(closed(parsed))


def fit(value: Any, schema: dict[str, Any]) -> None:
    _validator(json.dumps(schema)).validate(value)
