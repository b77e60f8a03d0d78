"""Snippets: the stretch of a text that answers a query best, and where it matches.

Owns: finding a query's words in the text as people wrote it, whatever their form,
and cutting at word borders. Refuses to know: where texts come from, how hits rank.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from collections.abc import Sequence
from itertools import islice
from typing import Literal, NamedTuple

from kbproc.text.analysis import UNSPACED, words
from kbproc.text.names import wholes
from kbproc.text.stems import plurals, stems

ELLIPSIS = "…"
BEST_CHARS = 240  # a passage that answers is about so long
_ODD = "\x01"
_REACH = 40  # how far a cut looks for a word border; text without spaces has none
_ENGLISH_HEAD = 6  # letters of a longer stem that are looked for
_MOST_MATCHES = 200  # of one kind: a long text of one word stays cheap

Centre = Literal["densest", "first"]


class Snippet(NamedTuple):
    """`highlights` are (start, end) character offsets into `text`.

    `best`: where in the whole text most of the words stand together, as (start, end),
    however long the snippet is and wherever it was cut; None where none matches.
    """

    text: str
    highlights: list[tuple[int, int]]
    best: tuple[int, int] | None = None


class _Match(NamedTuple):
    start: int
    end: int
    word: str


def snippet(
    text: str,
    terms: Sequence[str],
    chars: int = 240,
    *,
    centre: Centre = "densest",
    in_parts: Sequence[str] = (),
) -> Snippet:
    """At most `chars` characters of `text` around where most of `terms` stand together.

    `terms` are folded words, as `parse_query` gives them. `centre="first"`: around the
    first word that matches, however many stand together later. `in_parts`: words that the text
    may write in parts (`wi-fi` of wifi). Line breaks become spaces. Without a match it is the
    beginning.
    """
    matches = _matches(text, tuple(terms))
    if in_parts:
        matches = sorted([*matches, *_in_parts(text, tuple(in_parts))])
    best = _densest(matches, BEST_CHARS)
    start, end = _window(text, matches, chars, centre, best)
    head, tail = ELLIPSIS if start else "", ELLIPSIS if end < len(text) else ""
    body = text[start:end].translate(_BLANKS)
    shift = len(head) - start
    inside = [
        (max(m.start, start) + shift, min(m.end, end) + shift)
        for m in matches
        if m.start < end and m.end > start
    ]
    return Snippet(head + body + tail, _merge(inside), _tight(matches, best) if matches else None)


def extract(text: str, best: tuple[int, int] | None, chars: int) -> str:
    """At most `chars` characters of `text` around `best`, which `snippet` returns.

    Unlike a snippet it keeps its line breaks. Without `best` it is the beginning.
    """
    if len(text) <= chars:
        return text
    first, last = best or (0, 0)
    start, end = _around(text, first, last, max(1, chars - 2 * len(ELLIPSIS)))
    head, tail = ELLIPSIS if start else "", ELLIPSIS if end < len(text) else ""
    return head + text[start:end] + tail


# Every ASCII character stands in it: one that is looked up in vain takes ten times as long.
_BLANKS = {code: chr(code) if 32 <= code < 127 else " " for code in range(128)}


class _Shape(dict[int, str]):
    """Maps a character to one folded character, or a space: offsets stay as they are.

    One that folds to none or to several (an accent of its own, ß, ﬁ) becomes `_ODD`.
    """

    def __missing__(self, code: int) -> str:
        char = chr(code)
        shape = " "
        if unicodedata.category(char)[0] in "LNM":
            folded = words(char)
            shape = folded[0] if len(folded) == 1 and len(folded[0]) == 1 else _ODD
        self[code] = shape = char if char == "_" else shape
        return shape


_SHAPE = _Shape()


@functools.lru_cache(maxsize=256)
def _search(terms: tuple[str, ...]) -> tuple[frozenset[str], list[str], list[str]]:
    """The stems looked for, what stands in every word of theirs, and the unspaced terms.

    A stem and the words that it stands for begin alike, so a scan for beginnings
    leaves few words to analyse; of a word with an odd character the beginning is unsure.
    Irregular plurals do not, so they are looked for as they are.
    An English stem differs from its words in its last letter: `happi` of `happy`, `hope` of
    `hoping`; not so `die`, `lie`, `tie`, whose `dying` nobody finds.
    """
    unspaced = [term for term in dict.fromkeys(terms) if UNSPACED.match(term)]
    pairs = [term for term in unspaced if len(term) > 1]
    lone = [term for term in unspaced if len(term) == 1 and not any(term in p for p in pairs)]
    wanted = frozenset(stems([term for term in terms if not UNSPACED.match(term)]))
    irregular = {plural for stem in wanted for plural in plurals(stem)}
    heads = [_ODD, *sorted({_beginning(stem) for stem in wanted} | irregular)]
    return wanted, heads if wanted else [], pairs + lone


def _beginning(stem: str) -> str:
    if stem.isascii():
        return stem[: max(2, min(len(stem) - 1, _ENGLISH_HEAD))]
    return stem[: 3 if len(stem) > 3 else 2]


@functools.lru_cache(maxsize=32768)
def _stems_of(word: str) -> frozenset[str]:
    return frozenset(stems(words(word)))


def _matches(text: str, terms: tuple[str, ...]) -> list[_Match]:
    wanted, heads, unspaced = _search(terms)
    if "+" in text:
        text = text.replace("++", "pp")
    flat = text.translate(_SHAPE)
    found = [
        _Match(m.start(), m.end(), term)
        for term in unspaced
        for m in islice(re.finditer(re.escape(term), flat), _MOST_MATCHES)
    ]
    if heads:
        if not flat.isascii():
            flat = UNSPACED.sub(lambda run: " " * len(run[0]), flat)
        in_words: set[_Match] = set()
        for head in heads:
            _add_matches(in_words, text, flat, wanted, head)
        found += sorted(in_words)[:_MOST_MATCHES]
    return sorted(found) if unspaced else found


def _in_parts(text: str, words_in_parts: tuple[str, ...]) -> list[_Match]:
    targets = frozenset(stems(words_in_parts))
    names = wholes(text)
    pairs = zip(names, stems([name.word for name in names]), strict=True)
    matches = [_Match(name.start, name.end, stem) for name, stem in pairs if stem in targets]
    return matches[:_MOST_MATCHES]


def _add_matches(
    found: set[_Match], text: str, flat: str, wanted: frozenset[str], head: str
) -> None:
    """The words of `flat`, parted by spaces, that hold `head` and of which `wanted` holds a stem.

    Looking for one head after the other takes a quarter of what a pattern of all of them takes.
    """
    at, left = flat.find(head), _MOST_MATCHES
    while at >= 0 and left:
        start, end = flat.rfind(" ", 0, at) + 1, flat.find(" ", at)
        end = len(flat) if end < 0 else end
        common = wanted & _stems_of(text[start:end])
        if common:
            found.add(_Match(start, end, min(common)))
            left -= 1
        at = flat.find(head, end)


def _window(
    text: str, found: list[_Match], chars: int, centre: Centre, best: tuple[int, int]
) -> tuple[int, int]:
    """Where to cut `text` so that `found`'s first or densest part stands in the middle.

    `best`: the densest of at most BEST_CHARS; if there is room for it, but not for more, none is
    denser.
    """
    if len(text) <= chars:
        return 0, len(text)
    room = max(1, chars - 2 * len(ELLIPSIS))
    if centre == "first":
        first, last = _first(found)
    elif best[1] - best[0] <= room <= BEST_CHARS:
        first, last = best
    else:
        first, last = _densest(found, room)
    return _around(text, first, last, room)


def _around(text: str, first: int, last: int, room: int) -> tuple[int, int]:
    """The borders of words between which `first` to `last` stands in the middle of `room`."""
    start = max(0, min(first, (first + last - room) // 2, len(text) - room))
    end = min(len(text), start + room)
    return _start(text, start, first), _end(text, end, min(last, end))


def _first(found: list[_Match]) -> tuple[int, int]:
    return (found[0].start, found[0].end) if found else (0, 0)


def _densest(found: list[_Match], room: int) -> tuple[int, int]:
    """The first stretch of at most `room` characters with the most distinct words."""
    best, span, left, distinct = 0, (0, 0), 0, 0
    inside: dict[str, int] = {}
    for at, (_, end, word) in enumerate(found):
        distinct += not inside.get(word)
        inside[word] = inside.get(word, 0) + 1
        while end - found[left].start > room and left < at:
            gone = found[left].word
            inside[gone] -= 1
            distinct -= not inside[gone]
            left += 1
        if distinct > best:
            best, span = distinct, (found[left].start, end)
    return span


def _tight(found: list[_Match], span: tuple[int, int]) -> tuple[int, int]:
    """Without leading words that come again further on."""
    first, last = span
    inside = [(start, word) for start, end, word in found if first <= start and end <= last]
    final = {word: start for start, word in inside}
    return next((start for start, word in inside if final[word] == start), first), last


def _start(text: str, at: int, limit: int) -> int:
    """The first word border from `at` on, near and not after `limit`."""
    if at == 0:
        return 0
    for border in range(at, min(limit, at + _REACH) + 1):
        if text[border - 1].isspace():
            return border
    while at < limit and _joined(text, at):
        at += 1
    return at


def _end(text: str, at: int, limit: int) -> int:
    """The last word border up to `at`, near and not before `limit`."""
    if at == len(text):
        return at
    for border in range(at, max(limit, at - _REACH) - 1, -1):
        if text[border].isspace():
            return border
    while at > limit and _joined(text, at):
        at -= 1
    return at


def _joined(text: str, at: int) -> bool:
    """Whether a cut at `at` would part a letter from its mark, or an emoji from its kind."""
    char = text[at]
    return (
        unicodedata.category(char)[0] == "M"
        or "\u200d" in text[at - 1 : at + 1]
        or "\U0001f3fb" <= char <= "\U0001f3ff"
    )


def _merge(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Sorted spans, with those that overlap or touch made one."""
    merged: list[tuple[int, int]] = []
    for start, end in spans:
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged
