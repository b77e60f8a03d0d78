"""Finds the fonts of a PDF page whose text can't be read.

Such a font maps its codes to shapes alone: the page looks right, and its text reads "7KHIHUU".
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable
from typing import Any

# A font's text is unreadable if more than this share of its characters is. The share is not zero
# because fonts of formulas often lack names for a few signs, and their other text has to stay.
_SHARE, _FEWEST = 0.3, 3
# Unreadable text of this length in one piece, or in all, is lost text and not a formula's sign.
_WORD, _MANY = 3, 40
_ODD = re.compile(
    "[\x00-\x08\x0b\x0e-\x1f\x7f\ufffd\ufffe\uffff]"
    "|[\ue000-\uf8ff\U000f0000-\U0010ffff]{2,}"  # a single one is a bullet
)
_CODE = re.compile(r"\(cid:\d+\)")
_NUMBERED = re.compile(r"/(?!u[0-9A-Fa-f]{4,6}$)[A-Za-z]{0,8}[._-]?\d+$")
# Most fonts number their shapes 29 below ASCII: a space reads as 3, "The" as "7KH".
_SHIFTED_LETTERS = re.compile(r"[D-\]]")
_SHIFTED_SPACES, _SHIFTED_SHARE = 0.06, 0.6
# TeX's fonts of signs and lines. They are exempt, because a formula's sign is not a lost word.
_FORMULAS = re.compile(
    r"/(?:[A-Z]{6}\+)?(?:CM(?:SY|EX|MI|BSY)|LM(?:Math|SY|EX|MI)|MS[AB]M|EU[SFER]|[TP]X(?:SY|EX|MI)"
    r"|LINE|LCIRCLE|wasy|stmary|rsfs|esint|STIX|rtx)",
    re.I,
)
_SIGNS = re.compile(r"[!\"#$%&'()*+,/;<=>?@\\^_`{|}~]")
_MOSTLY_SIGNS = 0.35
_SYMBOLIC = 4
# The code of the space, and widths of it in thousandths of an em.
_SPACE, _USUAL_SPACE, _WIDE_SPACE = 32, 400, 450
_SUBSET = re.compile(r"/[A-Z]{6}\+")
# Encodings of composite fonts whose codes pypdf turns into characters.
_KNOWN = re.compile(
    r"/(?:GBK?-EUC|GBpc-EUC|GBK2K|ETen-B5|90ms-RKSJ)-[HV]$"
    r"|.{1,60}(?:UCS2|UTF16)(?:-\w{1,20}){0,4}-[HV]$"
)


def damages() -> tuple[type[Exception], ...]:
    """Returns the exceptions that pypdf raises for a damaged object."""
    from pypdf.errors import PyPdfError

    builtin_errors = (
        ArithmeticError,
        AssertionError,
        AttributeError,
        LookupError,
        OSError,
        RuntimeError,
    )
    return (PyPdfError, *builtin_errors, TypeError, ValueError, zlib.error)


def narrow_spaces(page: Any) -> None:
    """Makes the space of fonts with a wide one narrower, so that pypdf finds gaps between words.

    TeX spaces words by moving on. A font in T1 encoding has a visible space, half an em wide, at
    the code of the space, and half of that is more than many gaps of a justified line. Fonts of
    one width stay as they are.
    """
    from pypdf.generic import FloatObject

    try:
        fonts = page["/Resources"].get_object()["/Font"].get_object()
        resources = [fonts[name].get_object() for name in fonts]
    except damages():
        return
    for font in resources:
        try:
            widths, place = font["/Widths"].get_object(), _SPACE - int(font["/FirstChar"])
            distinct = {float(width) for width in widths if width}
            if 0 <= place < len(widths) and len(distinct) > 1 and widths[place] > _WIDE_SPACE:
                widths[place] = FloatObject(_USUAL_SPACE)
        except damages():
            continue


class Fonts:
    """The fonts of a document, each of which is judged once."""

    def __init__(self) -> None:
        # The values hold the fonts themselves, so that no other font gets the same id.
        self._judged: dict[int, tuple[Any, bool, re.Pattern[str] | None]] = {}

    def unreadable(self, pieces: Iterable[tuple[str, Any]]) -> set[int]:
        """Returns the ids of the fonts whose text in these pieces of a page is unreadable."""
        texts: dict[int, list[str]] = {}
        for text, font in pieces:
            texts.setdefault(id(font), []).append(text)
            if id(font) not in self._judged:
                self._judged[id(font)] = (font, *_judge(font))
        return {key for key, parts in texts.items() if self._is_no_text(key, "".join(parts))}

    def _is_no_text(self, key: int, text: str) -> bool:
        font, blind, names = self._judged[key]
        if blind:
            return bool(text) and not text.isspace()
        # Codes of several characters that stand for one shape: "(cid:12)", "/g12".
        codes = _CODE.findall(text) if "(cid:" in text else []
        codes += names.findall(text) if names else []
        odd = len(codes) + sum(map(len, _ODD.findall(text)))
        count = len(text) + len(codes) - sum(map(len, codes))
        if _FORMULAS.match(str((font or {}).get("/BaseFont", ""))):
            return False
        if odd >= _FEWEST and odd > _SHARE * count:
            return True
        if len(text) <= 20:
            return False
        return _reads_as_shifted(text) or (_has_own_codes(font) and _reads_as_signs(text))


def _reads_as_shifted(text: str) -> bool:
    if text.count("\x03") < _SHIFTED_SPACES * len(text):
        return False
    visible = sum(not char.isspace() and char != "\x03" for char in text)
    return len(_SHIFTED_LETTERS.findall(text)) > _SHIFTED_SHARE * visible


def _reads_as_signs(text: str) -> bool:
    visible = len(text) - text.count(" ") - text.count("\n")
    return len(_SIGNS.findall(text)) > _MOSTLY_SIGNS * visible


def is_lost_text(pieces: list[str]) -> bool:
    """Returns True if these unreadable pieces were words, not a few signs of a formula."""
    sizes = [len("".join(piece.split())) for piece in pieces]
    return sum(sizes) >= _MANY or max(sizes, default=0) >= _WORD


def _judge(font: Any) -> tuple[bool, re.Pattern[str] | None]:
    """Returns True if no code of the font names a character, and a pattern of numbered glyphs."""
    try:
        if font is None or "/ToUnicode" in font:
            return False, None
        if font.get("/Subtype") == "/Type0":
            return _is_blind(font), None
        return False, _numbered_names(font)
    except damages():
        return False, None


def _is_blind(font: Any) -> bool:
    encoding = font["/Encoding"].get_object() if "/Encoding" in font else "/Identity-H"
    if not isinstance(encoding, str):
        return True
    if not encoding.startswith("/Identity"):
        return not _KNOWN.match(encoding)
    if not font.get("/DescendantFonts"):
        return True
    inner = font["/DescendantFonts"].get_object()[0].get_object()
    # A table from codes to shapes means that the codes are not shapes: as a rule, they are Unicode.
    has_table = not isinstance(inner.get("/CIDToGIDMap", "/Identity"), str)
    system = inner.get("/CIDSystemInfo", {})
    ordering = str(system.get_object().get("/Ordering", "")) if system else ""
    return ordering != "UCS" and not (has_table and ordering in ("", "Identity"))


def _numbered_names(font: Any) -> re.Pattern[str] | None:
    """Returns a pattern of the text that pypdf gives for glyphs with numbers for names."""
    encoding = font["/Encoding"].get_object() if "/Encoding" in font else None
    if not isinstance(encoding, dict) or "/Differences" not in encoding:
        return None
    names = encoding["/Differences"].get_object()
    numbered = {name for name in names[:1000] if isinstance(name, str) and _NUMBERED.match(name)}
    # The longest comes first, because "/g1" also begins "/g12".
    longest_first = sorted(numbered, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest_first))) if numbered else None


def _has_own_codes(font: Any) -> bool:
    """Returns True for a subset that numbers its letters in the order of their first use."""
    if font is None or "/ToUnicode" in font or "/Encoding" in font:
        return False
    if font.get("/Subtype") != "/TrueType" or not _SUBSET.match(str(font.get("/BaseFont", ""))):
        return False
    descriptor = font.get("/FontDescriptor")
    flags = descriptor.get_object().get("/Flags", 0) if descriptor else 0
    return isinstance(flags, int) and bool(flags & _SYMBOLIC)
