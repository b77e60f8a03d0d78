"""Makes the results of tools: answers and errors, in words for a model and of limited size.

An error's text helps the model to get the next call right. A long answer is cut where its next part
can begin: Codex cuts a result at 12,000 bytes, in the middle and at any place; other clients cut
later.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from kbproc.base.budget import beginning, number_that_fits
from kbproc.base.suggest import nearest
from kbproc.surfaces.mcp.toolbox import Tool, WireRequest, lasting_methods, params_schema, writes

ERROR = "kbproc/error"  # a member of _meta
# Members of an error in _meta: few, because some clients show a model _meta beside the text.
_BRIEF = ("type", "field", "retryable", "retry_after_ms")
_PARAMS = re.compile(r"\$\.params\.(\w+)")
_UNKNOWN_PARAM = re.compile(r"\$\.params\.(\w+) is not a parameter")
_MOST_VALUES = 20
_MOST_NEAR = 5
_MOST_RETRY = 2_000  # characters, so that a model does not read its own long text again
_MOST_CHANGE = 300  # characters of a plan's change


# Members that a model does not need.
_OWN_META = frozenset({"schema", "seq", "count", "total", "took_ms", "lean"})
_OWN_DATA = frozenset({"query", "returned", "total_is_exact"})
_DIGITS = 3  # a model compares scores by no more than these
# Errors of an owner that may have done the write, wholly or in part, so that a retry needs the same
# token. The second set is only for methods whose failures the log does not keep, because a failed
# answer's token leads to that failure.
_GOES_ON = frozenset({"operation.timeout", "store.locked"})
_OWN_FAILURES = frozenset({"store.io", "store.corrupt", "internal.error"})
_SAME_CALL = "Then make the same call again"
_UNKNOWN = "unknown"  # the value of `outcome` in _meta


def result(answer: dict[str, Any]) -> dict[str, Any]:
    """Returns a tool's result for an answer's `data` and `meta`.

    Text and structured content are the same, because clients show a model only one of them.
    """
    answer = _without_own(answer) if answer["meta"].get("lean") else answer
    text = msgspec.json.encode(answer).decode()
    return {"content": _text(text), "structuredContent": answer, "isError": False}


def _without_own(answer: dict[str, Any]) -> dict[str, Any]:
    """Returns a lean answer without the members that a model does not need."""
    data, meta = answer["data"], _without(answer["meta"], _OWN_META)
    if not meta.get("freshness", {}).get("pending_embeddings"):
        meta.pop("freshness", None)
    if isinstance(data, dict) and "results" in data:
        inexact = () if data.get("total_is_exact", True) else ("total_matches",)
        hits = [_rounded(hit) for hit in data["results"]]
        data = {**_without(data, _OWN_DATA.union(inexact)), "results": hits}
    return {"data": data, "meta": meta}


def _rounded(hit: dict[str, Any]) -> dict[str, Any]:
    return {**hit, "score": round(hit["score"], _DIGITS)} if "score" in hit else hit


def _without(members: dict[str, Any], names: frozenset[str]) -> dict[str, Any]:
    return {name: member for name, member in members.items() if name not in names}


def mistake(text: str) -> dict[str, Any]:
    return {"content": _text(text), "isError": True}


def error(data: dict[str, Any], tool: Tool, request: WireRequest) -> dict[str, Any]:
    """Returns a tool's result for an error. `data`: the data of the error on the wire."""
    lines = [f"{data['type']}: {_named(data['message'], tool)}"]
    if advice := hint_of(data):
        lines.append(_named(advice, tool))
    if valid := _valid(data, tool):
        lines.append(f"Valid: {', '.join(str(value) for value in valid[:_MOST_VALUES])}.")
    if "retry" in data:
        params = msgspec.json.encode(_as_arguments(data["retry"], tool, request)).decode()
        if len(params) <= _MOST_RETRY:
            lines.append(f"Try: {params}")
    elif data["retryable"]:
        lines.append("The same call may succeed later.")
    return {**mistake("\n".join(lines)), "_meta": {ERROR: _brief(data)}}


def hint_of(data: dict[str, Any]) -> str:
    """Returns an error's hint with the advice to ask again; the server knows the write's token."""
    again = ""
    if data.get("ask_again"):
        again = f"{_SAME_CALL}{': so a write is done once' if _is_unknown(data) else ''}."
    return f"{data.get('hint', '')} {again}".strip()


