"""The check of everything that goes out against its schema.

Owns: validators, each compiled when it is first needed.
Refuses to know: how a schema is made, and what follows if something does not fit.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from kbproc.calls.method import Method
from kbproc.calls.schemas.schema import error_schema, event_schema, lean_schema, result_schema


class Checker:
    """Validates what goes out; a validator is compiled when first needed."""

    def __init__(self) -> None:
        self._results: dict[tuple[str, bool], Any] = {}

    def result(self, method: Method, value: Any) -> str | None:
        """None, or where and how `value` breaks its schema."""
        lean = bool(value.get("meta", {}).get("lean"))
        validator = self._results.get((method.name, lean))
        if validator is None:
            make = lean_schema if lean else result_schema
            validator = self._results[method.name, lean] = _compile(lambda: make(method))
        return _complaint(validator, value)

    def event(self, name: str, value: Any) -> str | None:
        return _complaint(_event_validator(name), value)

    def error(self, value: Any) -> str | None:
        return _complaint(_error_validator(), value)


def _complaint(validator: Any, value: Any) -> str | None:
    if validator.is_valid(value):
        return None
    error = next(iter(validator.iter_errors(value)))
    where = "/".join(str(step) for step in error.schema_path)
    return f"{where}: {error.message[:300]}"


@functools.cache
def _event_validator(name: str) -> Any:
    return _compile(lambda: event_schema(name))


@functools.cache
def _error_validator() -> Any:
    return _compile(error_schema)


def _compile(make: Callable[[], dict[str, Any]]) -> Any:
    import jsonschema_rs

    return jsonschema_rs.validator_for(make())
