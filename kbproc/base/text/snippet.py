"""Cuts the part of a text that answers a query best, and finds its matches.

A query's words are found in the text as people wrote it, in any form, and the cut is at word
borders.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from itertools import islice
from typing import Literal

from msgspec import Struct

from kbproc.base.patterns import lazy
from kbproc.base.text.analysis import UNSPACED, is_unspaced, translated, words
from kbproc.base.text.caches import cached
from kbproc.base.text.names import wholes
from kbproc.base.text.stems import plurals, stem_of, stems

ELLIPSIS = "…"
BEST_CHARS = 240  # about the length of a passage that answers
_ODD = "\x01"
_REACH = 40  # how far a cut looks for a word border; text without spaces has none
_ENGLISH_HEAD = 6  # letters of a longer stem that are its beginning
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


# Start and end of a word in a text, and the stem by which it matches.
_WordMatch = tuple[int, int, str]


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
    if in_parts and (others := _in_parts(text, tuple(in_parts))):
        matches = sorted([*matches, *others])
    best = _densest(matches, BEST_CHARS)
    start, end = _window(text, matches, chars, centre, best)
    head, tail = ELLIPSIS if start else "", ELLIPSIS if end < len(text) else ""
    body = _CONTROL.sub(" ", text[start:end])
    highlights = _highlights(matches, start, end, len(head) - start)
    return Snippet(head + body + tail, highlights, _tight(matches, best) if matches else None)


def counts(text: str, terms: Sequence[str]) -> Counter[str]:
    """Returns how often a text holds words of each stem of `terms`, in any form."""
    return Counter(stem for _, _, stem in _matches(text, tuple(terms)))


def stems_in(text: str, terms: Sequence[str], in_parts: Sequence[str] = ()) -> frozenset[str]:
    """Returns those stems of `terms` and `in_parts` of which a text holds a word; see `snippet`."""
    matches = _matches(text, tuple(terms))
    others = _in_parts(text, tuple(in_parts)) if in_parts else []
    return frozenset([stem for _, _, stem in (*matches, *others)])


def stems_sought(terms: Sequence[str]) -> frozenset[str]:
    """Returns the stems by which terms are found, except those of scripts without spaces."""
    return _sought(tuple(terms)).stems


def beginnings(terms: Sequence[str]) -> Sequence[str]:
    """Returns beginnings of folded words: a text in ASCII without any of them holds no term."""
    return _sought(tuple(terms)).beginnings


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


_CONTROL = lazy(r"[\x00-\x1f\x7f]")
_SPACE = lazy(r"\s")


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
_SHAPE_OF_ASCII = bytes(
    ord(char.lower() if char.isalnum() or char == "_" else " ") for char in map(chr, range(128))
) + bytes(range(128, 256))


class _Sought(Struct, frozen=True):
    """Stems to find in texts, and terms of scripts without spaces.

    `beginnings`: each word with one of the stems begins with one of these. Irregular plurals begin
    unlike their stem, so they are among them. An English stem differs from its words in its last
    letter: `happi` of `happy`, `hope` of `hoping`; not so `die`, `lie`, `tie`, so their forms
    `dying`, `lying`, `tying` are not found.
    """

    stems: frozenset[str]
    beginnings: tuple[str, ...]
    unspaced: tuple[str, ...]


@cached(256)
def _sought(terms: tuple[str, ...]) -> _Sought:
    unspaced = [term for term in dict.fromkeys(terms) if is_unspaced(term)]
    pairs = [term for term in unspaced if len(term) > 1]
    lone = [term for term in unspaced if len(term) == 1 and not any(term in p for p in pairs)]
    sought = frozenset(stems([term for term in terms if not is_unspaced(term)]))
    irregular = {plural for stem in sought for plural in plurals(stem)}
    beginnings: list[str] = []
    for beginning in sorted({_beginning(stem) for stem in sought} | irregular):
        if not (beginnings and beginning.startswith(beginnings[-1])):
            beginnings.append(beginning)
    return _Sought(sought, tuple(beginnings), (*pairs, *lone))


def _beginning(stem: str) -> str:
    if stem.isascii():
        return stem[: max(2, min(len(stem) - 1, _ENGLISH_HEAD))]
    return stem[: 3 if len(stem) > 3 else 2]


@cached(32768)
def _stems_of(run: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(stems(words(run))))


@cached(32)  # because a search asks more than once for its best hits
def _matches(text: str, terms: tuple[str, ...]) -> Sequence[_WordMatch]:
    sought = _sought(terms)
    if "+" in text:
        text = text.replace("++", "pp")
    flat = translated(text, _SHAPE, _SHAPE_OF_ASCII)
    matches = [
        (match.start(), match.end(), term)
        for term in sought.unspaced
        for match in islice(re.finditer(re.escape(term), flat), _MOST_MATCHES)
    ]
    if sought.stems:
        matches += _in_words(text, flat, sought)[:_MOST_MATCHES]
    return sorted(matches) if sought.unspaced else matches


def _in_words(text: str, flat: str, sought: _Sought) -> list[_WordMatch]:
    """Returns the runs of `flat`, parted by spaces, that have one of the stems, in order.

    A run of small letters is one word, so that none begins within it. In other runs a word may
    begin anywhere, and one with an odd character with any letter.
    """
    beginnings, all_plain = sought.beginnings, flat.isascii()
    if not all_plain:
        flat = UNSPACED.sub(lambda run: " " * len(run[0]), flat)
    if _ODD in flat:
        beginnings, all_plain = (_ODD, *beginnings), False
    matches: list[_WordMatch] = []
    find, stems_sought = flat.find, sought.stems
    for beginning in beginnings:
        at, remaining = find(beginning), _MOST_MATCHES
        while at >= 0 and remaining:
            start, end = at, find(" ", at)
            if end < 0:
                end = len(flat)
            if at and flat[at - 1] != " ":
                rest = text[at - 1 : end]
                if all_plain and rest.islower() and "_" not in rest:
                    at = find(beginning, end)
                    continue
                start = flat.rfind(" ", 0, at) + 1
            for stem in _stems_of(text[start:end]):
                if stem in stems_sought:
                    matches.append((start, end, stem))
                    remaining -= 1
            at = find(beginning, end)
    return sorted({*matches}) if len(beginnings) > 1 else matches


def _in_parts(text: str, words_in_parts: tuple[str, ...]) -> list[_WordMatch]:
    targets, letters = _parts_sought(words_in_parts)
    stemmed = ((name, stem_of(name.word)) for name in wholes(text, letters))
    matches = ((name.start, name.end, stem) for name, stem in stemmed if stem in targets)
    return list(islice(matches, _MOST_MATCHES))


@cached(256)
def _parts_sought(words_in_parts: tuple[str, ...]) -> tuple[frozenset[str], tuple[str, ...]]:
    """Returns the stems of the words, and letters of which each of their forms has some.

    The `v` of a version is left out, because a text may write it without.
    """
    heads = (head.lstrip("v") or head for head in _sought(words_in_parts).beginnings)
    return frozenset(stems(words_in_parts)), tuple(heads)


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
    return matches[0][:2] if matches else (0, 0)


def _densest(matches: Sequence[_WordMatch], room: int) -> tuple[int, int]:
    """Returns the first range of at most `room` characters with the most distinct words."""
    best, span, first, distinct = 0, (0, 0), 0, 0
    inside: dict[str, int] = {}
    for at, (_, end, word) in enumerate(matches):
        count = inside.get(word, 0)
        inside[word] = count + 1
        distinct += not count
        while end - matches[first][0] > room and first < at:
            dropped = matches[first][2]
            inside[dropped] -= 1
            distinct -= not inside[dropped]
            first += 1
        if distinct > best:
            best, span = distinct, (matches[first][0], end)
    return span


def _tight(matches: Sequence[_WordMatch], span: tuple[int, int]) -> tuple[int, int]:
    """Returns the range without leading words that occur again in it."""
    first, last = span
    final = {word: start for start, end, word in matches if first <= start and end <= last}
    return min(final.values(), default=first), last


def _start(text: str, at: int, limit: int) -> int:
    """Returns the first word border from `at` on, near and not after `limit`."""
    if at == 0:
        return 0
    if space := _SPACE.search(text, at - 1, min(limit, at + _REACH)):
        return space.end()
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


def _highlights(
    matches: Sequence[_WordMatch], start: int, end: int, shift: int
) -> list[tuple[int, int]]:
    """Returns the matches between `start` and `end`, moved by `shift`.

    Those that overlap or touch become one.
    """
    spans: list[tuple[int, int]] = []
    last = -1
    for match_start, match_end, _ in matches:
        if match_end <= start:
            continue
        if match_start >= end:
            break
        first = (match_start if match_start > start else start) + shift
        past = (match_end if match_end < end else end) + shift
        if first > last:
            spans.append((first, past))
            last = past
        elif past > last:
            spans[-1] = (spans[-1][0], past)
            last = past
    return spans
