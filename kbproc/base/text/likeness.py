"""Which texts say nearly the same.

Owns: when two texts do, and leaving out those that repeat a better one.
Refuses to know: how texts are found.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

from kbproc.text.analysis import words
from kbproc.text.stems import stems

T = TypeVar("T")
# Of the words of the smaller text: then one of the two is enough.
_ALIKE = 0.8


def unlike(ranked: Iterable[tuple[T, str]], repeated: dict[T, list[T]]) -> Iterator[T]:
    """Of names with their texts, best first, those that repeat no better one.

    The others are noted in `repeated`, under the one that they repeat.
    """
    kept: list[tuple[T, frozenset[str]]] = []
    for name, text in ranked:
        said = frozenset(words(text))
        first = next((other for other, had in kept if _contained(said, had) >= _ALIKE), None)
        if first is None:
            kept.append((name, said))
            yield name
        else:
            repeated.setdefault(first, []).append(name)


def likeness(one: str, other: str) -> float:
    """The words in common, in any form, of all words of both, from 0 to 1 (Dice, 1945)."""
    first, second = frozenset(stems(words(one))), frozenset(stems(words(other)))
    return 2 * len(first & second) / max(1, len(first) + len(second))


def _contained(one: frozenset[str], other: frozenset[str]) -> float:
    return len(one & other) / max(1, min(len(one), len(other)))
