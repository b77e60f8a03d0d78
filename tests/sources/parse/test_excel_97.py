"""A workbook of the older format is read with its errors, comments, boxes and charts' titles."""

from __future__ import annotations

import struct

from kbproc.engine.sources.parse.formats import parse
from tests.kit.compound import compound


def record(kind: int, content: bytes = b"") -> bytes:
    return struct.pack("<HH", kind, len(content)) + content


def begin(kind: int) -> bytes:
    return record(0x809, struct.pack("<HHHHII", 0x600, kind, 0, 0, 0, 0))


END = record(0x0A)


def number(row: int, column: int, value: float) -> bytes:
    return record(0x203, struct.pack("<HHHd", row, column, 0, value))


def box(id: int, words: str) -> bytes:
    """Returns a shape with a text, as one of Excel's comments is drawn, too."""
    shape = record(0x5D, struct.pack("<HHHH", 0x15, 0x12, 6, id) + bytes(14))
    head = record(0x1B6, struct.pack("<HH6xHHI", 0, 0, len(words), 16, 0))
    return (
        shape + head + record(0x3C, b"\x01" + words.encode("utf-16-le")) + record(0x3C, bytes(16))
    )


def workbook(cells: bytes) -> bytes:
    head = begin(5)
    named = struct.pack("<BBBB", 0, 0, 1, 0) + b"S"
    place = len(head) + 4 + 4 + len(named) + len(END)
    sheet = begin(0x10) + cells + END + bytes(5000)
    return compound(
        {"Workbook": head + record(0x85, struct.pack("<I", place) + named) + END + sheet}
    )


def test_errors_comments_boxes_and_titles_of_charts_are_read() -> None:
    result = b"\x02\0\x2a\0\0\0\xff\xff"
    title = record(0x100D, struct.pack("<HBB", 0, 5, 0) + b"Loads")
    data = workbook(
        number(0, 0, 7)
        + record(0x205, struct.pack("<HHHBB", 0, 1, 0, 7, 1))
        + record(0x06, struct.pack("<HHH", 0, 2, 0) + result + bytes(8))
        + box(1, "Ask the pilot")
        + box(2, "Closed in winter")
        + begin(0x20)
        + title
        + END
        + record(0x1C, struct.pack("<HHHHHB", 0, 1, 0, 1, 3, 0) + b"Ann\0")
    )
    parsed = parse(data, "sheet", "a.xls")
    assert [(block.section, block.text) for block in parsed.blocks] == [
        ("S, A1:C1", "7 | #DIV/0! | #N/A"),
        ("S", "Loads"),
        ("S, B1", "Comment: Ask the pilot"),
        ("S", "Closed in winter"),
    ]
    assert parsed.unread == {"objects": 1}


def test_cells_far_apart_are_read() -> None:
    parsed = parse(workbook(number(0, 0, 1) + number(9_999, 255, 2)), "sheet", "a.xls")
    assert [(block.section, block.text) for block in parsed.blocks] == [
        ("S, A1", "1"),
        ("S, IV10000", "2"),
    ]
    assert parsed.unread == {}
    [block] = parse(workbook(number(6, 2, 1) + number(7, 3, 2)), "sheet", "a.xls").blocks
    assert block.section == "S, C7:D8"
