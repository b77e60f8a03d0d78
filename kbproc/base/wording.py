"""Numbers, ids and values in messages.

Owns: singular and plural, and a value before and after.
Refuses to know: any message.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

_MOST_SHOWN = 200  # characters of a value
_MOST_TOLD = 10


def change(name: str, before: Any, after: Any) -> list[str]:
    """`title: "Old" → "New"`, for a plan; nothing if they are equal."""
    return [] if before == after else [f"{name}: {_value(before)} → {_value(after)}"]


def _value(value: Any) -> str:
    shown = msgspec.json.encode(value, order="sorted").decode()
    return shown if len(shown) <= _MOST_SHOWN else f"{shown[:_MOST_SHOWN]}…"


def plural(count: int, one: str, many: str | None = None) -> str:
    """1 chunk, 2 chunks; `many` where it isn't `one` and an s."""
    return f"{count} {one if count == 1 else many or one + 's'}"


def few(some: Sequence[str]) -> str:
    """The first ten, and how many more there are."""
    more = len(some) - _MOST_TOLD
    return "; ".join(some[:_MOST_TOLD]) + (f" and {more} more" if more > 0 else "")


def there_is_no(noun: str, ids: Iterable[int], nouns: str | None = None) -> str:
    """Names the first ten."""
    missing = [str(id) for id in dict.fromkeys(ids)]
    if len(missing) == 1:
        return f"There is no {noun} {missing[0]}."
    more = f" and {len(missing) - 10} more" if len(missing) > 10 else ""
    return f"There are no {nouns or f'{noun}s'} {', '.join(missing[:10])}{more}."
