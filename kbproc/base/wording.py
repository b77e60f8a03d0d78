"""Writes numbers, ids and values in messages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

_MOST_SHOWN = 200  # characters of a value
_MOST_TOLD = 10


def change(name: str, before: Any, after: Any) -> list[str]:
    """Returns `title: "Old" → "New"` for a plan; nothing if the values are equal."""
    return [] if before == after else [f"{name}: {_value(before)} → {_value(after)}"]


def _value(value: Any) -> str:
    text = msgspec.json.encode(value, order="sorted").decode()
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}…"


def plural(count: int, one: str, many: str | None = None) -> str:
    """Returns 1 chunk, 2 chunks; `many` is the plural if it isn't `one` with an s."""
    return f"{count} {one if count == 1 else many or one + 's'}"


def pending_in_words(pending: int, total: int) -> str:
    """Returns a sentence that says how many of a store's passages lack their vectors."""
    passages = "passage" if total == 1 else "passages"
    are = "is" if pending == 1 else "are"
    return f"{pending:,} of {total:,} {passages} {are} found by words only as yet."


def duration_in_words(seconds: float) -> str:
    """Returns 40 s, 14 min or 2 h 5 min."""
    if seconds < 60:
        return f"{max(1, round(seconds))} s"
    minutes = round(seconds / 60)
    hours = f"{minutes // 60} h " if minutes >= 60 else ""
    return f"{hours}{minutes % 60} min"


def failure_in_words(path: str, message: str, short: str) -> str:
    """Returns a line about a failure at `path`, which it calls `short`.

    Most messages begin with the file's name, which is not repeated.
    """
    name = path.rpartition("/")[2]
    if name and message.startswith((f"{name} ", f"{name}:")):
        return short + message.removeprefix(name)
    return f"{short}: {message}"


def few(texts: Sequence[str], total: int = 0) -> str:
    """Returns the first ten, and the number of the others, of which not all need be there."""
    more = max(total, len(texts)) - _MOST_TOLD
    return "; ".join(texts[:_MOST_TOLD]) + (f" and {more} more" if more > 0 else "")


def there_is_no(noun: str, ids: Iterable[int], nouns: str | None = None) -> str:
    """Returns a sentence that names up to ten missing ids."""
    missing = [str(id) for id in dict.fromkeys(ids)]
    if len(missing) == 1:
        return f"There is no {noun} {missing[0]}."
    more = f" and {len(missing) - 10} more" if len(missing) > 10 else ""
    return f"There are no {nouns or f'{noun}s'} {', '.join(missing[:10])}{more}."


def source_changes_in_words(changes: Sequence[Mapping[str, Any]]) -> str:
    """Returns what has changed of an entry's sources; "" for none. `changes`: of an answer."""
    if not changes:
        return ""
    first, more = changes[0], f" and {len(changes) - 1} more" if len(changes) > 1 else ""
    change = "" if first["change"] == "changed" else f" is {first['change']}"
    return f"source changed since: {first['cite']}{change}{more}"
