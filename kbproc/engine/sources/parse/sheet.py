"""Spreadsheets: each region of a sheet as rows with its head, cited by sheet and range.

calamine reads XLSX, XLSM, XLSB, XLS and ODS. It gives values. Numbers, dates and times of XLSX and
XLSM are then shown in the formats of their cells; in the others, 15 % reads 0.15.
"""

from __future__ import annotations

import datetime
import io
import re
import zipfile
from collections.abc import Iterator
from typing import Any, NamedTuple

from kbproc.base.errors import KbprocError
from kbproc.engine.sources.parse import packed
from kbproc.engine.sources.parse.blocks import Block, Parsed, Scalar
from kbproc.engine.sources.parse.number_format import BUILT_IN, in_format
from kbproc.engine.sources.parse.ooxml import Archive, DamagedPartError
from kbproc.engine.sources.parse.packed import BROKEN, attribute, local

# Characters of rows in one block, so that a cited range is a screenful and no more.
_BLOCK_CHARS = 900
# A longer head is not repeated in each block.
_HEAD_CHARS = 300
# Sheets that would bring a workbook's cells above this number are left out, and counted.
MAX_CELLS = 2_000_000
# A merged cell of more cells than this one is not repeated in its rows.
_MERGED_CELLS = 1_000
_GAP = " | "
_ODS_CONTENT = "content.xml"

Row = list[str]
_Range = tuple[tuple[int, int], tuple[int, int]]


def parse(data: bytes, name: str) -> Parsed:
    """Returns the blocks of a workbook: up to a screenful of rows each, below their head.

    Raises `operation.failed` for a workbook that is damaged or needs a password,
    `input.too_large` for a zip bomb.
    """
    from python_calamine import (
        CalamineError,
        CalamineWorkbook,
        PasswordError,
        SheetTypeEnum,
        SheetVisibleEnum,
    )

    archive = packed.opened(data, name, "XLSX") if data.startswith(b"PK") else None
    if archive is not None and _ODS_CONTENT in archive.namelist():
        if _is_locked(archive):
            raise _locked(name)
        packed.require_xml(archive, _ODS_CONTENT, name)
    formats = _CellFormats(archive)
    try:
        book = CalamineWorkbook.from_filelike(io.BytesIO(data))
    except PasswordError as error:
        raise _locked(name) from error
    except CalamineError as error:
        message = f"{name} is damaged or no workbook: {error}."
        raise KbprocError("operation.failed", message) from error
    blocks: list[Block] = []
    cells = left_out = charts = 0
    for about in book.sheets_metadata:
        if about.typ != SheetTypeEnum.WorkSheet:
            charts += 1
            continue
        sheet = book.get_sheet_by_name(about.name)
        size = sheet.height * sheet.width
        if cells + size > MAX_CELLS:
            left_out += size
            continue
        cells += size
        hidden = "" if about.visible == SheetVisibleEnum.Visible else " (hidden)"
        for region in _regions(sheet, formats):
            blocks += _blocks(f"{about.name}{hidden}", region)
    metadata: dict[str, Scalar] = {"sheets": len(book.sheet_names)}
    unread = {"cells": left_out, "objects": charts}
    return Parsed(blocks=blocks, metadata=metadata, unread=unread)


def _is_locked(archive: zipfile.ZipFile) -> bool:
    """Returns True for an ODS workbook with a password, whose content is no XML."""
    try:
        return b"encryption-data" in archive.read("META-INF/manifest.xml")
    except BROKEN:
        return False


def _locked(name: str) -> KbprocError:
    return KbprocError("operation.failed", f"{name} needs a password: save it without one.")


class _CellFormats:
    """The number formats of an XLSX workbook's cells; none for another kind of workbook."""

    def __init__(self, archive: zipfile.ZipFile | None) -> None:
        self._zip = archive
        self._parts: dict[str, str] = {}
        self._codes: dict[str, str] = {}
        if archive is None or "xl/workbook.xml" not in archive.namelist():
            return
        try:
            opened = Archive(archive, "xl/workbook.xml")
            links = opened.links_by_id(opened.main)
            book = opened.xml(opened.main)
        except DamagedPartError:  # then calamine tells what is damaged, or reads the rest
            return
        for sheet in (each for each in book.iter() if local(each) == "sheet"):
            link = links.get(attribute(sheet, "id") or "")
            if link is not None:
                self._parts[sheet.get("name", "")] = link.target
        styles = next((link.target for link in links.values() if link.kind == "styles"), None)
        self._codes = _format_codes(opened.optional(styles))

    def cells(self, sheet: str) -> Iterator[tuple[int, int, str]]:
        """Yields row and column, from 0, and the format of each cell of a sheet that has one."""
        part = self._parts.get(sheet)
        if self._zip is None or part is None or not self._codes:
            return
        try:
            content = self._zip.read(part)
        except BROKEN:
            return
        styles = "|".join(map(re.escape, self._codes))
        cell = re.compile(
            rf'<(?:\w+:)?c\s(?=[^<>]*\br="([A-Z]{{1,3}})(\d{{1,7}})")[^<>]*\bs="({styles})"'.encode()
        )
        for match in cell.finditer(content):
            letters, row, style = (group.decode() for group in match.groups())
            yield int(row) - 1, _column(letters), self._codes[style]


