"""Shows a text as its reader sees it, so that a word is found which the source divides.

Markup, escapes, entities, percent signs, colours of a terminal and unseen characters divide a word
in the source: `ghp\\_…`, `<b>ghp_</b>…`, `&#103;hp_…`, `%22ghp_…`. The view is without them, and
tells for each of its characters where the source has it.
"""

from __future__ import annotations

import html
import re
from bisect import bisect_left, bisect_right
from functools import cache
from typing import NamedTuple

# Names of elements that hold a secret: such a tag stays in the view, because it names its value.
_NAMING = r"[^<>\s\\&]{0,60}(?:pass|pwd|secret|token|key)"
_LESS, _MORE = r"(?:&lt;|\\{1,8}u003[cC])", r"(?:&gt;|\\{1,8}u003[eE])"
# Default_Ignorable_Code_Point of Unicode: a reader sees none of these characters.
_UNSEEN = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f"
    "\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U000e0fff"
)
_SIGNS = r"\\<&%\x1b\[*`~^"
# A space and an at sign stay as they are, so that the parts of an address can be told apart.
# The sign comes first and is looked at again behind it, because `re` skips quickly to a set.
_DIVISION = (
    r"[{signs}](?:"
    rf"(?<=<)(?!/?{_NAMING})(?P<tag>(?:/?[A-Za-z]|!|\d\d:)[^<>]{{0,1000}})>"
    rf"|(?:(?<=&)lt;|(?<=\\)\\{{0,7}}u003[cC])(?!/?{_NAMING})"
    rf"(?P<tag_in_escapes>/?[A-Za-z](?:(?!{_MORE}|{_LESS})[^<>\n]){{0,300}}){_MORE}"
    r"|(?<=&)(?P<entity>(?:amp;){0,3}(?:#(?:[0-9]{1,7}|[xX][0-9a-fA-F]{1,6});?|[A-Za-z]{2,31};))"
    r"|(?<=\\)\\{0,7}(?P<colour>(?:x1[bB]|u001[bB]|033|e)\[[0-9;:?]{0,30}[A-Za-z])"
    r"|(?<=\\)\\{0,7}(?P<escape>u[0-9a-fA-F]{4}|u\{[0-9a-fA-F]{1,6}\}|U[0-9a-fA-F]{8}|x[0-9a-fA-F]{2}"
    r"|[01][0-7]{2}|[bfnrtv]|\r?\n[ \t]{0,40}|[!-/:-@\[\]-`{-~])"
    r"|(?<=%)(?:25){0,3}(?P<percent>(?!20|40)[2-7][0-9a-fA-F]|0[aAdD9])"
    r"|(?<=\x1b)(?P<terminal>\[[0-?]{0,40}[ -/]{0,4}[@-~]|\][^\x07\x1b]{0,2000}(?:\x07|\x1b\\)|)"
    r"|(?<=\[)(?P<rest>(?:\d{1,3}(?:[;:]\d{1,3}){0,20}[mK]|m\[K)(?:\[K)?)"
    r"|(?<=\^)(?P<caret>\[\[[0-9;:?]{0,30}[A-Za-z])"
    r"|(?<=[*`~])(?P<mark>(?:(?<=[\w.-][*`])[*`]{0,2}|(?<=[\w.-]~)~)(?=[\w.-]))"
    r"{unseen})"
)
_LETTERS = {"n": "\n", "r": "\r", "t": "\t", "b": " ", "f": " ", "v": " "}
_SHORT_TAG = 20  # no secret of a known shape is in a shorter one


class View(NamedTuple):
    """A text without its divisions, in pieces.

    `starts`: where each piece begins in `text`. `sources`: the place of each piece in the source,
    whose length differs from the piece's where an escape stands for a character.
    """

    text: str
    starts: list[int]
    sources: list[tuple[int, int]]

    def is_cut(self, place: int) -> bool:
        """Returns True if a division stands before this place."""
        number = bisect_left(self.starts, place)
        return number < len(self.starts) and self.starts[number] == place

    def cuts(self, start: int, end: int) -> list[int]:
        """Returns the places between two, before which a division stands, the last one first."""
        first, last = bisect_right(self.starts, start), bisect_left(self.starts, end)
        return self.starts[first:last][::-1]

    def places(self, start: int, end: int) -> list[tuple[int, int]]:
        """Returns the places in the source of a part of the view."""
        first, last = bisect_right(self.starts, start) - 1, bisect_left(self.starts, end)
        places = []
        for number in range(first, last):
            begin, stop = self.sources[number]
            after = self.starts[number + 1] if number + 1 < len(self.starts) else len(self.text)
            offset = self.starts[number]
            if after - offset == stop - begin:
                stop = begin + min(end, after) - offset
                begin += max(start, offset) - offset
            places.append((begin, stop))
        return places


@cache
def _division(is_ascii: bool) -> re.Pattern[str]:
    unseen, signs = ("", _SIGNS) if is_ascii else (f"|(?<=[{_UNSEEN}])", _SIGNS + _UNSEEN + "␛")
    terminal = "" if is_ascii else r"|(?<=␛)\[[0-9;:?]{0,30}[A-Za-z]"
    return re.compile(_DIVISION.replace("{signs}", signs).replace("{unseen}", unseen + terminal))


def undivided(text: str) -> View:
    """Returns the view of a text. What stands within long tags comes at its end, a line each."""
    parts: list[str] = []
    starts: list[int] = []
    sources: list[tuple[int, int]] = []
    size = 0

    def add(part: str, start: int, end: int) -> None:
        nonlocal size
        if part:
            parts.append(part)
            starts.append(size)
            sources.append((start, end))
            size += len(part)

    pattern = _division(text.isascii())
    spans = [(0, len(text))]
    for begin, end in spans:
        start = begin
        if start:
            add("\n", start, start)
        for match in pattern.finditer(text, start, end):
            first, last = match.span()
            add(text[start:first], start, first)
            start = last
            kind = match.lastgroup
            if kind in ("tag", "tag_in_escapes", "terminal"):
                if len(match[kind]) >= _SHORT_TAG:
                    spans.append(match.span(kind))
            elif kind in _CHARACTERS:
                add(_seen(_CHARACTERS[kind](match[kind])), first, last)
        add(text[start:end], start, end)
    return View("".join(parts), starts, sources)


def _seen(characters: str) -> str:
    return characters if characters.isascii() else re.sub(f"[{_UNSEEN}]", "", characters)


def _entity(name: str) -> str:
    while name.startswith("amp;#"):
        name = name[4:]
    return html.unescape(f"&{name}")


def _escape(name: str) -> str:
    if name in _LETTERS:
        return _LETTERS[name]
    if name[0] in "\r\n":
        return ""  # the line goes on in the next one
    if len(name) == 1:
        return name
    digits = name[1:].strip("{}") if name[0] in "uUx" else name
    code = int(digits, 16 if name[0] in "uUx" else 8)
    return chr(code) if code < 0x110000 and not 0xD800 <= code < 0xE000 else " "


def _percent(digits: str) -> str:
    return chr(int(digits, 16))


# Kind of a division → the characters that it stands for, by what follows its sign.
_CHARACTERS = {"entity": _entity, "escape": _escape, "percent": _percent}
