"""Defines the result of every parser, and cleans extracted text and titles."""

from __future__ import annotations

import re
from typing import Literal

import msgspec

from kbproc.base.unseen import one_line
from kbproc.base.wording import plural
from kbproc.engine.events.document import ParsedFacts
from kbproc.engine.events.origin import Origin

TITLE_CHARS = 300
PATH = " > "

Kind = Literal["prose", "code", "table"]
Scalar = str | int | float | bool | None

_CONTROL = re.compile("[\x00-\x08\x0e-\x1b\x7f\ufffe\uffff]")
_SURROGATE = re.compile("[\ud800-\udfff]")
_BREAK = re.compile("\r\n?")
# Characters that separate words, but at which an editor or `sed` counts no new line.
_BLANK = re.compile("[\x0b\x0c\x1c-\x1f\x85\u2028\u2029]")
# At a line's start they are dropped, because as spaces they would look like indentation.
_LEADING_BLANKS = re.compile(f"^{_BLANK.pattern}+", re.M)
# All characters that `clean_text` may change.
_UNCLEAN = re.compile("[\x00-\x08\x0b-\x1f\x7f\x85\u2028\u2029\ufeff\ufffe\uffff\ud800-\udfff]")
_PLAIN = bytes(byte for byte in range(128) if not _UNCLEAN.match(chr(byte)))


class Block(msgspec.Struct, frozen=True, kw_only=True):
    """A paragraph, list, table or stretch of code, which no parser cuts for size.

    `page` counts from 1. `line` is the line of the source at which the text begins, from 1, if
    the text's lines are those of the source. `section` is the path of headings, "Installation >
    Linux". `turns` lists (character, page) where a later page begins within the text.
    """

    text: str
    page: int | None = None
    section: str | None = None
    kind: Kind = "prose"
    line: int | None = None
    turns: tuple[tuple[int, int], ...] = ()


class Part(msgspec.Struct, frozen=True):
    """A file within the source, such as an attachment; `name` is its path within the source."""

    name: str
    data: bytes


class Parsed(ParsedFacts, kw_only=True, frozen=False):  # type: ignore[misc]
    """A document as its parser read it, with the facts that stay with it.

    `unread` counts by kind the parts of the source that the parser left out; see unread.py.
    `parts` are documents of their own, which the parser has not read. `source`: the bytes that are
    stored in place of those that were read, so that nothing is stored which must not be. `origin`:
    the least trusted of the text's authors, where the source tells them; None: who adds it.
    `messages`: the keys of a session log's messages, by which copies of it are known.
    `derived_from`: what the source says that it was made from.
    """

    title: str | None = None
    blocks: list[Block]
    tags: list[str] = []
    metadata: dict[str, Scalar] = {}
    unread: dict[str, int] = {}
    parts: list[Part] = []
    source: bytes | None = None
    origin: Origin | None = None
    messages: list[str] = []
    derived_from: list[str] = []


def clean_text(text: str) -> str:
    """Returns `text` with \\n as its only line break and without controls or lone surrogates.

    The lines are those of the source, which end with \\n, \\r\\n or \\r: a form feed, a vertical
    tab, NEL and the Unicode separators become a space. Tabs stay; a NUL or another C0 control is
    dropped; the halves of a surrogate pair are joined, and a lone half becomes U+FFFD.
    """
    if text.isascii() and not text.encode().translate(None, _PLAIN):
        return text  # this check takes a quarter of the time of the next
    if not _UNCLEAN.search(text):
        return text
    if _SURROGATE.search(text):
        text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    text = _LEADING_BLANKS.sub("", _BREAK.sub("\n", text.removeprefix("\ufeff")))
    return _CONTROL.sub("", _BLANK.sub(" ", text))


def in_bytes(size: int) -> str:
    """Returns a size in words: 1 → "1 byte", 61440 → "60 KB"."""
    return plural(size, "byte") if size < 1024 else f"{round(size / 1024)} KB"


def clean_title(text: str | None) -> str | None:
    """Returns `text` as one line of at most 300 visible characters; None if there are none."""
    if not text:
        return None
    return one_line(clean_text(text), TITLE_CHARS) or None


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
