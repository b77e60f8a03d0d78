"""Errors and methods as tables that can be read without kbproc.

They become contract/errors.json and contract/methods.json.
"""

from __future__ import annotations

from typing import Any

from kbproc.base.errors import ERRORS
from kbproc.methods.calls.method import Method
from kbproc.methods.calls.registry import Registry
from kbproc.methods.calls.schemas import params_schema


def errors() -> list[dict[str, Any]]:
    """Returns the errors; `retryable` is null if each error of the type sets it."""
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
    """Returns the methods; their schemas are schemas/v1/NAME.params.json and NAME.result.json."""
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
