"""Finds the tables in files of comma-, semicolon- or tab-separated values.

Rows stay as they are written. A field with line breaks becomes one line, so that a line of a table
is one row, whose number a hit cites.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice

from kbproc.engine.sources.parse.blocks import Block

_DELIMITERS = ",;\t|"
_NUMBER = re.compile(r"[-+(]?[$€£¥]?\s*\d[\d.,:/\s-]*[%)]?\Z")
_ROW_CHARS = 10_000  # the part of a row that is parsed to find its table
_SAMPLE_ROWS = 20
# A quoted field that goes on in later lines, up to its closing quote.
_BROKEN_FIELD = re.compile(
    r'(?:(?<=[\n,;\t|])|\A)"(?:[^"\n]|"")*+(?:\n(?:[^"\n]|"")*+){1,200}+"(?=[,;\t|\n]|\Z)'
)
# A line in which Excel reads the delimiter, and which it does not show.
_EXCEL_DELIMITER = re.compile(r"\Asep=[,;\t|]\n", re.I)
# A longer head is not repeated in each chunk: the name of its column stands before each value.
_HEAD_CHARS = 300
_FEWEST_COLUMNS = 8
_LABEL_CHARS = 60
# Labels make rows longer. They are left out in larger tables, and where they would have more than
# so many times the characters of the values.
_MOST_LABELS = 10
_MOST_LABELLED = 8 << 20

# A range of a text: the number of lines above it, its start and its end.
TextRange = tuple[int, int, int]


def blocks(text: str, paragraphs: Iterable[TextRange]) -> Iterator[Block]:
    """Yields a block for each table of `text`, and for what stands above a table's head.

    `line` is the number of the first row. `paragraphs`: the ranges that blank lines separate.
    """
    for lines, start, end in tables(text, paragraphs):
        head = _above_head(text, start, end)
        if head > start:
            yield Block(text=text[start : head - 1], line=lines + 1)
        below = lines + text.count("\n", start, head)
        labelled = _labelled(text, head, end)
        if labelled is None:
            yield Block(text=text[head:end], kind="table", line=below + 1)
        else:
            yield Block(text=labelled, kind="code", line=below + 2)


def in_rows(text: str) -> str:
    """Returns `text` with a line for each row: breaks within quoted fields become spaces."""
    text = _EXCEL_DELIMITER.sub("\n", text)
    if '"' not in text:
        return text
    return _BROKEN_FIELD.sub(lambda field: field[0].replace("\n", " "), text)


def tables(text: str, parts: Iterable[TextRange]) -> list[TextRange]:
    """Joins the parts of `text`, which are separated by blank lines, that are one table.

    A part continues the table above it if its first row has as many fields as the table's head,
    and is no head itself. A head has words alone, above a row with numbers.
    """
    joined: list[TextRange] = []
    delimiter, width = ",", 0
    for part in parts:
        _, start, end = part
        sample = list(islice(_rows(text, start, end), _SAMPLE_ROWS))
        fields = _fields(sample[0], delimiter)
        below = _fields(sample[1], delimiter) if len(sample) > 1 else []
        if joined and width > 1 and len(fields) == width and not _is_head(fields, below):
            joined[-1] = (*joined[-1][:2], end)
            continue
        delimiter, width = _dialect(sample)
        joined.append(part)
    return joined


def _rows(text: str, start: int, end: int) -> Iterator[str]:
    """Yields the beginning of each row."""
    while start <= end:
        line_end = text.find("\n", start, end)
        line_end = end if line_end < 0 else line_end
        yield text[start : min(line_end, start + _ROW_CHARS)]
        start = line_end + 1


def _dialect(rows: list[str]) -> tuple[str, int]:
    """Returns the delimiter that cuts the most rows into the same number of fields, and that."""
    best, best_score, best_width = ",", (0.0, 0), 1
    for delimiter in _DELIMITERS:
        widths = Counter(len(_fields(row, delimiter)) for row in rows if row.strip())
        if not widths:
            break
        width, count = max(widths.items(), key=lambda pair: (pair[0] > 1, *pair[::-1]))
        score = (count / len(rows), width) if width > 1 else (0.0, 0)
        if score > best_score:
            best, best_score, best_width = delimiter, score, width
    return best, best_width


def _fields(row: str, delimiter: str) -> list[str]:
    try:
        return next(csv.reader([row], delimiter=delimiter), [])
    except csv.Error:
        return []


def _is_head(fields: list[str], below: list[str]) -> bool:
    numbers = [bool(_NUMBER.match(field.strip())) for field in below]
    return any(numbers) and not any(_NUMBER.match(field.strip()) for field in fields)


def _above_head(text: str, start: int, end: int) -> int:
    """Returns where the table begins: below the lines that have no columns, such as a title."""
    sample = list(islice(_rows(text, start, end), _SAMPLE_ROWS))
    delimiter, width = _dialect(sample)
    at = start
    for row in sample if width > 1 else []:
        if len(_fields(row, delimiter)) > 1:
            return at
        at = text.find("\n", at, end) + 1
    return start


def _labelled(text: str, start: int, end: int) -> str | None:
    """Returns the rows of a wide table with "column: value" for each field; None for a narrow one.

    A head that is longer than a part of a chunk can't be repeated above each part.
    """
    rows = _rows(text, start, end)
    head = next(rows)
    if not _HEAD_CHARS < len(head) < _ROW_CHARS or end - start > _MOST_LABELLED:
        return None
    sample = [head, *islice(rows, _SAMPLE_ROWS)]
    if len(sample) == 1:
        return None
    delimiter, width = _dialect(sample)
    names = [" ".join(name.split())[:_LABEL_CHARS] for name in _fields(head, delimiter)]
    values = sum(map(len, sample[1:]))
    labels = sum(map(len, names)) * (len(sample) - 1)
    if width < _FEWEST_COLUMNS or len(names) != width or labels > _MOST_LABELS * values:
        return None
    if any(map(_NUMBER.match, names)):
        return None
    lines = []
    for line in text[start:end].split("\n")[1:]:
        fields = _fields(line, delimiter)
        if len(fields) > width:  # the fields without a name would be lost
            lines.append(line)
            continue
        pairs = zip(names, fields, strict=False)
        lines.append("; ".join(f"{name}: {value}" for name, value in pairs if value.strip()))
    return "\n".join(lines)
