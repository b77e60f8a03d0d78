"""Checks outgoing messages against their JSON Schemas.

A server makes a schema from its types when it first needs it. A command reads it from the files
that come with kbproc, because making one takes ten times as long: ten milliseconds of a search.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import msgspec

from kbproc import SCHEMA_VERSION
from kbproc.base.bundled import bundled
from kbproc.methods.calls.method import Method

Schema = dict[str, Any]
_OWN = "kbproc.methods."


class Checker:
    """Validates outgoing messages; a process compiles each validator on its first use."""

    def __init__(self, *, reads_files: bool = False) -> None:
        """`reads_files`: for a process that ends soon.

        While a server runs, another version may be installed in the place of the files; and a
        server without a free descriptor could not read the schema of the error that says so.
        """
        self._reads_files = reads_files
        self._results = shared_results(reads_files=reads_files)
        if not reads_files:
            from kbproc.methods.calls import schemas  # noqa: F401  not at the first error

    def result(self, method: Method, value: Any) -> str | None:
        """Returns where and how `value` breaks its schema; None if it fits."""
        lean = bool(value.get("meta", {}).get("lean"))
        _, validator = self._results.get((id(method), lean), (None, None))
        if validator is None:
            schema = self._schema_of(method)
            if lean:
                schema = lean_schema(
                    msgspec.json.decode(schema) if isinstance(schema, str) else schema
                )
            validator = _compiled(schema)
            self._results[id(method), lean] = method, validator
        return _complaint(validator, value)

    def _schema_of(self, method: Method) -> Schema | str:
        """Returns the schema of the method's result, as JSON if it comes from a file."""
        is_own = method.handler.__module__.startswith(_OWN)
        file = _file(f"{method.name}.result") if is_own and self._reads_files else None
        if file is not None:
            return file.read_text(encoding="utf-8")
        from kbproc.methods.calls.schemas import result_schema

        return result_schema(method)

    def event(self, name: str, value: Any) -> str | None:
        return _complaint(shared_validator(f"event.{name}", reads_files=self._reads_files), value)

    def error(self, value: Any) -> str | None:
        return _complaint(shared_validator("error", reads_files=self._reads_files), value)


@functools.cache
def shared_results(*, reads_files: bool) -> dict[tuple[int, bool], tuple[Method, Any]]:
    """Returns the validators of results, for all connections and stores of this process.

    Each stands under its method's id, which the method beside it keeps from being another's.
    """
    return {}


@functools.cache
def shared_validator(name: str, *, reads_files: bool) -> Any:
    """Returns the validator of the error or of an event, for all connections."""
    file = _file(name) if reads_files else None
    if file is not None:
        return _compiled(file.read_text(encoding="utf-8"))
    from kbproc.methods.calls.schemas import error_schema, event_schema

    event = name.partition(".")[2]
    return _compiled(event_schema(event) if event else error_schema())


def _file(name: str) -> Path | None:
    """Returns the file of a schema; None for an installation without it."""
    return bundled(f"schemas/v{SCHEMA_VERSION}/{name}.json")


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


def _compiled(schema: Schema | str) -> Any:
    import jsonschema_rs

    return jsonschema_rs.validator_for(schema)
