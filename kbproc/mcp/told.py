"""What a tool's caller is told: results and errors, in words for a model.

Owns: the content of a result, and how an error is said so that the next call can be right.
Refuses to know: what was asked.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from kbproc.base.suggest import nearest
from kbproc.mcp.toolbox import Tool, Wanted

ERROR = "kbproc/error"  # in _meta
# Members of an error in _meta: few, because some clients show a model _meta beside the text.
_BRIEF = ("type", "field", "retryable", "retry_after_ms")
_PARAMS = re.compile(r"\$\.params\.(\w+)")
_UNKNOWN = re.compile(r"\$\.params\.(\w+) is not a parameter")
_MOST_VALUES = 20
_MOST_NEAR = 5
_MOST_RETRY = 2_000  # characters: a model need not read again the long text that it sent
_MOST_CHANGE = 300  # characters of a plan's change


# Members that a model does not need.
_OWN_META = frozenset({"schema", "seq", "count", "total", "took_ms", "lean"})
_OWN_DATA = frozenset({"query", "returned"})
_UNKNOWN_OUTCOMES = frozenset({"operation.timeout", "store.locked"})


def result(found: dict[str, Any]) -> dict[str, Any]:
    """`found`: `data` and `meta`. The text is the same: clients show a model one of the two."""
    found = _without_own(found) if found["meta"].get("lean") else found
    text = msgspec.json.encode(found).decode()
    return {"content": _text(text), "structuredContent": found, "isError": False}


def _without_own(found: dict[str, Any]) -> dict[str, Any]:
    """A lean answer without what says how the answer came about."""
    data, meta = found["data"], _without(found["meta"], _OWN_META)
    if not meta.get("freshness", {}).get("pending_embeddings"):
        meta.pop("freshness", None)
    if isinstance(data, dict) and "results" in data:
        data = _without(data, _OWN_DATA)
    return {"data": data, "meta": meta}


def _without(members: dict[str, Any], names: frozenset[str]) -> dict[str, Any]:
    return {name: member for name, member in members.items() if name not in names}


def mistake(said: str) -> dict[str, Any]:
    return {"content": _text(said), "isError": True}


def error(data: dict[str, Any], tool: Tool, request: Wanted) -> dict[str, Any]:
    """`data`: of an error on the wire."""
    lines = [f"{data['type']}: {_named(data['message'], tool)}"]
    if data.get("hint"):
        lines.append(_named(data["hint"], tool))
    if valid := _valid(data, tool):
        lines.append(f"Valid: {', '.join(str(value) for value in valid[:_MOST_VALUES])}.")
    if "retry" in data:
        params = msgspec.json.encode(_as_arguments(data["retry"], tool, request)).decode()
        if len(params) <= _MOST_RETRY:
            lines.append(f"Try: {params}")
    elif data["retryable"]:
        lines.append("The same call may succeed later.")
    return {**mistake("\n".join(lines)), "_meta": {ERROR: _brief(data)}}


def may_be_done(result: dict[str, Any]) -> bool:
    """True for a write that was given up: when it is asked again it is the same one."""
    error = result.get("_meta", {}).get(ERROR, {})
    return error.get("type") in _UNKNOWN_OUTCOMES


def refused_plan(data: dict[str, Any], why: str, instead: str) -> dict[str, Any]:
    """A plan that nobody here can approve, or nobody has. `instead`: what a person can do."""
    plan = data["plan"]
    lines = [why, f"{plan['action']} would:", *_changes(plan), instead]
    return {**mistake("\n".join(lines)), "_meta": {ERROR: _brief(data)}}


def _changes(plan: dict[str, Any]) -> list[str]:
    return [f"- {change[:_MOST_CHANGE]}" for change in plan["changes"][:20]]


def _brief(data: dict[str, Any]) -> dict[str, Any]:
    return {name: data[name] for name in _BRIEF if name in data}


def _named(said: str, tool: Tool) -> str:
    """With the names that the caller knows."""
    return _PARAMS.sub(lambda match: tool.argument(match[1]), said)


def _valid(data: dict[str, Any], tool: Tool) -> list[Any]:
    """The valid values; for a name that is like none, the arguments that the tool shows."""
    valid: list[Any] = data.get("valid_values") or []
    found = _UNKNOWN.match(data["message"])
    if found is None or len(valid) <= _MOST_NEAR or not tool.method:
        return valid
    return nearest(found[1], tool.tool["inputSchema"]["properties"])


def _as_arguments(retry: dict[str, Any], tool: Tool, request: Wanted) -> dict[str, Any]:
    """The call that would succeed, with what the caller wrote alone."""
    params = {name: value for name, value in retry["params"].items() if name not in request.added}
    if not tool.method:  # any method, by its name
        return {"method": retry["method"], "params": params}
    return {tool.argument(name): value for name, value in params.items()}


def _text(text: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": text}]
