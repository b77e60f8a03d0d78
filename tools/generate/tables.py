"""Errors and methods as tables that need no kbproc to be read.

Owns: contract/errors.json and contract/methods.json, all made from the declarations.
Refuses to know: where they lie.
"""

from __future__ import annotations

from typing import Any

from kbproc.base.errors import ERRORS
from kbproc.calls.method import Method
from kbproc.calls.registry import Registry
from kbproc.calls.schemas.schema import params_schema


def errors() -> list[dict[str, Any]]:
    """`retryable` null: each error of this type says it itself."""
    return [
        {
            "type": row.type,
            "code": row.code,
            "exit_code": row.exit,
            "retryable": row.retryable,
            "when": row.when,
            "hint": row.hint,
        }
        for row in ERRORS.values()
    ]


def methods(registry: Registry) -> list[dict[str, Any]]:
    """Schemas lie in schemas/v1: NAME.params.json and NAME.result.json."""
    return [_method(method) for method in registry.methods.values()]


def _method(method: Method) -> dict[str, Any]:
    return {
        "name": method.name,
        "summary": method.summary,
        "kind": method.kind,
        "streams": method.streams,
        "scope": method.scope,
        "required": params_schema(method).get("required", []),
        "errors": list(method.all_errors),
    }
