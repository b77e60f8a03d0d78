"""What a tool's caller is told: results and errors, in words for a model.

Owns: the content of a result, and how an error is said so that the next call can be right.
Refuses to know: what was asked.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from kbproc.mcp.toolbox import Tool

ERROR = "kbproc/error"  # in _meta: the error as the wire has it
_PARAMS = re.compile(r"\$\.params\.(\w+)")
_MOST_VALUES = 20


def result(found: dict[str, Any]) -> dict[str, Any]:
    """`found`: `data` and `meta`."""
    text = msgspec.json.encode(found).decode()
    return {"content": _text(text), "structuredContent": found, "isError": False}


def mistake(said: str) -> dict[str, Any]:
    return {"content": _text(said), "isError": True}


def error(data: dict[str, Any], tool: Tool) -> dict[str, Any]:
    """`data`: of an error on the wire."""
    lines = [f"{data['type']}: {_named(data['message'], tool)}"]
    if data.get("hint"):
        lines.append(_named(data["hint"], tool))
    if data.get("valid_values"):
        values = ", ".join(str(value) for value in data["valid_values"][:_MOST_VALUES])
        lines.append(f"Valid: {values}.")
    if "retry" in data:
        params = msgspec.json.encode(_as_arguments(data["retry"], tool)).decode()
        lines.append(f"Try: {params}")
    elif data["retryable"]:
        lines.append("The same call may succeed later.")
    return {**mistake("\n".join(lines)), "_meta": {ERROR: data}}


def refused_plan(data: dict[str, Any], why: str, tool: Tool) -> dict[str, Any]:
    """A plan that nobody here can approve, or nobody has."""
    plan = data["plan"]
    lines = [why, f"{plan['action']} would:", *(f"- {change}" for change in plan["changes"][:20])]
    return {**mistake("\n".join(lines)), "_meta": {ERROR: data}}


def _named(said: str, tool: Tool) -> str:
    """With the names that the caller knows."""
    return _PARAMS.sub(lambda match: tool.argument(match[1]), said)


def _as_arguments(retry: dict[str, Any], tool: Tool) -> dict[str, Any]:
    if not tool.method:  # any method, by its name
        return {"method": retry["method"], "params": retry["params"]}
    return {tool.argument(name): value for name, value in retry["params"].items()}


def _text(text: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": text}]
