"""Checks outgoing messages against their JSON Schemas.

The schemas are read from the files that come with kbproc, because making one takes ten times as
long: ten milliseconds of a search from a shell.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import msgspec

from kbproc import SCHEMA_VERSION
from kbproc.base.bundled import bundled
from kbproc.methods.calls.method import Method

Schema = dict[str, Any]
_OWN = "kbproc.methods."


class Checker:
    """Validates outgoing messages; each validator is compiled on first use."""

    def __init__(self) -> None:
        self._results: dict[tuple[str, bool], Any] = {}

    def result(self, method: Method, value: Any) -> str | None:
        """Returns where and how `value` breaks its schema; None if it fits."""
        lean = bool(value.get("meta", {}).get("lean"))
        validator = self._results.get((method.name, lean))
        if validator is None:
            schema = schema_of_result(method)
            lean_form = lean_schema(msgspec.json.decode(schema)) if lean else None
            validator = self._results[method.name, lean] = _compiled(lean_form or schema)
        return _complaint(validator, value)

    def event(self, name: str, value: Any) -> str | None:
        return _complaint(event_validator(name), value)

    def error(self, value: Any) -> str | None:
        return _complaint(error_validator(), value)


def lean_schema(result_schema: Schema) -> Schema:
    """Returns the schema of a lean result, in which no member of `data` is required."""
    bare: Schema = _without_required(result_schema)
    properties = {**bare["properties"], "meta": result_schema["properties"]["meta"]}
    return {**bare, "properties": properties}


def _without_required(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_without_required(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        name: _without_required(part)
        for name, part in schema.items()
        if name != "required" or not isinstance(part, list)
    }


def _complaint(validator: Any, value: Any) -> str | None:
    if validator.is_valid(value):
        return None
    error = next(iter(validator.iter_errors(value)))
    where = "/".join(str(step) for step in error.schema_path)
    return f"{where}: {error.message[:300]}"


@functools.cache
def event_validator(name: str) -> Any:
    return _compiled(_schema_named(f"event.{name}", lambda schemas: schemas.event_schema(name)))


@functools.cache
def error_validator() -> Any:
    return _compiled(_schema_named("error", lambda schemas: schemas.error_schema()))


def schema_of_result(method: Method) -> str:
    """Returns the schema of a method's result; that of kbproc's own methods lies in a file."""
    is_own = method.handler.__module__.startswith(_OWN)
    name = f"{method.name}.result" if is_own else None
    return _schema_named(name, lambda schemas: schemas.result_schema(method))


def _schema_named(name: str | None, make: Callable[[Any], Schema]) -> str:
    """Returns a schema as JSON from the file of that name; makes it where there is no file.

    `make` gets the module that makes schemas, which takes a millisecond to import.
    """
    file = None if name is None else bundled(f"schemas/v{SCHEMA_VERSION}/{name}.json")
    if file is not None:
        return file.read_text(encoding="utf-8")
    from kbproc.methods.calls import schemas

    return msgspec.json.encode(make(schemas)).decode()


def _compiled(schema: str | Schema) -> Any:
    import jsonschema_rs

    return jsonschema_rs.validator_for(schema)
