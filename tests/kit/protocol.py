"""Checks messages of the Model Context Protocol against the protocol's own JSON Schema."""

from __future__ import annotations

import functools
import json
from typing import Any

import jsonschema_rs

from tests.kit.start import REPO

SCHEMAS = REPO / "tests" / "mcp" / "schemas"
VERSIONS = ("2025-11-25", "2026-07-28")
_RESULTS = {
    "initialize": ["InitializeResult"],
    "server/discover": ["DiscoverResult"],
    "tools/list": ["ListToolsResult"],
    "tools/call": ["CallToolResult", "InputRequiredResult"],
    "resources/list": ["ListResourcesResult"],
    "resources/templates/list": ["ListResourceTemplatesResult"],
    "resources/read": ["ReadResourceResult"],
    "subscriptions/listen": ["SubscriptionsListenResult"],
    "elicitation/create": ["ElicitResult"],
}
# The protocol's schema describes results of extensions only as `Result`.
_EXTENDED = ("tasks/", "notifications/tasks")
_ERROR, _MESSAGE = "JSONRPCErrorResponse", "JSONRPCMessage"


def check(message: Any, version: str, method: str | None = None) -> None:
    """Checks one message of either side. `method`: of its request. Raises ValidationError.

    Versions without a schema here are skipped.
    """
    if version in VERSIONS:
        _validator(version, _MESSAGE).validate(message)
        for name in _names(version, message, method):
            _validator(version, name).validate(message.get("result", message))


def _names(version: str, message: Any, method: str | None) -> list[str]:
    """Returns the definitions that the message must fit, besides that of a message."""
    if "error" in message:
        return [_ERROR]
    if "method" in message:
        name = _methods(version).get(message["method"])
        return [name] if name else []
    kind = message["result"].get("resultType")
    if method is None or method.startswith(_EXTENDED) or kind == "task":
        return ["Result"]
    names = [name for name in _RESULTS.get(method, ["Result"]) if name in _definitions(version)]
    return names[1:] if kind == "input_required" else names[:1]


@functools.cache
def _definitions(version: str) -> dict[str, Any]:
    definitions: dict[str, Any] = json.loads((SCHEMAS / f"{version}.json").read_text())["$defs"]
    return definitions


@functools.cache
def _methods(version: str) -> dict[str, str]:
    """Returns the name of the definition for each method."""
    methods = {}
    for name, definition in _definitions(version).items():
        method = definition.get("properties", {}).get("method", {}).get("const")
        if method is not None:
            methods[method] = name
    return methods


@functools.cache
def _validator(version: str, name: str) -> Any:
    return jsonschema_rs.Draft202012Validator(
        {"$ref": f"#/$defs/{name}", "$defs": _definitions(version)}
    )
