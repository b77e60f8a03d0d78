"""Splits a text into parts to quote: sentences, blocks of code, table rows and log lines.

Code, rows and log lines are quoted whole or not at all. A passage's text no longer has the fences
of its code, so the blocks are read from the source, and found in the passage line by line. A block
that the passage holds only a part of gives no piece.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby, islice
from textwrap import dedent
from typing import Literal, NamedTuple

from kbproc.base.text.analysis import sentences

# `table`: each line is a row, and the first one names the columns. `code`: a file of source code.
Form = Literal["prose", "table", "code"]

# Quotes and list items may stand before a fence. Possessive, because a line may be very long.
_BEFORE_FENCE = re.compile(r"(?:[ \t]|>|(?:[-*+]|\d{1,9}[.)])[ \t])*+")
_LIST_ITEM = re.compile(r"\s*(?:[-*+]|\d{1,9}[.)])\s")
_QUOTED = re.compile(r"^[ \t]*>[ \t]?")
_PRE, _PRE_END = re.compile(r"<pre\b[^<>]*>", re.IGNORECASE), re.compile(r"</pre\b", re.IGNORECASE)
_LANGUAGE = re.compile(r"\b(?:language|lang|highlight-source)-([\w+#-]+)")
_TAG = re.compile(r"<[^<>]*>")
_BREAK = re.compile(r"<br\b[^<>]*>", re.IGNORECASE)
_SEPARATOR = re.compile(r"\s*+\|?\s*+:?-++:?\s*+(?:\|\s*+:?-++:?\s*+)*+\|?\s*+")
_CELLS = re.compile(r"\s\|\s|^\s*\||\t")
# How a line of a log begins: a time, an address, a level, or a record of JSON.
_RECORD = re.compile(
    r"\s*(?:[\[(<]?(?:\d{4}[-/]\d\d[-/]\d\d|\d\d[-/]\d\d[-/]\d{2,4}|\d\d:\d\d:\d\d|\d{10,13}\b)"
    r"|[A-Z][a-z]{2}\s+\d{1,2}\s\d\d:\d\d|(?:\d{1,3}\.){3}\d{1,3}\s"
    r'|[\[(<]?(?:TRACE|DEBUG|INFO|NOTICE|WARN|WARNING|ERROR|CRITICAL|FATAL)\b|\{")'
)
_SHORTEST_FENCE = 3
_MOST_OF_NAME = 200  # characters that may hold the language of a block
_FEWEST = 2  # lines of a table or a log
# A passage may begin or end within a line of code: so many letters of a line are no chance match.
_LEAST_OF_A_LINE = 8
_MOST_BLOCKS = 200  # blocks with a part in one passage


class CodeBlock(NamedTuple):
    """A block of code; its `lines` lack the indentation that all of them share."""

    language: str
    lines: tuple[str, ...]

    def fenced(self) -> str:
        """Returns the block in a fence that is longer than any in it."""
        runs = (run for line in self.lines for run in re.findall("`+", line))
        longest = max(map(len, runs), default=0)
        fence = "`" * max(3, longest + 1)
        return "\n".join([f"{fence}{self.language}", *self.lines, fence])


class Piece(NamedTuple):
    """A part to quote; `head` of a row is the line or lines that name its columns."""

    kind: Literal["sentence", "row", "record", "code"]
    text: str
    head: str = ""


def markdown_blocks(source: str) -> list[CodeBlock]:
    """Returns the blocks of code in Markdown, fenced or indented by four spaces."""
    blocks: list[CodeBlock] = []
    fence, language = "", ""
    inside: list[str] = []
    indented: list[str] = []
    was_blank, in_list = True, False
    for line in source.split("\n"):
        if fence:
            mark = line.lstrip(" \t>").rstrip()
            if mark.startswith(fence) and not mark.strip(fence[0]):
                blocks.append(_block(language, inside))
                fence, inside = "", []
            else:
                inside.append(line)
            continue
        opening = _opening(line)
        code = not opening and not in_list and line.startswith(("    ", "\t"))
        if code and line.strip() and (indented or was_blank):
            indented.append(line)
        elif line.strip() or opening:
            if indented:
                blocks.append(_block("", indented))
            indented = []
            in_list = bool(_LIST_ITEM.match(line)) or (in_list and line[:1].isspace())
        elif indented:
            indented.append(line)
        if opening:
            fence, language = opening
        was_blank = not line.strip()
    return [
        block for block in (*blocks, _block(language, inside), _block("", indented)) if block.lines
    ]


def html_blocks(source: str) -> list[CodeBlock]:
    """Returns the preformatted blocks of a page."""
    blocks: list[CodeBlock] = []
    at = 0
    while (begin := _PRE.search(source, at)) and (end := _PRE_END.search(source, begin.end())):
        inner, at = source[begin.end() : end.start()], end.end()
        named = _LANGUAGE.search(begin[0] + inner[:_MOST_OF_NAME])
        plain = html.unescape(_TAG.sub("", _BREAK.sub("\n", inner)))
        blocks.append(_block(named[1] if named else "", plain.split("\n")))
    return [block for block in blocks if block.lines]


def _opening(line: str) -> tuple[str, str] | None:
    """Returns the fence that a line of Markdown opens, and the language of its code."""
    rest = _BEFORE_FENCE.sub("", line, count=1)
    char = rest[:1]
    info = rest.lstrip(char) if char in {"`", "~"} else ""
    length = len(rest) - len(info)
    if char not in {"`", "~"} or length < _SHORTEST_FENCE or (char == "`" and "`" in info):
        return None
    words = info[:_MOST_OF_NAME].split(maxsplit=1)
    return char * length, words[0] if words else ""


def _block(language: str, lines: Sequence[str]) -> CodeBlock:
    if lines and all(line.lstrip().startswith(">") for line in lines if line.strip()):
        lines = [_QUOTED.sub("", line) for line in lines]
    plain = dedent("\n".join(line.rstrip() for line in lines)).strip("\n")
    return CodeBlock(language, tuple(plain.split("\n")) if plain else ())


def pieces(
    text: str, form: Form = "prose", blocks: Sequence[CodeBlock] = (), language: str = ""
) -> Iterator[Piece]:
    """Yields a passage's sentences, and the other parts as they stand.

    `blocks`: those of its source. `language`: of a file of source code.
    """
    if form == "code":
        yield Piece("code", CodeBlock(language, tuple(text.strip("\n").split("\n"))).fenced())
        return
    lines = text.split("\n")
    if form == "table":
        yield from _rows(lines)
        return
    owners = _owners(lines, blocks)
    for owner, run in groupby(range(len(lines)), key=lambda at: owners[at]):
        if owner is None:
            yield from _prose([lines[at] for at in run])
        elif owner.is_whole:
            yield Piece("code", owner.block.fenced())


class _WordOwner(NamedTuple):
    """A block with lines in a passage; `number` keeps two adjacent blocks apart."""

    number: int
    block: CodeBlock
    is_whole: bool


def _owners(lines: Sequence[str], blocks: Sequence[CodeBlock]) -> list[_WordOwner | None]:
    """Returns for each line of a passage the block that it belongs to, if any."""
    places = [at for at, line in enumerate(lines) if line.strip()]
    plain = [_plain(lines[at]) for at in places]
    owners: list[_WordOwner | None] = [None] * len(lines)
    for block, own in islice(_near(plain, blocks), _MOST_BLOCKS):
        for start, length in _runs(plain, own):
            first, last = places[start], places[start + length - 1]
            owner = _WordOwner(first, block, length == len(own))
            if all(owners[at] is None for at in range(first, last + 1)):
                owners[first : last + 1] = [owner] * (last + 1 - first)
    return owners


def _near(
    plain: Sequence[str], blocks: Sequence[CodeBlock]
) -> Iterator[tuple[CodeBlock, list[str]]]:
    """Yields the blocks that share a line with a passage, each once, with their lines as
    compared.
    """
    whole, outer = frozenset(plain), [line for line in (*plain[:1], *plain[-1:]) if _is_long(line)]
    for block in dict.fromkeys(blocks):
        own = [_plain(line) for line in block.lines if line.strip()]
        if not whole.isdisjoint(own) or any(part in line for part in outer for line in own):
            yield block, own


def _runs(plain: Sequence[str], own: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Yields the first line and the length of each run of a block's lines in a passage.

    A run is the whole block, its last lines at the passage's beginning, its first lines at the
    passage's end, or any of its lines if the passage holds nothing else.
    """
    if not own:
        return
    size, start = len(own), 0
    while start + size <= len(plain):
        if list(plain[start : start + size]) == own:
            yield start, size
            start += size
        else:
            start += 1
    most = min(size - 1, len(plain))
    for length in range(most, 0, -1):
        if _is_part(plain[:length], own[-length:], begins_cut=True):
            yield 0, length
            break
    for length in range(most, 0, -1):
        if _is_part(plain[-length:], own[:length], ends_cut=True):
            yield len(plain) - length, length
            break
    if 0 < len(plain) <= size and any(
        _is_part(plain, own[at : at + len(plain)], begins_cut=True, ends_cut=True)
        for at in range(size - len(plain) + 1)
    ):
        yield 0, len(plain)


