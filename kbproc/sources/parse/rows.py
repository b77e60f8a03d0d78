"""Tables in files of comma- or tab-separated values.

Owns: which paragraphs of such a file are one table. Refuses to know: chunks, cells' meaning.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable

_DELIMITERS = ",;\t|"
_NUMBER = re.compile(r"[-+(]?[$€£¥]?\s*\d[\d.,:/\s-]*[%)]?\Z")
# Rows that are longer are not looked into.
_ROW_CHARS = 10_000


# A stretch of a text: how many lines stand above it, where it starts and where it ends.
Part = tuple[int, int, int]


def tables(text: str, parts: Iterable[Part]) -> list[Part]:
    """`parts` of `text`, which blank lines keep apart, with those joined that are one table.

    A part goes on with the table above it if its first row has as many fields as that one's head,
    and is no head itself: words alone above a row with numbers.
    """
    joined: list[Part] = []
    delimiter, width = ",", 0
    for part in parts:
        first, second = _first_rows(text, part)
        fields = _fields(first, delimiter)
        if (
            joined
            and width > 1
            and len(fields) == width
            and not _is_head(fields, _fields(second, delimiter))
        ):
            joined[-1] = (*joined[-1][:2], part[2])
            continue
        delimiter = max(_DELIMITERS, key=first.count)
        width = len(_fields(first, delimiter))
        joined.append(part)
    return joined


def _first_rows(text: str, part: Part) -> tuple[str, str]:
    _, start, end = part
    first_end = _line_end(text, start, end)
    second_end = _line_end(text, first_end + 1, end)
    return text[start:first_end], text[first_end + 1 : second_end]


def _line_end(text: str, start: int, end: int) -> int:
    line_end = text.find("\n", start, end)
    return end if line_end < 0 else line_end


def _fields(row: str, delimiter: str) -> list[str]:
    try:
        return next(csv.reader([row[:_ROW_CHARS]], delimiter=delimiter), [])
    except csv.Error:
        return []


def _is_head(fields: list[str], below: list[str]) -> bool:
    numbers = [bool(_NUMBER.match(field.strip())) for field in below]
    return any(numbers) and not any(_NUMBER.match(field.strip()) for field in fields)
