"""Finds texts that say nearly the same, and leaves out those that repeat a better one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

from kbproc.base.text.analysis import words
from kbproc.base.text.stems import stems

T = TypeVar("T")
# The share of the smaller text's words that the other text has; from here on one is enough.
_ALIKE = 0.8


def unlike(ranked: Iterable[tuple[T, str]], repeated: dict[T, list[T]]) -> Iterator[T]:
    """Yields the names of texts that repeat no better one; `ranked` is best first.

    The others are noted in `repeated`, under the one that they repeat.
    """
    originals: list[tuple[T, frozenset[str]]] = []
    for name, text in ranked:
        own_words = frozenset(words(text))
        first = next(
            (
                other
                for other, other_words in originals
                if _contained(own_words, other_words) >= _ALIKE
            ),
            None,
        )
        if first is None:
            originals.append((name, own_words))
            yield name
        else:
            repeated.setdefault(first, []).append(name)


def forms(text: str) -> frozenset[str]:
    """Returns the stems of the text's words, for `likeness`."""
    return frozenset(stems(words(text)))


def likeness(one: frozenset[str], other: frozenset[str]) -> float:
    """Returns the share of common forms in all forms of both texts, 0 to 1 (Dice, 1945)."""
    return 2 * len(one & other) / max(1, len(one) + len(other))


def _contained(one: frozenset[str], other: frozenset[str]) -> float:
    return len(one & other) / max(1, min(len(one), len(other)))
