"""Expectations as data: where to look, and what must be there.

Owns: references to what came before (`=name/pointer`), pointers into messages, and the matchers.
Refuses to know: conversations, processes and rules.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

_ABSENT = object()
_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}


class NotThere(Exception):
    """A reference to what did not come."""


def at(value: Any, pointer: str) -> Any:
    """By RFC 6901; `_ABSENT` where nothing is. `-1` is an array's last."""
    for part in pointer.split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(value, list) and re.fullmatch(r"-1|\d+", name):
            value = value[int(name)] if -1 <= int(name) < len(value) and value else _ABSENT
        elif isinstance(value, dict):
            value = value.get(name, _ABSENT)
        else:
            return _ABSENT
    return value


def resolved(value: Any, kept: dict[str, Any]) -> Any:
    """With every `=name/pointer` replaced by what is there. Raises NotThere."""
    if isinstance(value, dict):
        return {name: resolved(inner, kept) for name, inner in value.items()}
    if isinstance(value, list):
        return [resolved(inner, kept) for inner in value]
    if not isinstance(value, str) or not value.startswith("="):
        return value
    name, slash, pointer = value[1:].partition("/")
    found = at(kept.get(name, _ABSENT), slash + pointer)
    if found is _ABSENT:
        raise NotThere(f"{value[1:]} did not come")
    return found


_MATCHERS: dict[str, Callable[[Any, Any], bool]] = {
    "is": lambda found, wanted: found == wanted and type(found) is type(wanted),
    "type": lambda found, wanted: _is_a(found, wanted),  # noqa: PLW0108  it stands below
    "one_of": lambda found, wanted: found in wanted,
    "has": lambda found, wanted: isinstance(found, dict) and set(wanted) <= found.keys(),
    "has_one": lambda found, wanted: isinstance(found, dict) and bool(set(wanted) & found.keys()),
    "contains": lambda found, wanted: isinstance(found, list | str) and wanted in found,
    "matches": lambda found, wanted: isinstance(found, str) and bool(re.search(wanted, found)),
    "length": lambda found, wanted: isinstance(found, list | str) and len(found) == wanted,
    "above": lambda found, wanted: _is_a(found, "number") and found > wanted,
    "below": lambda found, wanted: _is_a(found, "number") and found < wanted,
    "present": lambda found, wanted: (found is not _ABSENT) is wanted,
    "empty": lambda found, wanted: (found is not _ABSENT and not found) is wanted,
    "only": lambda found, wanted: isinstance(found, list) and all(x in wanted for x in found),
    "set": lambda found, wanted: isinstance(found, list) and _sorted(found) == _sorted(wanted),
}


def _sorted(values: list[Any]) -> list[str]:
    return sorted(map(repr, values))


def _is_a(found: Any, name: str) -> bool:
    if isinstance(found, bool) and name != "boolean":
        return False
    return isinstance(found, _TYPES[name])


def mismatch(expectation: dict[str, Any], subject: Any) -> str | None:
    """What was expected, in words, if it is not so; `expectation` is resolved."""
    place = expectation.get("at", "")
    found = at(subject, place)
    if found is not _ABSENT and "each" in expectation:
        items = found if isinstance(found, list) else []
        found = [at(item, expectation["each"]) for item in items]
    for name, matches in _MATCHERS.items():
        if name in expectation and not matches(found, expectation[name]):
            was = "nothing is there" if found is _ABSENT else f"it is {found!r}"
            return f"{place or 'what came'} {name} {expectation[name]!r}; {was}"[:600]
    return None
