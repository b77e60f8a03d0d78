"""Bounds the answers of tools to what clients show a model.

Owns: the size of an answer, where the next part of it begins, and cutting what has no next part.
Refuses to know: which tools there are, and how a result is worded (told.py).

Codex cuts a result at 12,000 bytes, in the middle and whatever it holds; other clients do so later.
"""

from __future__ import annotations

from typing import Any

import msgspec

from kbproc.mcp.toolbox import Wanted, params_schema, writes

MOST_BYTES = 11_300  # a result as JSON in UTF-8, without meta.left_out
_BUDGET_TOKENS = 3_300  # each has three bytes; the rest is for the members around the items
_OF_META = 1_300  # bytes of what stands beside a list, whose own size is in the budget
_OF_PLAN = 6_000
_LEAST_TEXT = 40  # bytes of a text that is cut
_SIZES = ("length", "budget_tokens")
# Methods whose parts are counted in characters or bytes.
_LENGTHS = {"doc.get": 8_000, "doc.download": 6_000}
_TEXTS = {"doc.get": "text", "note.get": "text", "knowledge.get": "body"}
# Methods whose lists are examples beside counts of all.
_MOST_LISTED = {"doc.ingest": 10}
_MOST_NAMED = 5
_MOST_OF_NAME = 80  # characters
_MOST_DEPTH = 2  # objects in objects: half of a deeper one, such as a schema, means nothing

Members = dict[str, Any]


def sized(request: Wanted) -> Wanted:
    """Returns a request for as much as fits, unless the caller names a size."""
    if request.method in writes() or _names_size(request.params):
        return request
    sizes: dict[str, int] = {}
    if (length := _LENGTHS.get(request.method)) is not None:
        sizes["length"] = length
    if "budget_tokens" in params_schema(request.method).get("properties", {}):
        sizes["budget_tokens"] = _BUDGET_TOKENS
    return request.adding(**sizes)


def _names_size(params: Members) -> bool:
    return any(params.get(name) is not None for name in _SIZES)


def fitted(result: Members, request: Wanted) -> Members:
    """Returns as much of a result as fits; `meta` says what is missing and where the rest begins.

    A caller who names a size larger than usual gets what it asks for.
    """
    cut = _Cut()
    data, meta = result["data"], result["meta"]
    if (most := _MOST_LISTED.get(request.method)) is not None and isinstance(data, dict):
        data = {name: cut.first(member, most, name) for name, member in data.items()}
    if not _is_large_on_purpose(request):
        meta = cut.fit(meta, _OF_PLAN if "plan" in meta else _OF_META, "meta")
        data = cut.fit(data, MOST_BYTES - _size(meta), "")
    meta = {**meta, **_next(data, result["data"], meta.get("has_more"), request)}
    if cut.missing:
        meta["left_out"] = cut.missing[:_MOST_NAMED]
    return {"data": data, "meta": meta}


def _is_large_on_purpose(request: Wanted) -> bool:
    if request.method in writes():
        return False
    usual = {"length": _LENGTHS.get(request.method, 0), "budget_tokens": _BUDGET_TOKENS}
    return any((request.params.get(name) or 0) > usual[name] for name in _SIZES)


def _next(data: Any, whole: Any, has_more: bool | None, request: Wanted) -> Members:
    """Returns where the next part begins; nothing for an answer with a cursor or without parts."""
    length, whole_length = _length(data, request.method), _length(whole, request.method)
    if length is None or not (has_more or length != whole_length):
        return {}
    return {"has_more": True, "next_offset": (request.params.get("offset") or 0) + length}


def _length(data: Any, method: str) -> int | None:
    """Returns how long a part is, in what the method's offset counts."""
    if not isinstance(data, dict):
        return None
    if method == "doc.download":
        return int(data["length"])
    part = data.get(_TEXTS.get(method, "results"))
    return len(part) if isinstance(part, str | list) else None


class _Cut:
    """Cuts a value, and notes what is missing of it, by its path."""

    def __init__(self) -> None:
        self.missing: list[str] = []

    def first(self, value: Any, most: int, path: str) -> Any:
        """Returns the first items of a list, and any other value as it is."""
        if not isinstance(value, list) or len(value) <= most:
            return value
        self._note(path, len(value) - most, len(value))
        return value[:most]

    def _note(self, path: str, missing: int, of: int, what: str = "") -> None:
        self.missing.append(f"{path[-_MOST_OF_NAME:] or 'data'}: {missing} of {of}{what}")

    def fit(self, value: Any, room: int, path: str, depth: int = 0) -> Any:
        """Returns as much of a value as has at most `room` bytes as JSON."""
        if _size(value) <= room:
            return value
        if isinstance(value, str):
            return self._text(value, room, path)
        if isinstance(value, list):
            return self._list(value, room, path)
        return self._members(value, room, path, depth) if isinstance(value, dict) else value

    def _text(self, text: str, room: int, path: str) -> str:
        """Returns the beginning of a text; one with many escapes is cut more than once."""
        part = text.encode()[: max(_LEAST_TEXT, room)].decode(errors="ignore")
        while _size(part) > room and len(part) > _LEAST_TEXT:
            part = part[: max(_LEAST_TEXT, len(part) * room // _size(part) - 1)]
        self._note(path, len(text) - len(part), len(text), " characters")
        return part

    def _list(self, items: list[Any], room: int, path: str) -> list[Any]:
        """Returns the first items, and the very first one in any case, cut where it has to be."""
        first_items: list[Any] = []
        room -= 2
        for item in items:
            size = _size(item) + 1
            if size > room:
                break
            first_items.append(item)
            room -= size
        if not first_items:
            first_items.append(self.fit(items[0], room, f"{path}[0]"))
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
