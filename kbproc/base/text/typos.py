"""Finds words that differ by one typing mistake, by script."""

from __future__ import annotations

import functools
from collections.abc import Iterator

from kbproc.base.text.caches import cached

# Folded letters of the scripts that are typed letter by letter.
_ALPHABETS = (
    "abcdefghijklmnopqrstuvwxyz",
    "абвгдежзийклмнопрстуфхцчшщъыьэюя",
    "αβγδεζηθικλμνξοπρστυφχψω",
    "ابتثجحخدذرزسشصضطظعغفقكلمنهوي",
    "אבגדהוזחטיכלמנסעפצקרשתךםןףץ",
)
LEAST_LETTERS = 4
# Almost any other letter makes another word of a shorter one (kind, king), so there only a letter
# beside the right one on the keyboard counts as a mistake.
_LONG = 6
_KEYS = ("qwertyuiop", "asdfghjkl", "zxcvbnm")


def may_be_mistyped(word: str) -> bool:
    """Returns whether a folded word is long enough, and all letters."""
    return len(word) >= LEAST_LETTERS and _alphabet(word) != ""


def one_slip_away(word: str) -> Iterator[str]:
    """Yields every word with one letter more, less or replaced, or two letters swapped."""
    letters, long = _alphabet(word), len(word) >= _LONG
    for at in range(len(word) + 1):
        before, after = word[:at], word[at:]
        for letter in letters:
            yield before + letter + after
            if after and letter != after[0] and (long or letter in _beside(after[0])):
                yield before + letter + after[1:]
        if after:
            yield before + after[1:]
        if len(after) > 1 and after[0] != after[1]:
            yield before + after[1] + after[0] + after[2:]


@functools.cache
def _beside(letter: str) -> str:
    """The keys around a key, none for one of another keyboard."""
    places = {key: (x, y) for y, row in enumerate(_KEYS) for x, key in enumerate(row)}
    if letter not in places:
        return ""
    x, y = places[letter]
    return "".join(key for key, (a, b) in places.items() if abs(a - x) <= 1 and abs(b - y) <= 1)


@cached(8192)
def _alphabet(word: str) -> str:
    return next((letters for letters in _ALPHABETS if set(word) <= set(letters)), "")
