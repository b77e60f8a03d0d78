"""Cuts the part of a text that answers a query best, and finds its matches.

A query's words are found in the text as people wrote it, in any form, and the cut is at word
borders.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from itertools import islice
from typing import Literal

from msgspec import Struct

from kbproc.base.text.analysis import UNSPACED, is_unspaced, words
from kbproc.base.text.names import wholes
from kbproc.base.text.stems import plurals, stem_of, stems

ELLIPSIS = "…"
BEST_CHARS = 240  # about the length of a passage that answers
_ODD = "\x01"
_REACH = 40  # how far a cut looks for a word border; text without spaces has none
_ENGLISH_HEAD = 6  # letters of a longer stem that the search uses
_MOST_MATCHES = 200  # for each kind of match, so that a long text of one word stays cheap

Centre = Literal["densest", "first"]


class Snippet(Struct, frozen=True):
    """A cut text; `highlights` are (start, end) character offsets into it.

    `best`: the place in the whole text with most of the words together, as (start, end), however
    long the snippet is and wherever it was cut; None without a match.
    """

    text: str
    highlights: list[tuple[int, int]]
    best: tuple[int, int] | None = None


class _WordMatch(Struct, frozen=True, order=True):
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
    """Returns at most `chars` characters of `text` around the place with most of `terms`.

    `terms` are folded words from `parse_query`. `centre="first"`: around the first word that
    matches, even if more stand together later. `in_parts`: words that the text may write in parts
    (`wi-fi` for wifi). Line breaks become spaces. Without a match it is the beginning.
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


def counts(text: str, terms: Sequence[str]) -> Counter[str]:
    """Returns how often a text holds words of each stem of `terms`, in any form."""
    return Counter(match.word for match in _matches(text, tuple(terms)))


def beginnings(terms: Sequence[str]) -> list[str]:
    """Returns beginnings of folded words: a text in ASCII without any of them holds no term."""
    return [head for head in _search(tuple(terms))[1] if head != _ODD]


def extract(text: str, best: tuple[int, int] | None, chars: int) -> str:
    """Returns at most `chars` characters of `text` around `best`, which `snippet` returns.

    Unlike a snippet it keeps its line breaks. Without `best` it is the beginning.
    """
    if len(text) <= chars:
        return text
    first, last = best or (0, 0)
    start, end = _around(text, first, last, max(1, chars - 2 * len(ELLIPSIS)))
    head, tail = ELLIPSIS if start else "", ELLIPSIS if end < len(text) else ""
    return head + text[start:end] + tail


# The table holds every ASCII character, because a failed look-up takes ten times as long.
_BLANKS = {code: chr(code) if 32 <= code < 127 else " " for code in range(128)}


class _SnippetShape(dict[int, str]):
    """Maps a character to one folded character, or a space, so that offsets stay the same.

    A character that folds to none or to several (a lone accent, ß, ﬁ) becomes `_ODD`.
    """

    def __missing__(self, code: int) -> str:
        char = chr(code)
        shape = " "
        if unicodedata.category(char)[0] in "LNM":
            folded = words(char)
            shape = folded[0] if len(folded) == 1 and len(folded[0]) == 1 else _ODD
        self[code] = shape = char if char == "_" else shape
        return shape


_SHAPE = _SnippetShape()


@functools.lru_cache(maxsize=256)
def _search(terms: tuple[str, ...]) -> tuple[frozenset[str], list[str], list[str]]:
    """Returns the stems to find, a part of each word with such a stem, and the unspaced terms.

    A stem and its words begin alike, so a scan for beginnings leaves few words to analyse; a word
    with an odd character may begin differently. Irregular plurals do, so they are looked for as
    they are. An English stem differs from its words in its last letter: `happi` of `happy`, `hope`
    of `hoping`; not so `die`, `lie`, `tie`, so their forms `dying`, `lying`, `tying` are not found.
    """
    unspaced = [term for term in dict.fromkeys(terms) if is_unspaced(term)]
    pairs = [term for term in unspaced if len(term) > 1]
    lone = [term for term in unspaced if len(term) == 1 and not any(term in p for p in pairs)]
    sought = frozenset(stems([term for term in terms if not is_unspaced(term)]))
    irregular = {plural for stem in sought for plural in plurals(stem)}
    heads = [_ODD, *sorted({_beginning(stem) for stem in sought} | irregular)]
    return sought, heads if sought else [], pairs + lone


def _beginning(stem: str) -> str:
    if stem.isascii():
        return stem[: max(2, min(len(stem) - 1, _ENGLISH_HEAD))]
    return stem[: 3 if len(stem) > 3 else 2]


@functools.lru_cache(maxsize=32768)
def _stems_of(word: str) -> frozenset[str]:
    return frozenset(stems(words(word)))


