"""A cell far away in a binary workbook costs no memory for the range between."""

from __future__ import annotations

import struct

import pytest

from kbproc.engine.sources.parse.formats import parse
from tests.kit.office import archive

PACKAGE = "http://schemas.openxmlformats.org/package/2006/relationships"


def record(kind: int, content: bytes = b"") -> bytes:
    head = bytes([kind]) if kind < 0x80 else bytes([kind & 0x7F | 0x80, kind >> 7])
    return head + bytes([len(content)]) + content


def text(words: str) -> bytes:
    return struct.pack("<I", len(words)) + words.encode("utf-16-le")


def cell(kind: int, column: int, value: bytes) -> bytes:
    return record(kind, struct.pack("<II", column, 0) + value)


def relations(*links: tuple[str, str, str]) -> str:
    each = '<Relationship Id="{}" Type="http://x/{}" Target="{}"/>'
    lines = "".join(each.format(*link) for link in links)
    return f'<Relationships xmlns="{PACKAGE}">{lines}</Relationships>'


def workbook(last_row: int, cells: bytes, *others: str, says_range: bool = True) -> bytes:
    """Returns a workbook of one sheet with a cell A1 and cells in the last row."""
    size = record(148, struct.pack("<4I", 0, last_row, 0, 16_383)) if says_range else b""
    rows = [record(0, struct.pack("<I", row) + bytes(13)) for row in (0, last_row)]
    sheet = size + record(145) + rows[0] + cell(7, 0, struct.pack("<I", 0)) + rows[1] + cells
    book = record(131) + record(143) + record(156, bytes(8) + text("r1") + text("S"))
    return archive(
        {
            "[Content_Types].xml": "<Types/>",
            "_rels/.rels": relations(("a", "officeDocument", "xl/workbook.bin")),
            "xl/workbook.bin": book + record(144) + record(132),
            "xl/_rels/workbook.bin.rels": relations(
                ("r1", "worksheet", "worksheets/sheet1.bin"),
                ("r2", "sharedStrings", "sharedStrings.bin"),
            ),
            "xl/worksheets/sheet1.bin": record(129) + sheet + record(146) + record(130),
            "xl/sharedStrings.bin": record(159, struct.pack("<II", 1, 1))
            + record(19, b"\0" + text("near"))
            + record(160),
            **dict.fromkeys(others, ""),
        }
    )


VALUES = (
    cell(6, 10, text("far"))
    + cell(2, 11, struct.pack("<i", 7 << 2 | 2))
    + cell(2, 12, struct.pack("<i", 1234 << 2 | 3))
    + cell(2, 13, struct.pack("<d", -2.5)[4:])
    + cell(5, 14, struct.pack("<d", 0.5))
    + cell(3, 15, b"\x07")
    + cell(10, 16, b"\x01")
    + cell(62, 16_383, b"\0" + text("edge"))
)


@pytest.mark.parametrize("says_range", [True, False])
def test_cells_far_apart_are_read(says_range: bool) -> None:
    parsed = parse(workbook(1_048_575, VALUES, says_range=says_range), "sheet", "a.xlsb")
    assert [(block.section, block.text) for block in parsed.blocks] == [
        ("S, A1", "near"),
        ("S, K1048576:XFD1048576", "far | 7 | 12.34 | -2.5 | 0.5 | #DIV/0! | TRUE | edge"),
    ]
    assert parsed.unread == {}


def test_a_sheet_of_an_ordinary_range_is_read_as_before() -> None:
    others = ("xl/comments1.bin", "xl/drawings/drawing1.xml", "xl/media/image1.png")
    parsed = parse(workbook(1, cell(6, 1, text("beside")), *others), "sheet", "a.xlsb")
    assert [(block.section, block.text) for block in parsed.blocks] == [
        ("S, A1:B2", "near\n | beside")
    ]
    assert parsed.unread == {"pictures": 1, "objects": 1, "comments": 1}
