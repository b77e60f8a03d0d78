"""Parts of a text that are quoted whole or not at all: blocks of code, rows of tables, log lines.

Owns: how such parts are recognised, in a source as written and in a passage of its text.
Refuses to know: what is quoted, and how much of it.

A passage's text no longer has the fences of its code, so the blocks are read from the source, and
found in the passage line by line. A block that the passage holds only a part of gives no piece.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Sequence
from itertools import groupby
from textwrap import dedent
from typing import Literal, NamedTuple

from kbproc.text.sentences import sentences

# `table`: each line is a row, and the first one names the columns. `code`: a file of source code.
Form = Literal["prose", "table", "code"]

_OPENING = re.compile(r"(?:[ \t]|>|(?:[-*+]|\d{1,9}[.)])[ \t])*(`{3,}|~{3,})[ \t]*([^\s`]*)[^`]*$")
_LIST_ITEM = re.compile(r"\s*(?:[-*+]|\d{1,9}[.)])\s")
_QUOTED = re.compile(r"^[ \t]*>[ \t]?")
_PRE = re.compile(r"<pre\b([^>]*)>(.*?)</pre\s*>", re.IGNORECASE | re.DOTALL)
_LANGUAGE = re.compile(r"\b(?:language|lang|highlight-source)-([\w+#-]+)")
_TAG = re.compile(r"<[^>]*>")
_BREAK = re.compile(r"<br\b[^>]*>", re.IGNORECASE)
_SEPARATOR = re.compile(r"\s*\|?(?:\s*:?-+:?\s*\|)*\s*:?-+:?\s*\|?\s*")
_CELLS = re.compile(r"\s\|\s|^\s*\||\t")
# How a line of a log begins: a time, an address, a level, or a record of JSON.
_RECORD = re.compile(
    r"\s*(?:[\[(<]?(?:\d{4}[-/]\d\d[-/]\d\d|\d\d[-/]\d\d[-/]\d{2,4}|\d\d:\d\d:\d\d|\d{10,13}\b)"
    r"|[A-Z][a-z]{2}\s+\d{1,2}\s\d\d:\d\d|(?:\d{1,3}\.){3}\d{1,3}\s"
    r'|[\[(<]?(?:TRACE|DEBUG|INFO|NOTICE|WARN|WARNING|ERROR|CRITICAL|FATAL)\b|\{")'
)
_FEWEST = 2  # lines of a table or a log
# A passage may begin or end within a line of code: so many letters of it are no chance.
_LEAST_OF_A_LINE = 8


class CodeBlock(NamedTuple):
    """`lines`: as written, without the indentation that all of them share."""

    language: str
    lines: tuple[str, ...]


class Piece(NamedTuple):
    """`head`: of a row, the line or lines that name its columns."""

    kind: Literal["sentence", "row", "record", "code"]
    text: str
    head: str = ""


def markdown_blocks(source: str) -> list[CodeBlock]:
    """The blocks of code in Markdown, fenced or indented by four spaces."""
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
        opening = _OPENING.match(line)
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
            fence, language = opening[1], opening[2]
        was_blank = not line.strip()
    return [
        block for block in (*blocks, _block(language, inside), _block("", indented)) if block.lines
    ]


def html_blocks(source: str) -> list[CodeBlock]:
    """The preformatted blocks of a page."""
    blocks = []
    for attributes, inner in _PRE.findall(source):
        named = _LANGUAGE.search(attributes + inner[:200])
        plain = html.unescape(_TAG.sub("", _BREAK.sub("\n", inner)))
        blocks.append(_block(named[1] if named else "", plain.split("\n")))
    return [block for block in blocks if block.lines]


def _block(language: str, lines: Sequence[str]) -> CodeBlock:
    if lines and all(line.lstrip().startswith(">") for line in lines if line.strip()):
        lines = [_QUOTED.sub("", line) for line in lines]
    plain = dedent("\n".join(line.rstrip() for line in lines)).strip("\n")
    return CodeBlock(language, tuple(plain.split("\n")) if plain else ())


def pieces(
    text: str, form: Form = "prose", blocks: Sequence[CodeBlock] = (), language: str = ""
) -> Iterator[Piece]:
    """A passage's sentences, and the other parts as they stand.

    `blocks`: those of its source. `language`: of a file of source code.
    """
    if form == "code":
        yield Piece("code", fenced(CodeBlock(language, tuple(text.strip("\n").split("\n")))))
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
            yield Piece("code", fenced(owner.block))


def fenced(block: CodeBlock) -> str:
    """A block in a fence that is longer than any in it."""
    longest = max((len(run) for line in block.lines for run in re.findall("`+", line)), default=0)
    fence = "`" * max(3, longest + 1)
    return "\n".join([f"{fence}{block.language}", *block.lines, fence])


class _Owner(NamedTuple):
    """A block of which lines of a passage are a part. `number`: two of them are not one run."""

    number: int
    block: CodeBlock
    is_whole: bool


def _owners(lines: Sequence[str], blocks: Sequence[CodeBlock]) -> list[_Owner | None]:
    """For each line of a passage the block that it belongs to, if any."""
    places = [at for at, line in enumerate(lines) if line.strip()]
    plain = [_plain(lines[at]) for at in places]
    owners: list[_Owner | None] = [None] * len(lines)
    for block in blocks:
        own = [_plain(line) for line in block.lines if line.strip()]
        for start, length in _runs(plain, own):
            first, last = places[start], places[start + length - 1]
            owner = _Owner(first, block, length == len(own))
            if all(owners[at] is None for at in range(first, last + 1)):
                owners[first : last + 1] = [owner] * (last + 1 - first)
    return owners


def _runs(plain: Sequence[str], own: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Where a passage holds all lines of a block; or the last of them at its beginning, the first
    ones at its end, or nothing else. Yields the first line and how many there are.
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
    """Whether lines of a passage are these lines of a block; the outer ones may be cut."""
    if len(own) == 1:
        return _is_part_of_a_line(plain[0], own[0], begins_cut, ends_cut)
    return (
        list(plain[1:-1]) == list(own[1:-1])
        and _is_part_of_a_line(plain[0], own[0], begins_cut, False)
        and _is_part_of_a_line(plain[-1], own[-1], False, ends_cut)
    )


def _is_part_of_a_line(part: str, own: str, begins_cut: bool, ends_cut: bool) -> bool:
    if part == own or len(part) < _LEAST_OF_A_LINE:
        return part == own
    if begins_cut and ends_cut:
        return part in own
    return (begins_cut and own.endswith(part)) or (ends_cut and own.startswith(part))


def _plain(line: str) -> str:
    return " ".join(line.split())


def _prose(lines: Sequence[str]) -> Iterator[Piece]:
    """Tables and logs line by line, what stands between them by sentences."""
    for paragraph in _paragraphs(lines):
        if len(paragraph) >= _FEWEST and _are_most(paragraph, _RECORD):
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


def _are_most(lines: Sequence[str], pattern: re.Pattern[str]) -> bool:
    return 2 * sum(bool(pattern.match(line)) for line in lines) > len(lines)


def _rows(lines: Sequence[str]) -> Iterator[Piece]:
    """The rows of a table, each with its head."""
    head, *rest = [line.rstrip() for line in lines if line.strip()] or [""]
    if rest and _SEPARATOR.fullmatch(rest[0]):
        head = f"{head}\n{rest.pop(0)}"
    if not rest and head:
        yield Piece("row", head)
    yield from (Piece("row", line, head) for line in rest)
