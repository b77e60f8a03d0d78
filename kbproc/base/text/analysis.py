"""Text analysis: turns a text into searchable words, and splits it into sentences.

It covers folding, word borders, identifiers, CJK bigrams and stop words. Texts and queries go
through the same `analyse`, so they meet.

`analyse` returns words parted by single spaces rather than a list: for ASCII that is one C call a
text, and the index needs nothing but a whitespace tokenizer.
"""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections.abc import Callable, Iterator

from kbproc.base.patterns import lazy
from kbproc.base.text.caches import cached

# An index stored with another version of words, stems or languages has to be rebuilt.
ANALYSIS_VERSION = 4

# Left out of queries, never of texts, because phrases need them. The question words matter most:
# people ask in sentences, and no passage is about "how" or "does". Words that also name something
# ("may", "us") stay.
_STOP_WORDS = """
a about am an and any are as at be been being but by can could did do does for from had has
have he her him his how i if in into is it its just me might must my no not of on or our
shall she should so some such than that the their them then there these they this to too
very was we were what when where which who whom whose why will with would you your
"""
STOP_WORDS = frozenset(_STOP_WORDS.split())

# NFKD does not take these letters apart.
_PLAIN = {"ø": "o", "ł": "l", "đ": "d", "ħ": "h", "ı": "i", "æ": "ae", "œ": "oe", "þ": "th"}
_PLAIN |= {"ð": "d", "ŋ": "n"}
# Arabic, Persian and Urdu keyboards have characters of their own for one letter.
_PLAIN |= dict.fromkeys("ک\u06aa", "ك") | dict.fromkeys("یى\u06d0", "ي")
_PLAIN |= dict.fromkeys("ہھ\u06d5\u06c0\u06c2", "ه") | {"ٱ": "ا"}
# Letters to Unicode, apostrophes and strokes to people: п\u02bcять, Hawai\u02bbi, كـتاب.
_PLAIN |= dict.fromkeys(map(chr, range(0x02B9, 0x02C2)), "") | {"\u02c8": "", "\u0640": ""}

# Katakana is read as hiragana, because people write a word in either.
_PLAIN |= {chr(code): chr(code - 0x60) for code in range(0x30A1, 0x30F7)}

_ASCII = {code: chr(code).lower() if chr(code).isalnum() else " " for code in range(128)}

# Tables for the bytes of a text, which are translated ten times as fast as its characters; bytes of
# other characters than ASCII stay.
_OTHER_BYTES = bytes(range(128, 256))
_ASCII_BYTES = bytes(range(128))
_SMALL = "".join(_ASCII.values()).encode() + _OTHER_BYTES
# The shape of a text, in which an identifier shows as a change of letters.
_SHAPE = re.sub(rb"[a-z]", b"a", re.sub(rb"[A-Z]", b"A", _ASCII_BYTES))
_SHAPE = re.sub(rb"[0-9]", b"0", re.sub(rb"[^A-Za-z0-9_]", b" ", _SHAPE)) + _OTHER_BYTES
# Texts repeat their names, so what runs without spaces become is cached, if they are short.
SHORT_RUN = 50  # characters
CACHED_RUNS = 8192
_MOST_REPLACED = 12  # different characters; more are translated together

# Scripts written without spaces: Han, kana and Hangul by character; Thai, Lao,
# Myanmar and Khmer by a letter with its marks.
CJK = (
    "\u3005\u3007\u3041-\u30fa\u30fc-\u312f\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af"
    "\U00020000-\U0003ffff"
)
_SEA_MARKS = (
    "\u0e31\u0e34-\u0e3a\u0e47-\u0e4e\u0eb1\u0eb4-\u0ebc\u0ec8-\u0ece"
    "\u102b-\u103e\u1056-\u1059\u105e-\u1060\u17b4-\u17d3"
)
_SEA = "\u0e01-\u0e4e\u0e81-\u0ece\u0edc-\u0edf\u1000-\u103f\u1050-\u108f\u1780-\u17d3"
UNSPACED = lazy(f"[{CJK}]+|[{_SEA}]+")

