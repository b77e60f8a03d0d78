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
    return _like(name, names, most, 0.5) or names[:20]


def closest(name: str, valid: Iterable[str]) -> str | None:
    """The valid name that may have been meant; None if none is much like `name`."""
    near = _like(name, sorted(valid), 1, 0.6)
    return near[0] if near else None


def _like(name: str, names: list[str], most: int, cutoff: float) -> list[str]:
    import difflib

    return difflib.get_close_matches(name[:_MOST_COMPARED], names, n=most, cutoff=cutoff)


def did_you_mean(said: str | None) -> str:
    """The beginning of a hint, from what `alike` found."""
    return "" if said is None else f"Did you mean {said}? "