def may_be_done(result: dict[str, Any], method: str) -> bool:
    """Returns true if a repeated call would be the same write."""
    error = result.get("_meta", {}).get(ERROR, {})
    own = frozenset() if method in lasting_methods() else _OWN_FAILURES
    return error.get("outcome") == _UNKNOWN or error.get("type") in _GOES_ON | own


def _is_unknown(data: dict[str, Any]) -> bool:
    """Returns true for a write whose owner was lost, because only its error names its token."""
    return "client_token" in data.get("detail", {})


def refused_plan(data: dict[str, Any], reason: str, instead: str) -> dict[str, Any]:
    """Returns a tool's result for a plan without approval. `instead`: advice for a person."""
    plan = data["plan"]
    lines = [reason, f"{plan['action']} would:", *_changes(plan), instead]
    return {**mistake("\n".join(lines)), "_meta": {ERROR: _brief(data)}}


def _changes(plan: dict[str, Any]) -> list[str]:
    return [f"- {change[:_MOST_CHANGE]}" for change in plan["changes"][:20]]


def _brief(data: dict[str, Any]) -> dict[str, Any]:
    outcome = {"outcome": _UNKNOWN} if _is_unknown(data) else {}
    return {name: data[name] for name in _BRIEF if name in data} | outcome


def _named(text: str, tool: Tool) -> str:
    """Returns the text with the caller's names of params."""
    return _PARAMS.sub(lambda match: tool.argument(match[1]), text)


def _valid(data: dict[str, Any], tool: Tool) -> list[Any]:
    """Returns the valid values; for an unknown param of a tool, the nearest arguments."""
    valid: list[Any] = data.get("valid_values") or []
    match = _UNKNOWN_PARAM.match(data["message"])
    if match is None or len(valid) <= _MOST_NEAR or not tool.method:
        return valid
    return nearest(match[1], tool.tool["inputSchema"]["properties"])


def _as_arguments(retry: dict[str, Any], tool: Tool, request: WireRequest) -> dict[str, Any]:
    """Returns the arguments of the call to try, without params that the caller did not write."""
    params = {name: value for name, value in retry["params"].items() if name not in request.added}
    if not tool.method:  # because the tool calls any method by its name
        return {"method": retry["method"], "params": params}
    return {tool.argument(name): value for name, value in params.items()}


