"""Finds the valid names that are most like a given one, for hints."""

from __future__ import annotations

from collections.abc import Iterable

_MOST_COMPARED = 100  # characters, because comparing takes time by their square


def nearest(name: str, valid: Iterable[str], *, most: int = 5) -> list[str]:
    """Returns the valid names most like `name`, best first; if none is, up to 20 of all."""
    names = sorted(valid)
    begin_alike = [other for other in names if name and other.startswith(name)]
    near = dict.fromkeys([*_like(name, names, most, 0.5), *begin_alike])
    return list(near)[:most] or names[:20]


def ranked(name: str, valid: Iterable[str]) -> list[str]:
    """Returns all valid names, those most like `name` first."""
    return sorted(sorted(valid), key=lambda other: -_likeness(name, other))


def closest(name: str, valid: Iterable[str]) -> str | None:
    """Returns the valid name that was probably meant; None if none or more than one is close."""
    near = _like(name, sorted(set(valid)), 2, 0.7)
    if not near or (len(near) == 2 and _likeness(name, near[0]) == _likeness(name, near[1])):
        return None
    return near[0]


def _like(name: str, names: list[str], most: int, cutoff: float) -> list[str]:
    import difflib

    typed = name[:_MOST_COMPARED]
    swapped = [other for other in names if other != typed and sorted(other) == sorted(typed)]
    near = difflib.get_close_matches(typed, names, n=most, cutoff=cutoff)
    return list(dict.fromkeys([*swapped, *near]))[:most]


def _likeness(name: str, other: str) -> float:
    import difflib

    return difflib.SequenceMatcher(None, other, name[:_MOST_COMPARED]).ratio()


def did_you_mean(name: str | None) -> str:
    """Returns the beginning of a hint from the name that `closest` found."""
    return "" if name is None else f"Did you mean {name}? "
