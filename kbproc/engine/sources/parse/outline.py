"""Headings of marked-up text that is read as it is written: RST, Org, AsciiDoc, TeX, man pages.

The text stays as it is, with its lines; only the section of each paragraph comes from the markup.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import NamedTuple

import msgspec

from kbproc.base.paths import suffix_of
from kbproc.engine.sources.parse import text
from kbproc.engine.sources.parse.blocks import Block, Headings, Parsed, clean_text, clean_title


class _Heading(NamedTuple):
    """`line` counts from 1: the first line that belongs to the heading."""

    line: int
    level: int
    name: str


# A heading below these lines names a part of the text, not the text.
_TITLE_LINES = 10
_UNDERLINE = re.compile(r"([=\-~^\"'`:.#*+_<>])\1{2,}\s*$")
_ORG = re.compile(r"(\*++)\s++(?:(?:TODO|DONE)\s++)?(.*)")
_ORG_TAGS = re.compile(r"(?<!\s)\s+:[\w@:]+:\Z")
_ASCIIDOC = re.compile(r"(={1,6})\s++(.*)")
_TEX = re.compile(r"\s*\\(part|chapter|section|subsection|subsubsection|paragraph)\*?\{([^{}]*)\}")
_TEX_LEVELS = ("part", "chapter", "section", "subsection", "subsubsection", "paragraph")
_MAN = re.compile(r"\.\s*+(S[HS])\s++\"?(.*)")


def parse(data: bytes, name: str) -> Parsed:
    """Returns the paragraphs of a text with the headings above them as sections.

    Raises `input.unsupported_type` for bytes that are not text.
    """
    decoded = text.decode(data, name)
    parsed = text.parse_decoded(decoded, name)
    find = READERS[suffix_of(name)]
    headings = list(find(clean_text(decoded.text).split("\n")))
    is_titled = bool(headings) and headings[0].line <= _TITLE_LINES
    parsed.title = headings[0].name if is_titled else None
    parsed.blocks = list(_sectioned(parsed.blocks, headings))
    return parsed


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


def _org(lines: list[str]) -> Iterator[_Heading]:
    for number, line in enumerate(lines, 1):
        match = _ORG.match(line.rstrip())
        if match and (name := clean_title(_ORG_TAGS.sub("", match[2]))):
            yield _Heading(number, len(match[1]), name)


def _asciidoc(lines: list[str]) -> Iterator[_Heading]:
    for number, line in enumerate(lines, 1):
        match = _ASCIIDOC.match(line.rstrip())
        if match and (name := clean_title(match[2].rstrip("="))):
            yield _Heading(number, len(match[1]), name)


def _tex(lines: list[str]) -> Iterator[_Heading]:
    for number, line in enumerate(lines, 1):
        if (match := _TEX.match(line)) and (name := clean_title(match[2])):
            yield _Heading(number, _TEX_LEVELS.index(match[1]), name)


def _unquoted(name: str) -> str:
    return name.rstrip().removesuffix('"')


def _man(lines: list[str]) -> Iterator[_Heading]:
    for number, line in enumerate(lines, 1):
        if (match := _MAN.match(line)) and (name := clean_title(_unquoted(match[2]))):
            yield _Heading(number, 1 if match[1] == "SH" else 2, name)


READERS: dict[str, Callable[[list[str]], Iterator[_Heading]]] = {
    ".rst": _underlined,
    ".org": _org,
    ".adoc": _asciidoc,
    ".asciidoc": _asciidoc,
    ".tex": _tex,
    **{f".{number}": _man for number in range(1, 10)},
}
