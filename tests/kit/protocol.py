"""Whether a line of the Model Context Protocol is as the protocol's own JSON Schema has it."""

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
# What an extension has, the protocol's schema knows no more of than that it is a result.
_EXTENDED = ("tasks/", "notifications/tasks")
_ERROR, _MESSAGE = "JSONRPCErrorResponse", "JSONRPCMessage"


def check(message: Any, version: str, asked: str | None = None) -> None:
    """One message of either side; `asked`: the method that it answers. Raises ValidationError.

    Versions of which there is no schema here are passed over.
    """
    if version in VERSIONS:
        _validator(version, _MESSAGE).validate(message)
        for name in _names(version, message, asked):
            _validator(version, name).validate(message.get("result", message))


def _names(version: str, message: Any, asked: str | None) -> list[str]:
    """What it must be besides a message."""
    if "error" in message:
        return [_ERROR]
    if "method" in message:
        name = _methods(version).get(message["method"])
        return [name] if name else []
    kind = message["result"].get("resultType")
    if asked is None or asked.startswith(_EXTENDED) or kind == "task":
        return ["Result"]
    known = [name for name in _RESULTS.get(asked, ["Result"]) if name in _definitions(version)]
    return known[1:] if kind == "input_required" else known[:1]


@functools.cache
def _definitions(version: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((SCHEMAS / f"{version}.json").read_text())["$defs"]
    return found


@functools.cache
def _methods(version: str) -> dict[str, str]:
    """method → what its message is."""
    found = {}
    for name, definition in _definitions(version).items():
        method = definition.get("properties", {}).get("method", {}).get("const")
        if method is not None:
            found[method] = name
    return found


@functools.cache
def _validator(version: str, name: str) -> Any:
    return jsonschema_rs.Draft202012Validator(
        {"$ref": f"#/$defs/{name}", "$defs": _definitions(version)}
    )
