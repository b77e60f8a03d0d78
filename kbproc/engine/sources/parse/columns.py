"""Puts the text of PDF columns that were drawn line by line into reading order.

Most programs draw one column to its end and then the next, and need none of this. Some draw the
page from top to bottom across its columns; read in that order, each line would continue in another
column's sentence. The module tells such columns of prose from the columns of a table.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from statistics import median
from typing import NamedTuple

# The mean width of a character in narrow type, in units of its size.
_NARROW = 0.42
# The share of the size of the type by which a line may rise or fall.
_SAME_LINE = 0.45
_FEWEST_ROWS = 3
# The least share of a page's rows in which a column has to begin.
_COMMON = 0.15
_LEAST_CHARACTERS, _LEAST_WORDS = 14, 2.5
# Lines of prose fill their column, a table's cells do not.
_FILL, _EVEN, _EVEN_SHARE = 0.45, 0.7, 0.6
_MOST_RUNS = 20_000
_MOST_COLUMNS = 4


class TextRun(NamedTuple):
    """A stretch of text: its place along the line and across lines, type size, characters."""

    along: float
    across: float
    size: float
    characters: int
    text: str = ""


class _ColumnLine(NamedTuple):
    """The runs of one row that stand on one side of a gutter, or across it."""

    side: str
    across: float
    size: float
    start: float
    characters: int
    runs: list[TextRun]


def gutter(runs: Sequence[TextRun]) -> float | None:
    """Returns where the right of two columns begins, if they were drawn line by line."""
    if not 2 * _FEWEST_ROWS <= len(runs) <= _MOST_RUNS:
        return None
    # A column on the right begins beside text on the left that was drawn just before.
    starts: Counter[int] = Counter()
    rows = 1
    for before, run in pairwise(runs):
        distance = abs(run.across - before.across)
        if run.along > before.along and distance < 1.1 * run.size:
            starts[round(run.along)] += 1
        elif distance > _SAME_LINE * run.size:
            rows += 1
    least = max(_FEWEST_ROWS, _COMMON * rows)
    common = [start for start, count in starts.most_common(8) if count >= least]
    for start in sorted(common):
        if _is_gutter(_lines(runs, start - 1.5)):
            return start - 1.5
    return None


def reading_order(runs: Sequence[TextRun]) -> str:
    """Returns the text of `runs`, line by line, one column after the other."""
    return "\n".join(_ordered(runs, _MOST_COLUMNS))


def _ordered(runs: Sequence[TextRun], columns: int) -> list[str]:
    start = gutter(runs) if columns > 1 else None
    if start is None:
        return _as_drawn(runs)
    texts: list[str] = []
    on_left: list[TextRun] = []
    on_right: list[TextRun] = []

    def end_region() -> None:
        if texts and (on_left or on_right):
            texts.append("")  # because a paragraph does not go on across the edge of a region
        for side in (on_left, on_right):
            texts.extend(_ordered(side, columns - 1))
            side.clear()

    lines = _lines(runs, start)
    usual = median(line.size for line in lines)
    for i, line in enumerate(lines):
        if line.side == "across" or (
            line.side == "left" and line.size > 1.15 * usual and not _has_neighbour(lines, i)
        ):
            if on_left or on_right:
                end_region()
                texts.append("")
            texts += _as_drawn(line.runs)
        else:
            (on_left if line.side == "left" else on_right).extend(line.runs)
    end_region()
    return texts


def _as_drawn(runs: Sequence[TextRun]) -> list[str]:
    texts: list[str] = []
    before: TextRun | None = None
    for run in runs:
        if before and abs(run.across - before.across) <= _SAME_LINE * max(run.size, before.size):
            texts[-1] += run.text
        else:
            texts.append(run.text)
        before = run
    return [line.strip() for text in texts for line in text.split("\n") if line.strip()]


def _lines(runs: Sequence[TextRun], start: float) -> list[_ColumnLine]:
    """Returns the rows in the order in which they were drawn, each cut at `start`."""
    lines: list[_ColumnLine] = []
    row: list[TextRun] = []
    for run in runs:
        if row and abs(run.across - row[-1].across) > _SAME_LINE * max(run.size, row[-1].size):
            lines += _parted(row, start)
            row = []
        row.append(run)
    return lines + _parted(row, start)


def _parted(row: list[TextRun], start: float) -> list[_ColumnLine]:
    on_left = [run for run in row if run.along < start]
    on_right = [run for run in row if run.along >= start]
    if (
        on_left
        and max(run.along + run.size * _NARROW * run.characters for run in on_left) > start + 6
    ):
        return [_line("across", row)]
    return [_line(side, part) for side, part in (("left", on_left), ("right", on_right)) if part]


def _line(side: str, runs: list[TextRun]) -> _ColumnLine:
    first = min(run.along for run in runs)
    characters = sum(run.characters for run in runs)
    size = max(run.size for run in runs)
    return _ColumnLine(side, runs[0].across, size, first, characters, runs)


def _has_neighbour(lines: list[_ColumnLine], i: int) -> bool:
    """Returns True if a line of the right column stands beside this line of the left one."""
    near = lines[max(0, i - 2) : i + 3]
    return any(
        line.side == "right" and abs(line.across - lines[i].across) < lines[i].size for line in near
    )


def _is_gutter(lines: list[_ColumnLine]) -> bool:
    pairs = [
        (line, following)
        for line, following in pairwise(lines)
        if (line.side, following.side) == ("left", "right")
        and abs(line.across - following.across) < 1.1 * max(line.size, following.size)
    ]
    sides = Counter(line.side for line in lines)
    most = max(min(sides["left"], sides["right"]), 1)
    if len(pairs) < max(_FEWEST_ROWS, 0.6 * most) or sides["across"] > 0.5 * len(pairs):
        return False
    width = min(pair[1].start for pair in pairs) - min(pair[0].start for pair in pairs)
    return all(_is_prose([pair[side] for pair in pairs], width) for side in (0, 1))


def _is_prose(lines: list[_ColumnLine], width: float) -> bool:
    counts = [line.characters for line in lines]
    if median(counts) < _LEAST_CHARACTERS:
        return False
    filled = median(line.characters * line.size * _NARROW for line in lines)
    even = sum(count >= _EVEN * max(counts) for count in counts)
    if filled < _FILL * width or even < _EVEN_SHARE * len(counts):
        return False
    texts = ["".join(run.text for run in line.runs) for line in lines]
    return not any(texts) or median(len(text.split()) for text in texts) >= _LEAST_WORDS