# Signs of an identifier within a word, which few words have; the full pattern is tried there alone.
_MAY_BE_IDENTIFIER = lazy(
    r"[A-Z_](?:(?<=[A-Za-z0-9]_)|(?<=[a-z0-9][A-Z])|(?<=[A-Z][A-Z])(?=[a-z]{2}))"
)
_IDENTIFIER = re.compile(r"\b_*+(?:[A-Z]*+[a-z0-9]++[A-Z_]|[A-Z]{2,}+[a-z]{2}|[A-Z]++_)\w*")
_PARTS = lazy(r"_+|(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z]{2})")
# Letters of two scripts that look the same; a word that mixes the scripts was typed by mistake.
_CYRILLIC, _LATIN = "асеорхуіјѕАВСЕКМНОРТХІЈЅУ", "aceopxyijsABCEKMHOPTXIJSY"
_TO_LATIN, _TO_CYRILLIC = str.maketrans(_CYRILLIC, _LATIN), str.maketrans(_LATIN, _CYRILLIC)
_MIXES = lazy(r"[A-Za-z](?=[\u0400-\u04ff])|[\u0400-\u04ff](?=[A-Za-z])")
_WORD = lazy(r"\w+")
_OF_CYRILLIC, _OF_LATIN = lazy(r"[\u0400-\u04ff]"), lazy(r"[A-Za-z]")
_PLUS = lazy(r"\+\+(?<=\b[Cc]\+\+)")
_SHARP = lazy(r"#(?<=\b[CcFf]#)")


class _FoldTable(dict[int, str]):
    """A `str.translate` table that computes each character when it first meets it."""

    def __init__(self, make: Callable[[str], str]) -> None:
        super().__init__(_ASCII)
        self._make = make

    def __missing__(self, code: int) -> str:
        self[code] = folded = self._make(chr(code))
        return folded


def _fold(char: str) -> str:
    """Returns the folded form of one non-ASCII character of an NFKC text."""
    category = unicodedata.category(char)
    if category == "Nd":
        return str(unicodedata.decimal(char))
    if category[0] in "LN":
        return _fold_letter(char.casefold())
    if category[0] == "M":
        # Below U+0700 marks are accents and vowel points; further on they are letters.
        return char if ord(char) >= 0x0700 else ""
    if category == "Cf":
        return ""
    return f" {char} " if category == "So" and ord(char) >= 0x1F000 else " "


def _fold_letter(letter: str) -> str:
    apart = unicodedata.normalize("NFKD", letter)
    if ord(apart[0]) < 0x0700 and letter not in "йї":
        letter = "".join(c for c in apart if unicodedata.category(c) != "Mn")
    return _PLAIN.get(letter, letter)


_FOLD = _FoldTable(_fold)


def analyse(text: str) -> str:
    """Returns the words of a text, folded, in order, parted by spaces.

    Identifiers become the joined word and then their parts (`parseQuery` and `parse_query`:
    "parsequery parse query"); unspaced scripts give every character and every overlapping pair, so
    that one character alone is found too.
    """
    if not text:  # most chunks have no section
        return text
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text)
        others = beyond_ascii(text)
        if UNSPACED.search(others):
            text = UNSPACED.sub(_pairs, text)
        if _OF_CYRILLIC.search(others):
            text = _changed(_MIXES, text, _in_one_script)
    if "++" in text:
        text = _PLUS.sub("pp ", text)
    if "#" in text:
        text = _SHARP.sub("sharp ", text)
    if _may_have_identifiers(text):
        text = _with_parts(text)
    return _folded(text)


def beyond_ascii(text: str) -> str:
    """Returns the characters of a text that are not ASCII, in order."""
    return _decoded(_encoded(text).translate(None, _ASCII_BYTES))


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _decoded(data: bytes) -> str:
    return data.decode("utf-8", "surrogatepass")


def _may_have_identifiers(text: str) -> bool:
    shape = _encoded(text).translate(_SHAPE)
    return b"_" in shape or b"aA" in shape or b"0A" in shape or b"AAaa" in shape


def _folded(text: str) -> str:
    """Returns an NFKC text folded, where folding a folded character again changes nothing."""
    return translated(text, _FOLD, _SMALL)


def translated(text: str, table: dict[int, str], of_ascii: bytes) -> str:
    """Returns `text.translate(table)`; takes a tenth of the time if few characters are not ASCII.

    `of_ascii`: the table for bytes, which leaves those of other characters as they are. The table
    must map what it maps a character to onto itself.
    """
    others = set() if text.isascii() else set(beyond_ascii(text))
    if len(others) > _MOST_REPLACED:
        return text.translate(table)
    text = _decoded(_encoded(text).translate(of_ascii))
    for other in others:
        text = text.replace(other, table[ord(other)])
    return text