@functools.lru_cache(maxsize=32)  # because a search asks more than once for its best hits
def _matches(text: str, terms: tuple[str, ...]) -> Sequence[_WordMatch]:
    sought, heads, unspaced = _search(terms)
    if "+" in text:
        text = text.replace("++", "pp")
    flat = text.translate(_SHAPE)
    matches = [
        _WordMatch(m.start(), m.end(), term)
        for term in unspaced
        for m in islice(re.finditer(re.escape(term), flat), _MOST_MATCHES)
    ]
    if heads:
        if not flat.isascii():
            flat = UNSPACED.sub(lambda run: " " * len(run[0]), flat)
        in_words: set[_WordMatch] = set()
        for head in heads:
            _add_matches(in_words, text, flat, sought, head)
        matches += sorted(in_words)[:_MOST_MATCHES]
    return tuple(sorted(matches) if unspaced else matches)


def _in_parts(text: str, words_in_parts: tuple[str, ...]) -> list[_WordMatch]:
    targets = frozenset(stems(words_in_parts))
    stemmed = ((name, stem_of(name.word)) for name in wholes(text))
    matches = (_WordMatch(name.start, name.end, stem) for name, stem in stemmed if stem in targets)
    return list(islice(matches, _MOST_MATCHES))


def _add_matches(
    matches: set[_WordMatch], text: str, flat: str, sought: frozenset[str], head: str
) -> None:
    """Adds the words of `flat`, parted by spaces, that hold `head` and have one of these stems.

    Searching for one head after another takes a quarter of the time of one pattern for all.
    """
    at, remaining = flat.find(head), _MOST_MATCHES
    while at >= 0 and remaining:
        start, end = flat.rfind(" ", 0, at) + 1, flat.find(" ", at)
        end = len(flat) if end < 0 else end
        common = sought & _stems_of(text[start:end])
        if common:
            matches.update(_WordMatch(start, end, stem) for stem in common)
            remaining -= 1
        at = flat.find(head, end)


def _window(
    text: str, matches: Sequence[_WordMatch], chars: int, centre: Centre, best: tuple[int, int]
) -> tuple[int, int]:
    """Returns the cut of `text` with the first or densest matches in the middle.

    `best`: the densest place of at most BEST_CHARS; if the room fits it and is not larger, no other
    place is denser.
    """
    if len(text) <= chars:
        return 0, len(text)
    room = max(1, chars - 2 * len(ELLIPSIS))
    if centre == "first":
        first, last = _first(matches)
    elif best[1] - best[0] <= room <= BEST_CHARS:
        first, last = best
    else:
        first, last = _densest(matches, room)
    return _around(text, first, last, room)


def _around(text: str, first: int, last: int, room: int) -> tuple[int, int]:
    """Returns word borders around `first` to `last`, in the middle of `room` characters."""
    start = max(0, min(first, (first + last - room) // 2, len(text) - room))
    end = min(len(text), start + room)
    return _start(text, start, first), _end(text, end, min(last, end))


def _first(matches: Sequence[_WordMatch]) -> tuple[int, int]:
    return (matches[0].start, matches[0].end) if matches else (0, 0)


def _densest(matches: Sequence[_WordMatch], room: int) -> tuple[int, int]:
    """Returns the first range of at most `room` characters with the most distinct words."""
    best, span, first, distinct = 0, (0, 0), 0, 0
    inside: dict[str, int] = {}
    for at, match in enumerate(matches):
        end, word = match.end, match.word
        distinct += not inside.get(word)
        inside[word] = inside.get(word, 0) + 1
        while end - matches[first].start > room and first < at:
            dropped = matches[first].word
            inside[dropped] -= 1
            distinct -= not inside[dropped]
            first += 1
        if distinct > best:
            best, span = distinct, (matches[first].start, end)
    return span


def _tight(matches: Sequence[_WordMatch], span: tuple[int, int]) -> tuple[int, int]:
    """Returns the range without leading words that occur again in it."""
    first, last = span
    inside = [match for match in matches if first <= match.start and match.end <= last]
    final = {match.word: match.start for match in inside}
    starts = (match.start for match in inside if final[match.word] == match.start)
    return next(starts, first), last


def _start(text: str, at: int, limit: int) -> int:
    """Returns the first word border from `at` on, near and not after `limit`."""
    if at == 0:
        return 0
    for border in range(at, min(limit, at + _REACH) + 1):
        if text[border - 1].isspace():
            return border
    while at < limit and _joined(text, at):
        at += 1
    return at


def _end(text: str, at: int, limit: int) -> int:
    """Returns the last word border up to `at`, near and not before `limit`."""
    if at == len(text):
        return at
    for border in range(at, max(limit, at - _REACH) - 1, -1):
        if text[border].isspace():
            return border
    while at > limit and _joined(text, at):
        at -= 1
    return at


def _joined(text: str, at: int) -> bool:
    """Returns whether a cut at `at` would part a letter from its mark, or an emoji from its
    modifier.
    """
    char = text[at]
    return (
        unicodedata.category(char)[0] == "M"
        or "\u200d" in text[at - 1 : at + 1]
        or "\U0001f3fb" <= char <= "\U0001f3ff"
    )


def _merge(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Returns sorted spans, merging those that overlap or touch."""
    merged: list[tuple[int, int]] = []
    for start, end in spans:
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged
