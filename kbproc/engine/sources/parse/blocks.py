"""What every parser gives back, and how extracted text is made harmless.

Owns: Block, Parsed, the cleaning of text and titles.
Refuses to know: any format, chunks, tokens.
"""

from __future__ import annotations

import re
from typing import Literal

import msgspec

from kbproc.base.wording import plural

TITLE_CHARS = 300
PATH = " > "

Kind = Literal["prose", "code", "table"]
Scalar = str | int | float | bool | None

_CONTROL = re.compile("[\x00-\x08\x0e-\x1b\x7f\ufffe\uffff]")
_SURROGATE = re.compile("[\ud800-\udfff]")
_BREAK = re.compile("\r\n?")
# They part words, but begin no line that an editor or `sed` would count.
_BLANK = re.compile("[\x0b\x0c\x1c-\x1f\x85\u2028\u2029]")
# Before a line's first word they would pass for its indentation.
_LEADING_BLANKS = re.compile(f"^{_BLANK.pattern}+", re.M)
# Whatever `clean_text` changes, or may.
_UNCLEAN = re.compile("[\x00-\x08\x0b-\x1f\x7f\x85\u2028\u2029\ufeff\ufffe\uffff\ud800-\udfff]")
_PLAIN = bytes(byte for byte in range(128) if not _UNCLEAN.match(chr(byte)))
# Zero-width characters, bidi marks, embeddings, overrides and isolates, C1.
_INVISIBLE = re.compile(
    "[\x80-\x9f\xad\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufeff]"
)


class Block(msgspec.Struct, frozen=True, kw_only=True):
    """A paragraph, list, table or stretch of code: never cut by a parser for size.

    `page` counts from 1, and so does `line`, where in the source the text begins, if its
    lines are those of the source. `section` is the path of headings, "Installation > Linux".
    `turns`: (character, page), where a later page begins within the text.
    """

    text: str
    page: int | None = None
    section: str | None = None
    kind: Kind = "prose"
    line: int | None = None
    turns: tuple[tuple[int, int], ...] = ()


class Parsed(msgspec.Struct, kw_only=True):
    """A document as its parser read it; `pages` where the format has pages.

    `unread`: how many parts of the source the parser left out, by kind; see unread.py.
    """

    title: str | None = None
    blocks: list[Block]
    tags: list[str] = []
    metadata: dict[str, Scalar] = {}
    pages: int | None = None
    unread: dict[str, int] = {}


def clean_text(text: str) -> str:
    """`text` with \\n as its only line break and without controls or lone surrogates.

    Its lines are those of the source, which end with \\n, \\r\\n or \\r: a form feed, a vertical
    tab, NEL and the Unicode separators become a space. Tabs stay; a NUL or another C0 control
    vanishes; a surrogate pair that was decoded apart is put together again, a lone half becomes
    U+FFFD.
    """
    if text.isascii() and not text.encode().translate(None, _PLAIN):
        return text  # in a quarter of the time
    if not _UNCLEAN.search(text):
        return text
    if _SURROGATE.search(text):
        text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    text = _LEADING_BLANKS.sub("", _BREAK.sub("\n", text.removeprefix("\ufeff")))
    return _CONTROL.sub("", _BLANK.sub(" ", text))


def in_bytes(size: int) -> str:
    """1 → "1 byte", 61440 → "60 KB"."""
    return plural(size, "byte") if size < 1024 else f"{round(size / 1024)} KB"


def clean_title(text: str | None) -> str | None:
    """One line of at most 300 visible characters, or None when nothing is left."""
    if not text:
        return None
    line = " ".join(_INVISIBLE.sub("", clean_text(text)).split())
    return line[:TITLE_CHARS].rstrip() or None


class Headings:
    """The headings above the current line, as a `section` path."""

    def __init__(self) -> None:
        self._path: list[tuple[int, str]] = []

    def enter(self, level: int, name: str | None) -> None:
        while self._path and self._path[-1][0] >= level:
            self._path.pop()
        if name:
            self._path.append((level, name))

    @property
    def section(self) -> str | None:
        return PATH.join(name for _, name in self._path) or None
