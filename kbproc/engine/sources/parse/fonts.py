"""Which fonts of a PDF page give their letters, and which only the numbers of their shapes.

Owns: the signs that a font's text is no text.
Refuses to know: where on the page text stands.

A font may map its codes to shapes alone: the page looks right, and its text reads "7KHIHUU".
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable
from typing import Any

# The share of characters that are none, from which a font's text is no text. Fonts of formulas
# often lack a name for this or that sign, and the others are to stay.
_SHARE, _FEWEST = 0.3, 3
# A formula's odd sign is no lost text; a word is.
_WORD, _MANY = 3, 40
_ODD = re.compile(
    "[\x00-\x08\x0b\x0e-\x1f\x7f\ufffd\ufffe\uffff]"
    "|[\ue000-\uf8ff\U000f0000-\U0010ffff]{2,}"  # a single one is a bullet
)
_CODE = re.compile(r"\(cid:\d+\)")
_NUMBERED = re.compile(r"/(?!u[0-9A-Fa-f]{4,6}$)[A-Za-z]{0,8}[._-]?\d+$")
# The numbers of the shapes in most fonts are 29 below ASCII: a space reads as 3, "The" as "7KH".
_SHIFTED_LETTERS = re.compile(r"[D-\]]")
_SHIFTED_SPACES, _SHIFTED_SHARE = 0.06, 0.6
# TeX's fonts of signs and lines: a formula's sign without a name is no lost word.
_FORMULAS = re.compile(
    r"/(?:[A-Z]{6}\+)?(?:CM(?:SY|EX|MI|BSY)|LM(?:Math|SY|EX|MI)|MS[AB]M|EU[SFER]|[TP]X(?:SY|EX|MI)"
    r"|LINE|LCIRCLE|wasy|stmary|rsfs|esint|STIX|rtx)",
    re.I,
)
_SIGNS = re.compile(r"[!\"#$%&'()*+,/;<=>?@\\^_`{|}~]")
_MOSTLY_SIGNS = 0.35
_SYMBOLIC = 4
_SUBSET = re.compile(r"/[A-Z]{6}\+")
# Encodings of composite fonts whose codes pypdf turns into characters.
_KNOWN = re.compile(
    r"/(?:GBK?-EUC|GBpc-EUC|GBK2K|ETen-B5|90ms-RKSJ)-[HV]$|.*-?(?:UCS2|UTF16)(?:-\w+)*-[HV]$"
)


def damages() -> tuple[type[Exception], ...]:
    """The exceptions that pypdf raises where an object of a file is damaged."""
    from pypdf.errors import PyPdfError

    own = (ArithmeticError, AssertionError, AttributeError, LookupError, OSError, RuntimeError)
    return (PyPdfError, *own, TypeError, ValueError, zlib.error)


class Fonts:
    """A document's fonts, each judged once."""

    def __init__(self) -> None:
        # The font itself is held, so that no other gets its id.
        self._seen: dict[int, tuple[Any, bool, re.Pattern[str] | None]] = {}

    def unreadable(self, pieces: Iterable[tuple[str, Any]]) -> set[int]:
        """The ids of those fonts whose text among these pieces of a page is no text."""
        texts: dict[int, list[str]] = {}
        for text, font in pieces:
            texts.setdefault(id(font), []).append(text)
            if id(font) not in self._seen:
                self._seen[id(font)] = (font, *_judged(font))
        return {key for key, parts in texts.items() if self._is_no_text(key, "".join(parts))}

    def _is_no_text(self, key: int, text: str) -> bool:
        font, blind, names = self._seen[key]
        if blind:
            return bool(text) and not text.isspace()
        # A code of several characters that stands for one shape: "(cid:12)", "/g12".
        long = _CODE.findall(text) if "(cid:" in text else []
        long += names.findall(text) if names else []
        odd = len(long) + sum(map(len, _ODD.findall(text)))
        count = len(text) + len(long) - sum(map(len, long))
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
    """True if these unreadable pieces were words, not the odd sign of a formula."""
    sizes = [len("".join(piece.split())) for piece in pieces]
    return sum(sizes) >= _MANY or max(sizes, default=0) >= _WORD


def _judged(font: Any) -> tuple[bool, re.Pattern[str] | None]:
    """True if no code of the font names a character; the glyph names that name none."""
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
    # A table from codes to shapes says that the codes are something else: Unicode, as a rule.
    has_table = not isinstance(inner.get("/CIDToGIDMap", "/Identity"), str)
    system = inner.get("/CIDSystemInfo", {})
    ordering = str(system.get_object().get("/Ordering", "")) if system else ""
    return ordering != "UCS" and not (has_table and ordering in ("", "Identity"))


def _numbered_names(font: Any) -> re.Pattern[str] | None:
    """A pattern of what pypdf writes for glyphs that have numbers for names."""
    encoding = font["/Encoding"].get_object() if "/Encoding" in font else None
    if not isinstance(encoding, dict) or "/Differences" not in encoding:
        return None
    names = encoding["/Differences"].get_object()
    numbered = {name for name in names[:1000] if isinstance(name, str) and _NUMBERED.match(name)}
    # The longest first: "/g1" also begins "/g12".
    longest_first = sorted(numbered, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest_first))) if numbered else None


def _has_own_codes(font: Any) -> bool:
    """True for a subset that numbers its letters in the order of their first use."""
    if font is None or "/ToUnicode" in font or "/Encoding" in font:
        return False
    if font.get("/Subtype") != "/TrueType" or not _SUBSET.match(str(font.get("/BaseFont", ""))):
        return False
    descriptor = font.get("/FontDescriptor")
    flags = descriptor.get_object().get("/Flags", 0) if descriptor else 0
    return isinstance(flags, int) and bool(flags & _SYMBOLIC)