def is_unspaced(word: str) -> bool:
    """Returns whether a word begins in a script without spaces."""
    return not word.isascii() and UNSPACED.match(word) is not None


def words(text: str) -> list[str]:
    """Returns the words of `analyse` as a list."""
    return analyse(text).split()


def folded(word: str) -> str:
    """Returns one word with its letters folded, without splitting it."""
    if word.isascii():
        return word.translate(_ASCII)
    return _folded(unicodedata.normalize("NFKC", word))


def runs(sign: re.Pattern[str], text: str, *, around: int = 0) -> Iterator[tuple[int, int]]:
    """Yields the start and end of each run without spaces that holds a `sign`; most hold none.

    `around`: characters before and after a sign that may be spaces.
    """
    done = 0
    for hit in sign.finditer(text):
        if hit.start() < done:
            continue
        start = text.rfind(" ", done, max(done, hit.start() - around)) + 1
        end = text.find(" ", hit.end() + around)
        start, done = max(start, done), len(text) if end < 0 else end
        yield start, done


def near(
    sign: re.Pattern[str], pattern: re.Pattern[str], text: str, *, around: int = 0
) -> Iterator[re.Match[str]]:
    """Returns the matches of `pattern` in the `runs` that hold a `sign`."""
    if " " not in text:
        return pattern.finditer(text) if sign.search(text) else iter(())
    return itertools.chain.from_iterable(
        pattern.finditer(text, start, end) for start, end in runs(sign, text, around=around)
    )


def _with_parts(text: str) -> str:
    """Returns the text with each identifier replaced by the joined word and its parts."""
    return _changed(_MAY_BE_IDENTIFIER, text, _run_with_parts)


def _run_with_parts(run: str) -> str:
    return _IDENTIFIER.sub(_identifier, run) if len(run) > SHORT_RUN else _cached_parts(run)


@cached(CACHED_RUNS)
def _cached_parts(run: str) -> str:
    return _IDENTIFIER.sub(_identifier, run)


def _in_one_script(run: str) -> str:
    """Returns words of Latin and Cyrillic letters in one script, if all of one look the same."""
    return _WORD.sub(lambda word: _respelled(word[0]), run)


def _respelled(word: str) -> str:
    if not _OF_CYRILLIC.search(latin := word.translate(_TO_LATIN)):
        return latin
    return word if _OF_LATIN.search(cyrillic := word.translate(_TO_CYRILLIC)) else cyrillic


def _changed(sign: re.Pattern[str], text: str, change: Callable[[str], str]) -> str:
    """Returns the text with each run that holds a `sign` changed."""
    pieces, done = list[str](), 0
    for start, end in runs(sign, text):
        pieces += [text[done:start], change(text[start:end])]
        done = end
    return "".join([*pieces, text[done:]]) if pieces else text


def _identifier(match: re.Match[str]) -> str:
    parts = [part for part in _PARTS.split(match[0]) if part]
    return " ".join(["".join(parts), *parts]) if len(parts) > 1 else " ".join(parts)


def _pairs(match: re.Match[str]) -> str:
    run = match[0]
    units = run if run[0] >= "\u3000" else _units(run)
    pairs = [f"{first} {first}{second}" for first, second in itertools.pairwise(units)]
    return f" {' '.join(pairs)} {units[-1]} "


def _units(run: str) -> list[str]:
    return re.findall(f"[^{_SEA_MARKS}][{_SEA_MARKS}]*|[{_SEA_MARKS}]+", run)


# ------------------------------------------------------------------ sentences


# A dot after one of these ends no sentence.
_ABBREVIATIONS = ("etc.", "e.g.", "i.e.", "cf.", "vs.", "Dr.", "Mr.", "Mrs.", "Ms.", "Prof.", "No.")
_NO_ABBREVIATION = "".join(rf"(?<!\b{re.escape(short)})" for short in _ABBREVIATIONS)
_SENTENCE_ENDS = lazy(
    rf"(?<=[.!?…]){_NO_ABBREVIATION}[\"'”’)\]]*\s+|(?<=[。！？])"
    r"|\n\s*\n|\n(?=\s*(?:[-*+•]|\d+[.)]|#)\s)"
)


def sentences(text: str) -> Iterator[str]:
    """Yields the sentences in order; headings and items of a list count as sentences."""
    yield from _SENTENCE_ENDS.split(text)
