"""Spreadsheets: each region of a sheet as rows with its head, cited by sheet and range.

XLSX, XLSM and ODS are read by their XML, with numbers as their cells show them, and with comments,
shapes, charts and pictures' descriptions. calamine reads XLSB and XLS: there 15 % reads 0.15.
"""

from __future__ import annotations

import io
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

from kbproc.base.errors import KbprocError
from kbproc.engine.sources.parse import packed
from kbproc.engine.sources.parse.binary_sheet import BinaryWorkbook
from kbproc.engine.sources.parse.blocks import Block, Parsed, Scalar
from kbproc.engine.sources.parse.excel_97 import Extras, extras_of
from kbproc.engine.sources.parse.grid import Grid
from kbproc.engine.sources.parse.kinds import OLE
from kbproc.engine.sources.parse.number_format import plain
from kbproc.engine.sources.parse.ooxml import DamagedPartError
from kbproc.engine.sources.parse.packed import BROKEN

if TYPE_CHECKING:
    from python_calamine import CalamineSheet

# A workbook's cells beyond this number are left out, and counted.
MAX_CELLS = 2_000_000
_ODS_CONTENT = "content.xml"
_WORKSHEETS = ("worksheet", "xlMacrosheet", "xlIntlMacrosheet")


class _SheetToRead(NamedTuple):
    """A sheet, about how large it is, and what reads it into a grid.

    `beside`: what returns the texts beside its cells.
    """

    label: str
    size: int
    read: Callable[[Grid], None]
    beside: Callable[[], Iterable[Block]] = tuple


def parse(data: bytes, name: str) -> Parsed:
    """Returns the blocks of a workbook: up to a screenful of rows each, below their head.

    Raises `operation.failed` for a workbook that is damaged or needs a password,
    `input.too_large` for a zip bomb.
    """
    archive = packed.opened(data, name, "XLSX") if data.startswith(b"PK") else None
    names = archive.namelist() if archive else []
    if archive is not None and _ODS_CONTENT in names:
        if _is_locked(archive):
            raise _locked(name)
        return _ods(archive, name)
    if archive is not None and not any(part.endswith("workbook.bin") for part in names):
        return _xlsx(archive, name)
    return _binary(data, name, BinaryWorkbook(archive) if archive else None)


def _xlsx(archive: zipfile.ZipFile, name: str) -> Parsed:
    from kbproc.engine.sources.parse.workbook import Workbook

    try:
        book = Workbook(archive)
    except DamagedPartError as error:
        message = f"{name} is damaged or no workbook: {error}."
        raise KbprocError("operation.failed", message) from error
    sheets = []
    for part in book.sheets:
        label = part.name if part.state == "visible" else f"{part.name} (hidden)"
        is_sheet = part.link is None or part.link.kind in _WORKSHEETS
        read = partial(book.read, part) if is_sheet else _read_nothing
        sheets.append(_SheetToRead(label, part.size, read, partial(book.beside, part, label)))
    return _parsed(sheets, book.unread)


def _ods(archive: zipfile.ZipFile, name: str) -> Parsed:
    from kbproc.engine.sources.parse.ods import OdsBook

    book = OdsBook(archive, name)
    sheets = []
    for part in book.sheets:
        label = f"{part.name} (hidden)" if part.is_hidden else part.name
        size = part.end - part.begin
        sheets.append(
            _SheetToRead(label, size, partial(book.read, part), partial(book.beside, part, label))
        )
    return _parsed(sheets, book.unread)


def _parsed(sheets: list[_SheetToRead], unread: Counter[str]) -> Parsed:
    """Returns the blocks of the sheets in their order.

    Smaller sheets are read first, so that a huge one takes none of their share of the cells.
    """
    blocks: dict[int, list[Block]] = {}
    room = MAX_CELLS
    for number, sheet in sorted(enumerate(sheets), key=lambda pair: pair[1].size):
        grid = Grid(room)
        sheet.read(grid)
        room -= grid.size
        unread["cells"] += grid.omitted
        blocks[number] = [*grid.blocks(sheet.label), *sheet.beside()]
    metadata: dict[str, Scalar] = {"sheets": len(sheets)}
    in_order = [block for number in range(len(sheets)) for block in blocks[number]]
    return Parsed(blocks=in_order, metadata=metadata, unread=dict(+unread))


def _read_nothing(grid: Grid) -> None:
    """Leaves the grid empty: the sheet is a chart."""


def _binary(data: bytes, name: str, xlsb: BinaryWorkbook | None) -> Parsed:
    """Returns the blocks of a workbook that calamine reads, but for sheets of too large a range."""
    from python_calamine import (
        CalamineError,
        CalamineWorkbook,
        PasswordError,
        SheetTypeEnum,
        SheetVisibleEnum,
    )

    try:
        book = CalamineWorkbook.from_filelike(io.BytesIO(data))
    except PasswordError as error:
        raise _locked(name) from error
    except CalamineError as error:
        message = f"{name} is damaged or no workbook: {error}."
        raise KbprocError("operation.failed", message) from error
    unread: Counter[str] = Counter()
    sheets = []
    extras = extras_of(data, name) if data.startswith(OLE) else []
    if xlsb is not None:
        xlsb.count_beside(unread)
    for number, about in enumerate(book.sheets_metadata):
        if about.typ != SheetTypeEnum.WorkSheet:
            unread["objects"] += 1
            continue
        hidden = "" if about.visible == SheetVisibleEnum.Visible else " (hidden)"
        label = f"{about.name}{hidden}"
        if xlsb is not None and xlsb.is_oversized(about.name):
            sheets.append(_SheetToRead(label, len(data), partial(xlsb.read, about.name)))
            continue
        sheet = book.get_sheet_by_name(about.name)
        size = sheet.height * sheet.width
        extra = extras[number] if number < len(extras) else Extras()
        unread["objects"] += extra.charts
        read = partial(_fill, sheet, extra)
        sheets.append(_SheetToRead(label, size, read, partial(_beside, label, extra)))
    return _parsed(sheets, unread)


def _fill(sheet: CalamineSheet, extra: Extras, grid: Grid) -> None:
    _, leftmost = sheet.start or (0, 0)
    for number, row in rows_of(sheet):
        texts = (
            (column, plain(value)) for column, value in enumerate(row, leftmost) if value != ""
        )
        grid.add(number, {column: text for column, text in texts if text})
    for number, column, text in extra.errors:
        if text and column not in grid.rows.get(number, {}):
            grid.add(number, {column: text})
    grid.merged += sheet.merged_cell_ranges or []


def rows_of(sheet: CalamineSheet) -> Iterator[tuple[int, list[Any]]]:
    """Yields the sheet's rows with their numbers from 0, the cells from its leftmost column on.

    A row with a time that Python or calamine can't hold is passed over.
    """
    rows = sheet.iter_rows()
    for number in count():
        try:
            row = next(rows, None)
        except OverflowError:
            continue
        except BaseException as error:  # calamine's class for it can't be imported
            if type(error).__name__ != "PanicException":
                raise
            continue
        if row is None:
            return
        yield number, row


def _beside(label: str, extra: Extras) -> list[Block]:
    return [
        Block(text=text, section=f"{label}, {cell}" if cell else label)
        for cell, text in extra.texts
    ]


def _is_locked(archive: zipfile.ZipFile) -> bool:
    """Returns True for an ODS workbook with a password, whose content is no XML."""
    try:
        return b"encryption-data" in archive.read("META-INF/manifest.xml")
    except BROKEN:
        return False


def _locked(name: str) -> KbprocError:
    return KbprocError("operation.failed", f"{name} needs a password: save it without one.")