def _format_codes(styles: Any) -> dict[str, str]:
    """Returns the code of each cell style that shows a number in another way than as it is."""
    if styles is None:
        return {}
    codes = dict(BUILT_IN)
    for element in styles.iter():
        if local(element) == "numFmt" and (element.get("numFmtId") or "").isdecimal():
            codes[int(element.get("numFmtId"))] = element.get("formatCode", "")
    cell_styles = next((each for each in styles.iter() if local(each) == "cellXfs"), ())
    ids = [each.get("numFmtId", "") for each in cell_styles if local(each) == "xf"]
    return {
        str(style): codes[int(id)]
        for style, id in enumerate(ids)
        if id.isdecimal() and codes.get(int(id), "General").lower() not in ("general", "@", "")
    }


def _column(letters: str) -> int:
    """ "B" → 1"""
    column = 0
    for letter in letters:
        column = column * 26 + ord(letter) - ord("A") + 1
    return column - 1


class _Region(NamedTuple):
    """Rows without an empty one between them; `row` and `column`: its first cell, from 0."""

    row: int
    column: int
    rows: list[Row]


def _regions(sheet: Any, formats: _CellFormats) -> Iterator[_Region]:
    """Yields the regions of a sheet from the top down, without their empty outer columns."""
    if sheet.start is None:
        return
    top, first_column = sheet.start
    values = sheet.to_python()
    rows = [[_shown(cell) for cell in row] for row in values]
    for number, column, code in formats.cells(sheet.name):
        row, place = number - top, column - first_column
        if 0 <= row < len(rows) and 0 <= place < len(rows[row]):
            text = in_format(values[row][place], code)
            rows[row][place] = rows[row][place] if text is None else text
    _spread(rows, sheet.merged_cell_ranges or [], top, first_column)
    region: list[Row] = []
    for number, row in enumerate([*rows, []]):
        if any(row):
            region.append(row)
        elif region:
            used = [i for i in range(len(region[0])) if any(line[i] for line in region)]
            first, last = used[0], used[-1] + 1
            cut = [line[first:last] for line in region]
            yield _Region(top + number - len(region), first_column + first, cut)
            region = []


def _spread(rows: list[Row], merged: list[_Range], top: int, leftmost: int) -> None:
    """Repeats the text of a merged cell in each row that it spans, as a reader sees it there.

    In a row with other texts it is repeated in each column, too: it may be the head of several.
    """
    for (first_row, first_column), (last_row, last_column) in merged:
        begin, column = first_row - top, first_column - leftmost
        size = (last_row - first_row + 1) * (last_column - first_column + 1)
        if size > _MERGED_CELLS or begin < 0 or column < 0:
            continue
        text = rows[begin][column] if begin < len(rows) and column < len(rows[begin]) else ""
        for row in rows[begin : last_row - top + 1] if text else []:
            row[column] = row[column] or text
            span = range(column, min(last_column - leftmost + 1, len(row)))
            if any(cell for i, cell in enumerate(row) if i not in span):
                for place in span:
                    row[place] = row[place] or text


def _shown(cell: object) -> str:
    """Returns a cell's value as a sheet shows it, on one line."""
    if isinstance(cell, bool):
        return "TRUE" if cell else "FALSE"
    if isinstance(cell, float):
        return str(int(cell)) if cell.is_integer() and abs(cell) < 1e15 else repr(cell)
    if isinstance(cell, datetime.datetime):
        return cell.isoformat(" ")
    return " ".join(str(cell).split())


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
    width = len(region.rows[0])
    begin = cell_name(region.row + first, region.column)
    end = cell_name(region.row + first + len(lines) - 1, region.column + width - 1)
    place = begin if begin == end else f"{begin}:{end}"
    text = "\n".join([*above, *lines])
    return Block(text=text, section=f"{sheet}, {place}", kind="table")


def _has_head(rows: list[Row]) -> bool:
    """Returns True if the first row names the columns: words in each, or words above numbers."""
    head, *others = rows
    if not others or sum(map(bool, head)) < 2 or any(map(_is_number, head)):
        return False
    return all(head) or any(_is_number(cell) for row in others[:20] for cell in row)


def _is_number(text: str) -> bool:
    return text.lstrip("-+( $€£¥.")[:1].isdigit()


def cell_name(row: int, column: int) -> str:
    """(3, 1) → "B4"; both count from 0."""
    letters = ""
    column += 1
    while column:
        column, rest = divmod(column - 1, 26)
        letters = chr(ord("A") + rest) + letters
    return f"{letters}{row + 1}"
