"""Reads the cells of XLSB sheets whose range is too large for a library that allocates it.

[MS-XLSB] describes the records. Values are shown without their formats.
"""

from __future__ import annotations

import struct
import zipfile
from collections import Counter
from collections.abc import Iterator

from kbproc.engine.sources.parse.grid import Grid, free
from kbproc.engine.sources.parse.number_format import plain
from kbproc.engine.sources.parse.ooxml import Archive
from kbproc.engine.sources.parse.packed import BROKEN

# A sheet with a larger range than this takes more than half of a parser's memory.
MAX_RANGE = 1 << 24
_ROW, _TEXT_ITEM, _RANGE, _SHEET = 0, 19, 148, 156
_RK, _ERROR, _SWITCH, _NUMBER, _TEXT, _SHARED = 2, 3, 4, 5, 6, 7
_RICH = 62
# Formulas' values are written as those of other cells.
_OF_FORMULAS = {8: _TEXT, 9: _NUMBER, 10: _SWITCH, 11: _ERROR}
ERRORS = {
    0x00: "#NULL!",
    0x07: "#DIV/0!",
    0x0F: "#VALUE!",
    0x17: "#REF!",
    0x1D: "#NAME?",
    0x24: "#NUM!",
    0x2A: "#N/A",
    0x2B: "#GETTING_DATA",
}


class BinaryWorkbook:
    """An XLSB archive."""

    def __init__(self, opened: zipfile.ZipFile) -> None:
        self._zip = opened
        archive = Archive(opened, "xl/workbook.bin")
        links = archive.links_by_id(archive.main)
        self._parts: dict[str, str] = {}
        for kind, data in _records(self._content(archive.main)):
            if kind == _SHEET:
                id, end = _wide(data, 8)
                name, _ = _wide(data, end)
                if id in links:
                    self._parts[name] = links[id].target
        strings = [link.target for link in links.values() if link.kind == "sharedStrings"]
        self._strings_part = strings[0] if strings else ""
        self._strings: list[str] | None = None

    def _content(self, part: str) -> bytes:
        try:
            return self._zip.read(part)
        except BROKEN:
            return b""

    def count_beside(self, unread: Counter[str]) -> None:
        """Counts the parts beside the cells: comments, drawings with shapes or charts, pictures."""
        for name in self._zip.namelist():
            folder, _, part = name.rpartition("/")
            unread["comments"] += part.startswith(("comments", "threadedComment"))
            unread["objects"] += folder == "xl/drawings" and part.endswith(".xml")
            unread["pictures"] += folder == "xl/media"

    def is_oversized(self, sheet: str) -> bool:
        """Returns True if the range from the first to the last cell of a sheet is too large."""
        rows, columns = set[int](), set[int]()
        row = 0
        for kind, data in _records(self._content(self._parts.get(sheet, ""))):
            if kind == _RANGE:
                top, bottom, first, last = map(int, struct.unpack_from("<4I", data))
                return (bottom - top + 1) * (last - first + 1) > MAX_RANGE
            if kind == _ROW:
                (row,) = struct.unpack_from("<I", data)
            elif kind in _OF_FORMULAS or _RK <= kind <= _SHARED or kind == _RICH:
                rows.add(row)
                columns.add(struct.unpack_from("<I", data)[0])
        if not rows:
            return False
        return (max(rows) - min(rows) + 1) * (max(columns) - min(columns) + 1) > MAX_RANGE

    def read(self, sheet: str, grid: Grid) -> None:
        """Reads the cells of a sheet into the grid."""
        if self._strings is None:
            items = _records(self._content(self._strings_part))
            self._strings = [_wide(data, 1)[0] for kind, data in items if kind == _TEXT_ITEM]
        row = 0
        cells: dict[int, str] = {}
        for kind, data in _records(self._content(self._parts.get(sheet, ""))):
            if kind == _ROW:
                grid.add(row, cells)
                cells = {}
                (row,) = struct.unpack_from("<I", data)
            elif text := self._text(_OF_FORMULAS.get(kind, kind), data):
                (column,) = struct.unpack_from("<I", data)
                cells[free(cells, column)] = text
        grid.add(row, cells)

    def _text(self, kind: int, data: bytes) -> str:
        """Returns the text of a cell; "" for a record that is none."""
        strings = self._strings or []
        if kind == _RK:
            return plain(_compact(*struct.unpack_from("<i", data, 8)))
        if kind == _NUMBER:
            return plain(*struct.unpack_from("<d", data, 8))
        if kind == _SWITCH:
            return plain(bool(data[8]))
        if kind == _ERROR:
            return ERRORS.get(data[8], "")
        if kind in (_TEXT, _RICH):
            return plain(_wide(data, 8 if kind == _TEXT else 9)[0])
        if kind == _SHARED:
            (number,) = struct.unpack_from("<I", data, 8)
            return plain(strings[number]) if number < len(strings) else ""
        return ""


def _records(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yields the kind and the content of each record; the last one may be cut."""
    at = 0
    while at < len(data):
        kind, at = _counted(data, at, 2)
        size, at = _counted(data, at, 4)
        if at + size > len(data):
            return
        yield kind, data[at : at + size]
        at += size


def _counted(data: bytes, at: int, most: int) -> tuple[int, int]:
    """Returns a number of seven bits a byte, and where it ends."""
    number = 0
    for place in range(most):
        if at >= len(data):
            break
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            break
    return number, at


def _wide(data: bytes, at: int) -> tuple[str, int]:
    """Returns a text with its length before it, and where it ends."""
    (length,) = struct.unpack_from("<I", data, at)
    end = at + 4 + 2 * length
    return data[at + 4 : end].decode("utf-16-le", "replace"), end


def _compact(code: int) -> float:
    """Returns a number that is written in 30 bits: a whole one, or the head of a float."""
    if code & 2:
        number = float(code >> 2)
    else:
        (number,) = struct.unpack("<d", struct.pack("<ii", 0, code & ~3))
    return number / 100 if code & 1 else number
