"""Finds words that a text writes in parts, each as one word: names, codes, numbers, compounds.

Parts with a mark between them may be one word: dots of names, dashes, apostrophes, separators of
thousands, hyphens at a line's end.

Each pattern takes time in proportion to the text: it is possessive, or can begin only where a run
of letters begins. Patterns work on the text as it stands, because a snippet marks the same
characters.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from msgspec import Struct

from kbproc.base.patterns import lazy
from kbproc.base.text.analysis import CACHED_RUNS, SHORT_RUN, folded, near, runs
from kbproc.base.text.caches import cached

# Parts with dots between, one of which has a letter, but no initials, or three numbers and more;
# and parts with dashes between, with both a letter and a digit among them. The guard finds every
# possible place; it begins with signs that few texts hold, so it skips the rest fast.
_JOINT = lazy(
    r"[.-](?:(?<=[A-Za-z0-9_][.])[A-Za-z0-9_]|(?<=[0-9]-)[A-Za-z0-9]|(?<=[A-Za-z]-)[0-9])"
)
_NAME = lazy(
    r"(?<![\w.-])(?:"
    r"[vV]?[0-9]+(?:\.[0-9]+){2,}|[vV][0-9]+\.[0-9]+"
    r"|(?=[0-9.]*[A-Za-z_])(?=[\w.]*\w\w)[A-Za-z0-9_]+(?:\.[A-Za-z0-9_]+)+"
    r"|(?=[0-9-]*[A-Za-z])(?=[A-Za-z-]*[0-9])[A-Za-z0-9]+(?:-[A-Za-z0-9]+)+"
    r")(?![\w-])"
)

# Thousands: groups of three digits after a first of one to three, with one kind of separator
# throughout, or groups of two and a last of three, as in India. More than seven groups are a
# table's row.
_POINT = "[,.'’ʼ٬，．]"
_SPACE = "[ \u00a0\u2007-\u200a\u202f]"
_MAY_BE_NUMBER = lazy(rf"(?:{_POINT}|{_SPACE})(?<=\d.)(?=\d\d)")
_NUMBER = lazy(
    rf"(?<![\w-])(?<!\d{_POINT})(?:"
    rf"\d{{1,3}}+({_POINT})\d{{3}}(?:\1\d{{3}}){{0,5}}+(?![\d_]|\1\d)"
    rf"|(?<!\d{_SPACE})\d{{1,3}}+({_SPACE})\d{{3}}(?:\2\d{{3}}){{0,5}}+(?![\d_]|\2\d)"
    r"|\d{1,2}+(?:,\d\d(?!\d)){1,5}+,\d{3}(?![\d_]|,\d)"
    r")"
)
_LONGEST_NUMBER = 28
_SPACED_THOUSANDS = lazy(rf"{_SPACE}(?<=\d.)(?=\d)")

# A word with its accents, vowel signs and soft hyphens.
_MARKS = (
    "\u00ad\u0300-\u036f\u0591-\u05bd\u05bf\u05c1\u05c2\u05c7\u064b-\u065f\u0670"
    "\u0900-\u0963\u0971-\u0dff\u1ab0-\u1aff\u20d0-\u20ff"
)
_WORD = rf"[^\W_]++(?:[{_MARKS}][^\W_]*+)*+"
_BEGINS = rf"(?<![^\W_])(?<![{_MARKS}])"
_DASH = r"(?:[-\u2010\u2011·‧]|(?<=\u00ad)(?=[ \t]{0,8}+\r?\n))(?:[ \t]{0,8}+\r?\n[ \t]{0,8}+)?"
_MAY_BE_DASHED = lazy(rf"[-\u2010\u2011\u00ad·‧](?<=[^\W_{_MARKS}].)(?=[^\W_]|\s)")
_DASHED = lazy(rf"{_BEGINS}{_WORD}(?:{_DASH}{_WORD})++")
_DASHES = lazy(_DASH)
_MOST_PARTS = 3  # "state-of-the-art" is never written as one word
_BREAK = 20  # characters, as many as a dash with a line's end can take

_APOSTROPHES = "'’‘‛ʹ′`＇׳״"
_MAY_BE_ABBREVIATED = lazy(rf"[{_APOSTROPHES}](?<=[^\W\d_].)[^\W\d_]")
_ABBREVIATED = lazy(rf"{_BEGINS}{_WORD}(?:[{_APOSTROPHES}]{_WORD})++")
_AT_APOSTROPHES = lazy(f"[{_APOSTROPHES}]")
# "it's", "we'll" and "don't" end in these, which are no part of a name.
_ENDINGS = frozenset(["s", "d", "m", "t", "ll", "re", "ve"])
# French, Italian and Catalan put these before a word, which is a word of its own.
_PREFIXES = """
l d j m t s n c qu jusqu lorsqu puisqu quoiqu presqu aujourd entr
all dall dell nell sull coll un quell quest bell sant cent
"""
_ELIDED = frozenset(_PREFIXES.split())
# An acronym: with the mark of its own, or with the quotation mark that keyboards have.
_GERSHAYIM = lazy(r'"(?<=[א-ת]")(?=[א-ת])')


class Whole(Struct, frozen=True):
    """The folded `word` that stands in a text from `start` to before `end`."""

    start: int
    end: int
    word: str

    def moved(self, by: int) -> Whole:
        return Whole(self.start + by, self.end + by, self.word)


_Wholes = tuple[list[Whole], list[Whole]]  # names with dots or digits, and other words

# A sign between two characters of words, of which one word may be made.
_JOINING = re.compile(rf"[.,٬，．ʼ{_APOSTROPHES}\-\u2010\u2011\u00ad·‧](?<=[\w{_MARKS}].)(?=\w)")
# Most runs with such a sign: two parts with a dash, decimal numbers, and words with an ending.
_SIMPLE = re.compile(
    r"""[("\[<>=~/]*(?:([A-Za-z0-9]+)-([A-Za-z0-9]+)|[0-9]+\.(?:[0-9]{1,2}|[0-9]{4,})"""
    r"""|[A-Za-z]+['’](?:s|t|d|m|ll|re|ve))[)"\]%.,:;!?]*"""
)
# A number or a compound that goes on after a space or a line's end. Of ASCII, the negated set
# leaves digits and the hyphen; a range of all other characters would take 5 ms to compile.
_SPACED = re.compile(
    rf"[^\x00-,./:-~](?=\s)(?:(?<=\d)(?={_SPACE}\d{{3}}(?![\d_]))"
    r"|(?<=[-\u2010\u2011\u00ad·‧])(?=[ \t]{0,8}+\r?\n))"
)


def names(text: str) -> list[str]:
    """Returns the words that a text writes in parts, each as one folded word.

    `doc.ingest`, `v2.3.1`, `CVE-2024-3094`, `wi-fi`, `O'Brien`, `1,284,500`: "docingest v231
    cve20243094 wifi obrien 1284500". `words` returns only their parts.
    """
    dotted, plain = list[str](), list[str]()
    for (dotted_here, plain_here), _ in _parts(with_gershayim(text)):
        dotted += [whole.word for whole in dotted_here]
        plain += [whole.word for whole in plain_here]
    return dotted + [word for word in plain if word not in dotted] if dotted else plain


def wholes(text: str, letters: Collection[str] = ()) -> list[Whole]:
    """Returns the words that a text writes in parts, with their places.

    `letters`: runs of folded letters and digits; words without any of them may be left out, which
    takes a tenth of the time.
    """
    if letters and _lacks(text, letters):
        return []
    dotted, plain = list[Whole](), list[Whole]()
    for (dotted_here, plain_here), start in _parts(with_gershayim(text), letters):
        dotted += [whole.moved(start) for whole in dotted_here]
        plain += [whole.moved(start) for whole in plain_here]
    if not (dotted and plain):
        return dotted or plain
    words = {whole.word for whole in dotted}
    return dotted + [whole for whole in plain if whole.word not in words]


def _parts(text: str, letters: Collection[str] = ()) -> Iterator[tuple[_Wholes, int]]:
    """Yields what `_wholes` returns for each part of a text that may hold some, and its place.

    `letters`: see `wholes`.
    """
    if _SPACED.search(text):
        yield _wholes(text), 0
        return
    for start, end in runs(_JOINING, text):
        if letters and _lacks(text[start:end], letters):
            continue
        find = _cached_wholes if end - start <= SHORT_RUN else _wholes_of_run
        yield find(text[start:end]), start


def _wholes_of_run(run: str) -> _Wholes:
    """Returns what `_wholes` returns, for a text without spaces."""
    simple = _SIMPLE.fullmatch(run)
    if not simple:
        return _wholes(run)
    if not simple[1]:
        return [], []
    word = (simple[1] + simple[2]).lower()
    if word.lstrip("v").isdigit():
        return _wholes(run) if "v" in word else ([], [])
    whole = [Whole(simple.start(1), simple.end(2), word)]
    return (whole, []) if simple[1][-1].isdigit() or simple[2][0].isdigit() else ([], whole)


# All of ASCII that may part letters and digits.
_PARTING = bytes(code for code in range(128) if not chr(code).isalnum())
# The rest of a word in ASCII, and a sign behind which it may go on.
_REST = re.compile(r"\w*+([.,'`](?=\w)|-(?=[\w\s]))?")


def _lacks(text: str, letters: Collection[str]) -> bool:
    """Returns whether a text surely writes no word in parts that holds a run of these letters."""
    if not text.isascii():
        return False
    lower = text.lower()
    joined = lower.encode().translate(None, _PARTING).decode()
    present = [run for run in letters if run in joined]
    if not present:
        return True
    return not any(_is_parted(lower, run, joined.count(run)) for run in present)


def _is_parted(text: str, run: str, count: int) -> bool:
    """Returns whether a text in ASCII parts some of the `count` runs, or what follows them."""
    if count > text.count(run):
        return True
    at = text.find(run)
    while at >= 0:
        rest = _REST.match(text, at + len(run))
        if rest is None or rest[1]:
            return True
        at = text.find(run, rest.end())
    return False


def _wholes(text: str) -> _Wholes:
    """Returns names with dots or digits, and the other words that a text writes in parts."""
    names = ((match.span(), _name(match[0])) for match in near(_JOINT, _NAME, text))
    dotted = [Whole(*span, word) for span, word in names if word]  # "__.__" has no letter or digit
    return dotted, list(_plain(text))


# Nine of ten runs were looked at before.
_cached_wholes = cached(CACHED_RUNS)(_wholes_of_run)


def with_gershayim(text: str) -> str:
    """Returns the text with Hebrew acronyms' quotation marks replaced by the mark of acronyms."""
    return _GERSHAYIM.sub("״", text) if '"' in text else text


def with_thousands(text: str) -> str:
    """Returns the text with apostrophes for spaces between thousands, so that no space parts
    them.
    """
    if not _SPACED_THOUSANDS.search(text):
        return text
    return _NUMBER.sub(lambda number: _SPACED_THOUSANDS.sub("'", number[0]), text)


def _plain(text: str) -> Iterator[Whole]:
    for match in near(_MAY_BE_NUMBER, _NUMBER, text, around=_LONGEST_NUMBER):
        if not (match[2] and _SPACED_THOUSANDS.match(text, match.end())):  # a table's row continues
            yield Whole(*match.span(), folded("".join(filter(str.isdecimal, match[0]))))
    for match in near(_MAY_BE_DASHED, _DASHED, text, around=_BREAK):
        yield from _dashed(match)
    for match in near(_MAY_BE_ABBREVIATED, _ABBREVIATED, text):
        yield from _abbreviated(match)


def _name(name: str) -> str:
    """Returns a version with its v, so that it is found with and without."""
    whole = re.sub("[._-]", "", name.lower())
    return f"v{whole.lstrip('v')}" if whole.lstrip("v").isdigit() else whole


def _dashed(match: re.Match[str]) -> Iterator[Whole]:
    """Yields a compound as one word, and each two neighbours of one of three parts.

    At a line's end a hyphen parts a word only if a small letter follows.
    """
    starts, ends = [match.start()], []
    for dash in _DASHES.finditer(match.string, *match.span()):
        ends.append(dash.start())
        starts.append(dash.end())
    ends.append(match.end())
    parts = [match.string[start:end] for start, end in zip(starts, ends, strict=True)]
    if len(parts) > _MOST_PARTS or not any(map(str.isalpha, "".join(parts))):
        return
    for first, last in {(0, len(parts) - 1), *((at, at + 1) for at in range(len(parts) - 1))}:
        joined = "".join(parts[first : last + 1])
        breaks = "\n" in match.string[starts[first] : ends[last]]
        if breaks and not all(part[0].islower() for part in parts[first + 1 : last + 1]):
            continue
        if (first, last) != (0, len(parts) - 1) and not joined.isalpha():
            continue  # a part of a code
        if word := _one_word(joined):
            yield Whole(starts[first], ends[last], word)


def _abbreviated(match: re.Match[str]) -> Iterator[Whole]:
    """Yields a word with apostrophes, without the small words that English and French attach."""
    parts = _AT_APOSTROPHES.split(match[0])
    end = match.end()
    if parts[-1].lower() in _ENDINGS:
        end -= 1 + len(parts.pop())
    before, after = parts[0], parts[1] if len(parts) > 1 else ""
    is_name = before[:1].isupper() and after[:1].isupper()
    if not after or (before.lower() in _ELIDED and not is_name):
        return
    if word := _one_word("".join(parts)):
        yield Whole(match.start(), end, word)


def _one_word(joined: str) -> str:
    """Returns the folded word; "" for several words, as in scripts without spaces."""
    word = folded(joined).strip()
    return "" if " " in word else word
