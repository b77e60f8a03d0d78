"""Headings of marked-up text that is read as it is written: RST, Org, AsciiDoc, TeX, Typst,
MediaWiki, man pages.

The text keeps its lines; the section of each paragraph comes from the markup. The letters that TeX
spells in ASCII are read as letters, and comments, which no reader sees, are left out and counted.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import NamedTuple

import msgspec

from kbproc.base.paths import suffix_of
from kbproc.engine.sources.parse import text
from kbproc.engine.sources.parse.blocks import Block, Headings, Parsed, clean_text, clean_title
from kbproc.engine.sources.parse.formats import has_reader


class _Heading(NamedTuple):
    """`line` counts from 1: the first line that belongs to the heading."""

    line: int
    level: int
    name: str


# A heading below these lines names a part of the text, not the text.
_TITLE_LINES = 10
_UNDERLINE = re.compile(r"([=\-~^\"'`:.#*+_<>])\1{2,}\s*$")
_ORG = re.compile(r"^(\*++)\s++(?:(?:TODO|DONE)\s++)?(.*)")
_ORG_TAGS = re.compile(r"(?<!\s)\s+:[\w@:]+:\Z")
_ASCIIDOC = re.compile(r"^(={1,6})\s++(.*)")
_GROUP = r"\{((?:[^{}]|\{[^{}]*\})*)\}"
_TEX = re.compile(
    r"\s*\\(part|chapter|section|subsection|subsubsection|paragraph)\*?(?:\[[^\[\]]*\])?" + _GROUP
)
_TEX_LEVELS = ("part", "chapter", "section", "subsection", "subsubsection", "paragraph")
_WIKI = re.compile(r"^(={1,6})([^=\n]+)\1\Z")
_TYPST = re.compile(r"^\s*+(=++)\s++([^<\n]*)")
_MAN = re.compile(r"\.\s*+(S[HS])\s++\"?(.*)")


class _Markup(NamedTuple):
    """How a language names its headings and its title, and what of its text no reader sees.

    `title`: its first group is the title. `comment`: a named group of it is the words of a comment.
    `plain`: returns the text with the letters that its markup spells.
    """

    headings: Callable[[list[str]], Iterator[_Heading]]
    title: re.Pattern[str] | None = None
    comment: re.Pattern[str] | None = None
    plain: Callable[[str], str] = str


def parse(data: bytes, name: str) -> Parsed:
    """Returns the paragraphs of a text with the headings above them as sections.

    Raises `input.unsupported_type` for bytes that are not text.
    """
    decoded = text.decode(data, name)
    if not has_reader(decoded.text, name):
        return text.parse_decoded(decoded, name)
    markup = READERS[suffix_of(name)]
    source, comments = _without_comments(clean_text(decoded.text), markup.comment)
    source = markup.plain(source)
    parsed = text.parse_decoded(decoded._replace(text=source), name)
    parsed.unread["comments"] = comments
    headings = list(markup.headings(source.split("\n")))
    is_titled = bool(headings) and headings[0].line <= _TITLE_LINES
    parsed.title = _title(source, markup) or (headings[0].name if is_titled else None)
    parsed.blocks = list(_sectioned(parsed.blocks, headings))
    return parsed


def _title(source: str, markup: _Markup) -> str | None:
    match = markup.title.search(source, 0, _TITLE_CHARS) if markup.title else None
    return clean_title(_MARKUP.sub("", match[1])) if match else None


def _without_comments(source: str, comment: re.Pattern[str] | None) -> tuple[str, int]:
    """Returns the source without the text of its comments, whose lines stay, and their number."""
    count = 0

    def emptied(match: re.Match[str]) -> str:
        nonlocal count
        group = match.lastgroup
        if group is None or not match[group].strip():
            return match[0]
        count += 1
        before, words, after = match[0].partition(match[group])
        return before + "\n" * words.count("\n") + after

    return (comment.sub(emptied, source), count) if comment else (source, 0)


def _sectioned(blocks: list[Block], headings: list[_Heading]) -> Iterator[Block]:
    """Yields each block with the path of the headings that begin in it or above it."""
    path = Headings()
    index = 0
    for block in blocks:
        # A heading and its first lines are one paragraph where no blank line parts them.
        last = (block.line or 0) + block.text.count("\n")
        while index < len(headings) and headings[index].line <= last:
            path.enter(headings[index].level, headings[index].name)
            index += 1
        yield msgspec.structs.replace(block, section=path.section)


def _underlined(lines: list[str]) -> Iterator[_Heading]:
    """Headings of reStructuredText: levels by the order in which their marks first occur."""
    levels: list[str] = []
    for number, (above, line) in enumerate(pairwise(lines), 1):
        mark = _UNDERLINE.match(line)
        name = clean_title(above)
        if not mark or not name or _UNDERLINE.match(above) or len(line.rstrip()) < len(name):
            continue
        over = number > 1 and bool(_UNDERLINE.match(lines[number - 2]))
        kind = mark[1] + ("o" if over else "")
        if kind not in levels:
            levels.append(kind)
        yield _Heading(number - over, levels.index(kind) + 1, name)


def _marked(
    pattern: re.Pattern[str], name_of: Callable[[str], str] = str
) -> Callable[[list[str]], Iterator[_Heading]]:
    """Headings whose level is the number of marks before them."""

    def find(lines: list[str]) -> Iterator[_Heading]:
        for number, line in enumerate(lines, 1):
            match = pattern.match(line.rstrip())
            if match and (name := clean_title(name_of(match[2]))):
                yield _Heading(number, len(match[1]), name)

    return find


def _tex(lines: list[str]) -> Iterator[_Heading]:
    for number, line in enumerate(lines, 1):
        if (match := _TEX.match(line)) and (name := clean_title(match[2])):
            yield _Heading(number, _TEX_LEVELS.index(match[1]), name)


# The accents of TeX, and the marks that Unicode puts behind their letters.
_SIGNS = "`'^\"~=.cvHukrdb"
_MARKS = (
    "\u0300\u0301\u0302\u0308\u0303\u0304\u0307\u0327\u030c\u030b\u0306\u0328\u030a\u0323\u0331"
)
_ACCENT = re.compile(
    r"\\(?P<sign>[`'^\"~=.]|[cvHukrdb](?![A-Za-z]))\s?(?P<brace>\{)?\\?(?P<letter>[A-Za-z])(?(brace)\})"
)
_LETTERS = dict(
    zip(
        ["ss", "o", "O", "l", "L", "ae", "AE", "oe", "OE", "aa", "AA", "dh", "th"],
        ["ß", "ø", "Ø", "ł", "Ł", "æ", "Æ", "œ", "Œ", "å", "Å", "ð", "þ"],
        strict=True,
    )
)
_LETTER = re.compile(rf"\\(?P<name>{'|'.join(_LETTERS)})(?![A-Za-z])(?:\{{\}}| )?")
_BRACED = re.compile(r"\{([^\x00-\x7f])\}")
_SIGN = re.compile(r"\\([&%_$#])|\\-")


def _tex_letters(source: str) -> str:
    """Returns the text with letters in place of their spelling: "Fr\\'echet" is "Fréchet"."""

    def accented(match: re.Match[str]) -> str:
        mark = _MARKS[_SIGNS.index(match["sign"])]
        return unicodedata.normalize("NFC", match["letter"] + mark)

    source = _ACCENT.sub(accented, source)
    source = _LETTER.sub(lambda match: _LETTERS[match["name"]], source)
    source = _SIGN.sub(lambda match: match[1] or "", source)
    return _BRACED.sub(r"\1", source).replace("~", " ")


def _unquoted(name: str) -> str:
    return name.rstrip().removesuffix('"')


def _man(lines: list[str]) -> Iterator[_Heading]:
    for number, line in enumerate(lines, 1):
        if (match := _MAN.match(line)) and (name := clean_title(_unquoted(match[2]))):
            yield _Heading(number, 1 if match[1] == "SH" else 2, name)


_TITLE_CHARS = 20_000  # a title stands within as many characters from the start
_MARKUP = re.compile(r"\\[A-Za-z]+\*?\s?|\\\\|[{}$]")
_BIBLIOGRAPHY = _Markup(lambda lines: iter(()), plain=_tex_letters)
_PAPER = _Markup(
    _tex,
    title=re.compile(r"\\title\s*(?:\[[^\[\]]*\])?" + _GROUP),
    # A percent sign in an address or in verbatim text begins no comment.
    comment=re.compile(
        r"\\begin\{comment\}(?P<passage>[\s\S]*?)(?:\\end\{comment\}|\Z)"
        r"|\\url\{[^{}\n]*\}|\\verb([!|+/@=:;,\"'.?-]).*?\2|\\.|%(?P<line>.*)"
    ),
    plain=_tex_letters,
)
_WIKI_PAGE = _Markup(_marked(_WIKI), comment=re.compile(r"<!--(?P<text>[\s\S]*?)(?:-->|\Z)"))
READERS: dict[str, _Markup] = {
    ".rst": _Markup(_underlined),
    ".org": _Markup(
        _marked(_ORG, lambda name: _ORG_TAGS.sub("", name)),
        title=re.compile(r"^#\+title:(.*)$", re.I | re.M),
        comment=re.compile(r"^[ \t]*+#(?P<text> .*)$", re.M),
    ),
    ".adoc": _Markup(
        _marked(_ASCIIDOC, lambda name: name.rstrip("=")),
        comment=re.compile(r"^//(?P<text>(?!/).*)$", re.M),
    ),
    ".tex": _PAPER,
    ".bib": _BIBLIOGRAPHY,
    ".typ": _Markup(
        _marked(_TYPST),
        title=re.compile(r"#set\s+document\([^()]{0,300}?title:\s*[\[\"]([^\]\"]{0,300})[\]\"]"),
        comment=re.compile(r"(?<!:)//(?P<text>.*)"),
    ),
    ".wiki": _WIKI_PAGE,
    ".mediawiki": _WIKI_PAGE,
    **{f".{number}": _Markup(_man) for number in range(1, 10)},
}
READERS[".asciidoc"] = READERS[".adoc"]
