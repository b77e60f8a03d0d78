"""Reads what calamine leaves out of workbooks of the older format (XLS): errors, comments, boxes.

[MS-XLS] describes the records. Only a workbook that holds such records is walked through.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator

import msgspec

from kbproc.engine.sources.parse import ole
from kbproc.engine.sources.parse.binary_sheet import ERRORS
from kbproc.engine.sources.parse.grid import cell_name

_BEGIN, _END, _SHEET = 0x809, 0x0A, 0x85
_FORMULA, _SWITCH_OR_ERROR = 0x06, 0x205
_OBJECT, _TEXT, _CONTINUED, _NOTE, _CHART_TEXT = 0x5D, 0x1B6, 0x3C, 0x1C, 0x100D
# How records of errors, of texts of shapes, and the begin of a chart look in the file.
_MARKS = re.compile(
    rb"\x05\x02\x08\x00|\x06\x00.{8}\x02.{5}\xff\xff|\xb6\x01\x12\x00|\x09\x08.\x00\x00\x06\x20\x00",
    re.S,
)


class Extras(msgspec.Struct):
    """The errors of a sheet by row and column, and the texts beside its cells, with their cells."""

    errors: list[tuple[int, int, str]] = []
    texts: list[tuple[str, str]] = []
    charts: int = 0


def extras_of(data: bytes, name: str) -> list[Extras]:
    """Returns what each sheet holds besides its cells; [] for a workbook without such records."""
    try:
        stream = ole.opened(data, name).read("Workbook")
        if not _MARKS.search(stream):
            return []
        places = [
            struct.unpack_from("<I", record)[0]
            for kind, record in _records(stream, 0)
            if kind == _SHEET
        ]
        return [_extras(stream, place) for place in places]
    except (struct.error, IndexError, ole.OleError):
        return []


def _extras(stream: bytes, place: int) -> Extras:
    extras = Extras()
    number, awaited = -1, False
    boxes: dict[int, str] = {}
    for kind, record in _records(stream, place):
        if kind == _BEGIN and struct.unpack_from("<H", record, 2)[0] == 0x20:
            extras.charts += 1
        elif kind == _SWITCH_OR_ERROR and record[7]:
            row, column = struct.unpack_from("<HH", record)
            extras.errors.append((row, column, ERRORS.get(record[6], "")))
        elif kind == _FORMULA and record[12:14] == b"\xff\xff" and record[6] == 2:
            row, column = struct.unpack_from("<HH", record)
            extras.errors.append((row, column, ERRORS.get(record[8], "")))
        elif kind == _OBJECT and len(record) >= 8:
            number = struct.unpack_from("<H", record, 6)[0]
        elif kind == _TEXT:
            awaited = struct.unpack_from("<H", record, 10)[0] > 0
        elif kind == _CONTINUED and awaited:
            boxes[number], awaited = _characters(record[1:], record[0]), False
        elif kind == _NOTE and len(record) >= 8:
            row, column, _, id = struct.unpack_from("<4H", record)
            if words := boxes.pop(id, ""):
                extras.texts.append((cell_name(row, column), f"Comment: {words}"))
        elif kind == _CHART_TEXT and record[2]:
            extras.texts.append(("", _characters(record[4:], record[3])))
    extras.texts += [("", words) for words in boxes.values()]
    return extras


def _characters(data: bytes, flags: int) -> str:
    text = (
        data[: len(data) & ~1].decode("utf-16-le", "replace")
        if flags & 1
        else data.decode("latin-1")
    )
    return " ".join(text.split())


def _records(stream: bytes, at: int) -> Iterator[tuple[int, bytes]]:
    """Yields the records from a place to the end of what begins there; charts lie within."""
    depth = 0
    while at + 4 <= len(stream):
        kind, size = struct.unpack_from("<HH", stream, at)
        yield kind, stream[at + 4 : at + 4 + size]
        depth += (kind == _BEGIN) - (kind == _END)
        if depth <= 0:
            return
        at += 4 + size
