"""The valid names most like one that was given.

Owns: how alike is alike enough, and the words that suggest a name.
Refuses to know: what the names stand for.
"""

from __future__ import annotations

from collections.abc import Iterable

_MOST_COMPARED = 100  # characters: comparing takes their square


def nearest(name: str, valid: Iterable[str], *, most: int = 5) -> list[str]:
    """The valid names most like `name`, best first; if none is, what there is, at most 20."""
    names = sorted(valid)
    begin_alike = [other for other in names if name and other.startswith(name)]
    near = dict.fromkeys([*_like(name, names, most, 0.5), *begin_alike])
    return list(near)[:most] or names[:20]


def ranked(name: str, valid: Iterable[str]) -> list[str]:
    """All valid names, those most like `name` first."""
    return sorted(sorted(valid), key=lambda other: -_likeness(name, other))


def closest(name: str, valid: Iterable[str]) -> str | None:
    """The valid name that was probably meant; None if none, or more than one, is much like it."""
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


def did_you_mean(said: str | None) -> str:
    """The beginning of a hint, from what `alike` found."""
    return "" if said is None else f"Did you mean {said}? "
