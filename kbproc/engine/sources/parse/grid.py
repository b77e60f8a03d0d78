"""Turns the cells of a sheet into blocks: each region as rows below its head, cited by its range.

Time and memory follow the cells that hold something, never the range from the first to the last.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice, repeat
from typing import NamedTuple

from kbproc.engine.sources.parse.blocks import Block

Row = dict[int, str]
"""The texts of a row by column, from 0; columns without text are absent."""
Range = tuple[tuple[int, int], tuple[int, int]]
"""The first and the last cell of a range, each by row and column from 0."""

# Characters of rows in one block, so that a cited range is a screenful and no more.
_BLOCK_CHARS = 900
# A longer head is not repeated in each block.
_HEAD_CHARS = 300
# A merged cell of more cells than this one is not repeated in its rows.
_MERGED_CELLS = 1_000
_GAP = " | "
# Empty columns stay in a region that is at most this much wider than its columns with text.
_WIDER, _WIDER_BY = 8, 100
# A region with more empty cells than this for each cell with text has none of them in its lines.
_EMPTIER, _EMPTIER_BY = 20, 100_000


class Grid:
    """The cells of a sheet that hold text, at most `most`; `omitted` counts those beyond it."""

    def __init__(self, most: int) -> None:
        self.rows: dict[int, Row] = {}
        self.merged: list[Range] = []
        self.size = 0
        self.omitted = 0
        self._most = most

    def add(self, row: int, cells: Row) -> None:
        """Adds cells to a row, all of which hold text; no cell replaces another."""
        room = self._most - self.size
        if len(cells) > room:
            self.omitted += len(cells) - room
            cells = dict(islice(cells.items(), room))
        if not cells:
            return
        self.size += len(cells)
        earlier = self.rows.setdefault(row, cells)
        for column, text in cells.items() if earlier is not cells else ():
            earlier[free(earlier, column)] = text

    def blocks(self, sheet: str) -> Iterator[Block]:
        """Yields the blocks of the sheet's regions from the top down."""
        _spread(self.rows, self.merged)
        for region in _regions(self.rows):
            yield from _blocks(sheet, region)


def free(cells: Row, column: int) -> int:
    """Returns the column, or the next one that holds no text."""
    while column in cells:
        column += 1
    return column


class _Region(NamedTuple):
    """Rows without an empty one between them; `rows` are those of the columns in use.

    `row` is the number of the first one, `columns` are the first and the last column, from 0.
    """

    row: int
    columns: tuple[int, int]
    rows: list[list[str]]


def cell_name(row: int, column: int) -> str:
    """(3, 1) → "B4"; both count from 0."""
    letters = ""
    column += 1
    while column:
        column, rest = divmod(column - 1, 26)
        letters = chr(ord("A") + rest) + letters
    return f"{letters}{row + 1}"


def _spread(rows: dict[int, Row], merged: Iterable[Range]) -> None:
    """Repeats the text of a merged cell in each row that it spans, as a reader sees it there.

    In a row with other texts it is repeated in each column, too: it may be the head of several.
    """
    last_row = max(rows, default=-1)
    last_column = max((max(row) for row in rows.values()), default=-1) if merged else -1
    for (top, first), (bottom, last) in merged:
        if (bottom - top + 1) * (last - first + 1) > _MERGED_CELLS:
            continue
        text = rows.get(top, {}).get(first)
        span = range(first, min(last, last_column) + 1)
        for number in range(top, min(bottom, last_row) + 1) if text else ():
            row = rows.setdefault(number, {})
            row.setdefault(first, text or "")
            if any(column not in span for column in row):
                for column in span:
                    row.setdefault(column, text or "")


def _regions(rows: dict[int, Row]) -> Iterator[_Region]:
    numbers: list[int] = []
    for number in sorted(rows):
        if numbers and number != numbers[-1] + 1:
            yield _region(rows, numbers)
            numbers = []
        numbers.append(number)
    if numbers:
        yield _region(rows, numbers)


def _region(rows: dict[int, Row], numbers: list[int]) -> _Region:
    used = sorted({column for number in numbers for column in rows[number]})
    first, last = used[0], used[-1]
    columns: Iterable[int] = range(first, last + 1)
    width = last + 1 - first
    if width > _WIDER * len(used) + _WIDER_BY:
        columns, width = used, len(used)
    cells = sum(len(rows[number]) for number in numbers)
    if width * len(numbers) > _EMPTIER * cells + _EMPTIER_BY:
        lines = [[text for _, text in sorted(rows[number].items())] for number in numbers]
    else:
        lines = [list(map(rows[number].get, columns, repeat(""))) for number in numbers]
    return _Region(numbers[0], (first, last), lines)


def _blocks(sheet: str, region: _Region) -> Iterator[Block]:
    """Yields blocks of rows, each below the region's head if it has a short one."""
    head = _GAP.join(region.rows[0]) if _has_head(region.rows) else ""
    if len(head) > _HEAD_CHARS:
        head = ""
    lines: list[str] = []
    first = chars = 0
    for number, row in enumerate(region.rows):
        line = _GAP.join(row).rstrip(" |")
        if lines and chars + len(line) > _BLOCK_CHARS:
            yield _block(sheet, region, head, first, lines)
            lines, first, chars = [], number, 0
        lines.append(line)
        chars += len(line)
    yield _block(sheet, region, head, first, lines)


def _block(sheet: str, region: _Region, head: str, first: int, lines: list[str]) -> Block:
    above = [head] if head and first else []
    begin = cell_name(region.row + first, region.columns[0])
    end = cell_name(region.row + first + len(lines) - 1, region.columns[1])
    place = begin if begin == end else f"{begin}:{end}"
    text = "\n".join([*above, *lines])
    return Block(text=text, section=f"{sheet}, {place}", kind="table")


def _has_head(rows: list[list[str]]) -> bool:
    """Returns True if the first row names the columns: words in each, or words above numbers."""
    head, *others = rows
    if not others or sum(map(bool, head)) < 2 or any(map(_is_number, head)):
        return False
    return all(head) or any(_is_number(cell) for row in others[:20] for cell in row)


def _is_number(text: str) -> bool:
    return text.lstrip("-+( $€£¥.")[:1].isdigit()
