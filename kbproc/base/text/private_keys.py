"""Finds private keys in a text, also as programs show them: with numbers of lines, arrows, signs of
quotes and of changes, names of files, on one line, or only their heads or ends.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from kbproc.base.text.secret_places import Secret

_KIND = "private_key"
_BORDER = re.compile(
    r"-----(?P<side>BEGIN|END) [A-Z0-9 ]{0,30}PRIVATE KEY(?: BLOCK)?-----|Private-Lines: \d{1,3}"
)
# Programs write a file's name, a number, an arrow or the sign of a quote before a line.
_BEFORE = r"(?:[\w./\\-]{1,200}[:-])?[^A-Za-z\n]{0,40}?"
_BODY = re.compile(rf"{_BEFORE}(?P<body>[A-Za-z0-9+/]+={{0,2}})[^\w\n]{{0,10}}")
_OTHER = re.compile(rf"{_BEFORE}(?:[A-Za-z-]{{3,30}}: [^\n]{{0,200}})?[^A-Za-z\n]{{0,40}}")
_ROWS = re.compile(r"(?:\s{0,10}[A-Za-z0-9+/]{40,}={0,2})+")
_LONG = 40  # characters of a line that only a key has
_MOST_CHARS, _MOST_LINES, _MOST_OTHERS = 20_000, 400, 8


def private_keys(text: str) -> Iterator[Secret]:
    """Yields what stands between the head and the end of a private key, or beside one of them."""
    last = 0
    for border in _BORDER.finditer(text):
        if border.start() < last:
            continue
        if border["side"] == "END":
            start, end = _before(text, border.start(), last)
        else:
            start, end = border.end(), _after(text, border.end())
        last = border.end()
        if end > start:
            yield Secret(start, end, _KIND)
            last = max(last, end)


def _after(text: str, start: int) -> int:
    """Returns the end of the key whose head ends at `start`; `start` for a head without a key."""
    end, has_long, others = start, False, 0
    for place, whole in _lines(text, start):
        line, dashes, rest = whole.partition("-----")
        is_last = rest.startswith("END ")
        if place == start and (row := _ROWS.search(line) if is_last else _ROWS.match(line)):
            has_long, end = True, start + row.end()
        elif not dashes:
            body = _BODY.fullmatch(line)
            is_long = body is not None and len(body["body"]) >= _LONG
            others = 0 if is_long else others + 1
            if others > _MOST_OTHERS or (body is None and not _OTHER.fullmatch(line)):
                break
            if is_long or (body and end == place - 1 and not line.isalpha()):
                has_long, end = has_long or is_long, place + len(line)
        if dashes:
            end = place + len(line) if is_last else end
            break
    return end if has_long else start


def _lines(text: str, start: int) -> Iterator[tuple[int, str]]:
    """Yields the place and the text of the next lines; the last one may be cut."""
    for _ in range(_MOST_LINES):
        stop = text.find("\n", start, start + _MOST_CHARS)
        yield start, text[start : stop if stop >= 0 else start + _MOST_CHARS]
        if stop < 0:
            return
        start = stop + 1


def _before(text: str, end: int, first: int) -> tuple[int, int]:
    """Returns the lines of a key before its end, whose head is missing."""
    newline = text.rfind("\n", max(first, end - _MOST_CHARS), end)
    start = stop = newline
    for _ in range(_MOST_LINES):
        begin = text.rfind("\n", max(first, stop - _MOST_CHARS), stop) if stop > first else -1
        body = _BODY.fullmatch(text, max(begin + 1, first), stop) if stop > first else None
        if body is None:
            break
        if len(body["body"]) >= _LONG:
            start = body.start("body")
        stop = begin
    return (start, newline) if start < newline else (end, end)
