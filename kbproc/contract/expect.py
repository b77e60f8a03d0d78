"""Checks expectations that are written as data.

An expectation has references to earlier messages (`=name/pointer`), a pointer into a message, and
matchers for the value there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

ABSENT = object()  # stands for a missing value
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
    """A reference to a message that did not come."""


def at(value: Any, pointer: str) -> Any:
    """Returns the value at a pointer of RFC 6901, or `ABSENT`; `-1` is an array's last item."""
    for part in pointer.split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(value, list) and re.fullmatch(r"-1|\d+", name):
            value = value[int(name)] if -1 <= int(name) < len(value) and value else ABSENT
        elif isinstance(value, dict):
            value = value.get(name, ABSENT)
        else:
            return ABSENT
    return value


def resolved(value: Any, named: dict[str, Any]) -> Any:
    """Returns `value` with every `=name/pointer` replaced; `+1` after it is added to the number.

    Raises NotThere.
    """
    if isinstance(value, dict):
        return {name: resolved(inner, named) for name, inner in value.items()}
    if isinstance(value, list):
        return [resolved(inner, named) for inner in value]
    if not isinstance(value, str) or not value.startswith("="):
        return value
    place, plus, more = value[1:].partition("+")
    name, slash, pointer = place.partition("/")
    target = at(named.get(name, ABSENT), slash + pointer)
    if target is ABSENT:
        raise NotThere(f"{place} did not come")
    return target + int(more) if plus and _is_a(target, "integer") else target


_MATCHERS: dict[str, Callable[[Any, Any], bool]] = {
    "is": lambda value, expected: value is not ABSENT and _json(value) == _json(expected),
    "type": lambda value, expected: _is_a(value, expected),  # noqa: PLW0108  it is defined below
    "one_of": lambda value, expected: value in expected,
    "has": lambda value, expected: isinstance(value, dict) and set(expected) <= value.keys(),
    "has_one": lambda value, expected: (
        isinstance(value, dict) and bool(set(expected) & value.keys())
    ),
    "contains": lambda value, expected: isinstance(value, list | str) and expected in value,
    "lacks": lambda value, expected: isinstance(value, list) and expected not in value,
    "matches": lambda value, expected: isinstance(value, str) and bool(re.search(expected, value)),
    "length": lambda value, expected: isinstance(value, list | str) and len(value) == expected,
    "above": lambda value, expected: _is_a(value, "number") and value > expected,
    "below": lambda value, expected: _is_a(value, "number") and value < expected,
    "present": lambda value, expected: (value is not ABSENT) is expected,
    "empty": lambda value, expected: (value is not ABSENT and not value) is expected,
    "only": lambda value, expected: isinstance(value, list) and all(x in expected for x in value),
    "set": lambda value, expected: isinstance(value, list) and _sorted(value) == _sorted(expected),
}


def _json(value: Any) -> str:
    """Returns the value as text in which 1, 1.0 and true differ, at any depth."""
    return json.dumps(value, sort_keys=True)


def _sorted(values: list[Any]) -> list[str]:
    return sorted(map(repr, values))


def _is_a(value: Any, name: str) -> bool:
    if isinstance(value, bool) and name != "boolean":
        return False
    return isinstance(value, _TYPES[name])


def mismatch(expectation: dict[str, Any], subject: Any) -> str | None:
    """Returns in words how the subject differs from a resolved expectation; None if it does not."""
    place = expectation.get("at", "")
    value = at(subject, place)
    if value is not ABSENT and "each" in expectation:
        items = value if isinstance(value, list) else []
        value = [at(item, expectation["each"]) for item in items]
    for name, matches in _MATCHERS.items():
        if name in expectation and not matches(value, expectation[name]):
            was = "nothing is there" if value is ABSENT else f"it is {value!r}"
            return f"{place or 'what came'} {name} {expectation[name]!r}; {was}"[:600]
    return None