def _text(text: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": text}]


MOST_BYTES = 11_300  # a result as JSON in UTF-8, without meta.left_out
_BUDGET_TOKENS = 3_300  # each has three bytes; the rest is for the members around the items
_OF_META = 1_300  # bytes beside a list, whose own size is in the budget
_OF_PLAN = 6_000
_LEAST_TEXT = 40  # bytes that stay of a cut text
_SIZES = ("length", "budget_tokens")
# Methods whose parts are measured in characters or bytes.
LENGTHS = {"doc.get": 8_000, "doc.download": 6_000}
_TEXTS = {"doc.get": "text", "note.get": "text", "knowledge.get": "body"}
# Methods whose lists are examples beside the counts.
MOST_LISTED = {"doc.ingest": 10}
_MOST_NAMED = 5
_MOST_OF_NAME = 80  # characters
_MOST_DEPTH = 2  # levels, because a part of a deeper object, such as a schema, is useless

Members = dict[str, Any]


def sized(request: WireRequest) -> WireRequest:
    """Returns the request with a size that fits, unless the caller names a size."""
    if request.method in writes() or _names_size(request.params):
        return request
    sizes: dict[str, int] = {}
    if (length := LENGTHS.get(request.method)) is not None:
        sizes["length"] = length
    if "budget_tokens" in params_schema(request.method).get("properties", {}):
        sizes["budget_tokens"] = _BUDGET_TOKENS
    return request.adding(**sizes)


def _names_size(params: Members) -> bool:
    return any(params.get(name) is not None for name in _SIZES)


def fitted(result: Members, request: WireRequest) -> Members:
    """Returns the part of a result that fits; `meta` names what is missing and the next offset.

    A caller that names a size above the default gets that size.
    """
    cut = _Cut()
    data, meta = result["data"], result["meta"]
    if (most := MOST_LISTED.get(request.method)) is not None and isinstance(data, dict):
        data = {name: cut.first(member, most, name) for name, member in data.items()}
    if not _is_large_on_purpose(request):
        meta = cut.fit(meta, _OF_PLAN if "plan" in meta else _OF_META, "meta")
        data = cut.fit(data, MOST_BYTES - _size(meta), "")
    meta = {**meta, **_next(data, result["data"], meta.get("has_more"), request)}
    if cut.missing:
        meta["left_out"] = cut.missing[:_MOST_NAMED]
    return {"data": data, "meta": meta}


def _is_large_on_purpose(request: WireRequest) -> bool:
    if request.method in writes():
        return False
    defaults = {"length": LENGTHS.get(request.method, 0), "budget_tokens": _BUDGET_TOKENS}
    return any((request.params.get(name) or 0) > defaults[name] for name in _SIZES)


def _next(data: Any, full: Any, has_more: bool | None, request: WireRequest) -> Members:
    """Returns the next offset as meta; {} for an answer with a cursor or without parts."""
    length, full_length = _length(data, request.method), _length(full, request.method)
    if length is None or not (has_more or length != full_length):
        return {}
    return {"has_more": True, "next_offset": (request.params.get("offset") or 0) + length}


def _length(data: Any, method: str) -> int | None:
    """Returns the length of a part, in the unit of the method's offset."""
    if not isinstance(data, dict):
        return None
    if method == "doc.download":
        return int(data["length"])
    part = data.get(_TEXTS.get(method, "results"))
    return len(part) if isinstance(part, str | list) else None


class _Cut:
    """A cutter of values, which notes missing parts by their paths."""

    def __init__(self) -> None:
        self.missing: list[str] = []

    def first(self, value: Any, most: int, path: str) -> Any:
        """Returns the first items of a list; any other value stays."""
        if not isinstance(value, list) or len(value) <= most:
            return value
        self._note(path, len(value) - most, len(value))
        return value[:most]

    def _note(self, path: str, missing: int, total: int, unit: str = "") -> None:
        self.missing.append(f"{path[-_MOST_OF_NAME:] or 'data'}: {missing} of {total}{unit}")

    def fit(self, value: Any, room: int, path: str, depth: int = 0) -> Any:
        """Returns the part of a value that takes at most `room` bytes as JSON."""
        if _size(value) <= room:
            return value
        if isinstance(value, str):
            return self._text(value, room, path)
        if isinstance(value, list):
            return self._list(value, room, path)
        return self._members(value, room, path, depth) if isinstance(value, dict) else value

    def _text(self, text: str, room: int, path: str) -> str:
        """Returns the beginning of a text; one with many escapes is cut more than once."""
        part = beginning(text, max(_LEAST_TEXT, room))
        while _size(part) > room and len(part) > _LEAST_TEXT:
            part = part[: max(_LEAST_TEXT, len(part) * room // _size(part) - 1)]
        self._note(path, len(text) - len(part), len(text), " characters")
        return part

    def _list(self, items: list[Any], room: int, path: str) -> list[Any]:
        """Returns the first items; the very first one stays in any case, and is cut if needed."""
        room -= len("[]")
        count = number_that_fits((_size(item) + len(",") for item in items), room)
        first_items = items[:count] or [self.fit(items[0], room, f"{path}[0]")]
        if len(first_items) < len(items):
            self._note(path, len(items) - len(first_items), len(items))
        return first_items

    def _members(self, members: Members, room: int, path: str, depth: int) -> Members:
        """Returns all members; those that are longer than their share are cut."""
        if depth >= _MOST_DEPTH:
            self._note(path, len(members), len(members))
            return {}
        room -= 2 + sum(_size(name) + 2 for name in members)
        fitted = dict(members)
        sizes = sorted((_size(member), name) for name, member in members.items())
        for place, (size, name) in enumerate(sizes):
            share = room // (len(sizes) - place)
            if size > share:
                fitted[name] = self.fit(
                    members[name], share, f"{path}.{name}".lstrip("."), depth + 1
                )
            room -= _size(fitted[name])
        return fitted


def _size(value: Any) -> int:
    return len(msgspec.json.encode(value))