def _is_part(
    plain: Sequence[str], own: Sequence[str], *, begins_cut: bool = False, ends_cut: bool = False
) -> bool:
    """Returns whether a passage's lines are these lines of a block; the outer ones may be cut."""
    if len(own) == 1:
        return _is_part_of_a_line(plain[0], own[0], begins_cut, ends_cut)
    return (
        list(plain[1:-1]) == list(own[1:-1])
        and _is_part_of_a_line(plain[0], own[0], begins_cut, False)
        and _is_part_of_a_line(plain[-1], own[-1], False, ends_cut)
    )


def _is_part_of_a_line(part: str, own: str, begins_cut: bool, ends_cut: bool) -> bool:
    if part == own or not _is_long(part):
        return part == own
    if begins_cut and ends_cut:
        return part in own
    return (begins_cut and own.endswith(part)) or (ends_cut and own.startswith(part))


def _is_long(part: str) -> bool:
    return len(part) >= _LEAST_OF_A_LINE


def _plain(line: str) -> str:
    return " ".join(line.split())


def _prose(lines: Sequence[str]) -> Iterator[Piece]:
    """Yields tables and logs line by line, and the text between them by sentences."""
    for paragraph in _paragraphs(lines):
        if len(paragraph) >= _FEWEST and _are_most(paragraph, _RECORD.match):
            yield from (Piece("record", line.rstrip()) for line in paragraph)
            continue
        for is_table, run in groupby(paragraph, key=lambda line: bool(_CELLS.search(line))):
            some = list(run)
            if is_table and len(some) >= _FEWEST:
                yield from _rows(some)
            else:
                yield from (Piece("sentence", one) for one in sentences("\n".join(some)))


def _paragraphs(lines: Sequence[str]) -> Iterator[list[str]]:
    for is_blank, run in groupby(lines, key=lambda line: not line.strip()):
        if not is_blank:
            yield list(run)


def _are_most(lines: Sequence[str], matches: Callable[[str], object]) -> bool:
    return 2 * sum(bool(matches(line)) for line in lines) > len(lines)


def _rows(lines: Sequence[str]) -> Iterator[Piece]:
    """Yields the rows of a table, each with its head."""
    head, *rest = [line.rstrip() for line in lines if line.strip()] or [""]
    if rest and _SEPARATOR.fullmatch(rest[0]):
        head = f"{head}\n{rest.pop(0)}"
    if not rest and head:
        yield Piece("row", head)
    yield from (Piece("row", line, head) for line in rest)
