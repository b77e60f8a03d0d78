"""Pieces of a Word 97 document become paragraphs, tables and notes, without hidden text."""

from __future__ import annotations

import struct
from collections.abc import Mapping

import pytest

from kbproc.base.errors import KbprocError
from kbproc.engine.sources.parse.blocks import Block
from kbproc.engine.sources.parse.word_97 import parse
from tests.kit.compound import compound

TEXT = 0x800  # the place of the text in the stream
DELETED, HIDDEN = struct.pack("<HB", 0x0800, 1), struct.pack("<HB", 0x083C, 1)
ROW_END = struct.pack("<HB", 0x2417, 1)
# A range of characters → its properties, or its style's number with them.
Marks = Mapping[tuple[int, int], bytes]


def page(marks: Marks, step: int) -> bytes:
    """Returns a page of properties; `step`: bytes of an entry behind the places."""
    edges = [TEXT + edge for span in marks for edge in span]
    runs = len(edges) - 1
    data = bytearray(512)
    struct.pack_into(f"<{runs + 1}I", data, 0, *edges)
    at = 400
    for number, properties in enumerate(marks.values()):
        size = bytes([len(properties)])
        if step > 1:  # a page of paragraphs counts pairs of bytes, in two ways
            pairs = (len(properties) + 1) // 2
            size = bytes([pairs] if len(properties) % 2 else [0, pairs])
        data[at : at + len(size) + len(properties)] = size + properties
        data[4 * (runs + 1) + step * 2 * number] = at // 2
        at += 4 + len(properties) + len(properties) % 2
    data[511] = runs
    return bytes(data)


def word(
    text: str | bytes,
    *,
    wide: str = "",
    marked: Marks | None = None,
    styles: Marks | None = None,
    stories: tuple[int, ...] = (),
    **more: int,
) -> bytes:
    """Returns a document of one piece; `stories`: the sizes of its texts, the main one first.

    `wide`: the text of a second piece, in characters of two bytes. `more`: the mark, version or
    flags of the document; `size` and `place` are those of the first piece.
    """
    raw = text.encode("cp1252") if isinstance(text, str) else text
    stream = bytearray(TEXT)
    struct.pack_into("<HH", stream, 0, more.get("mark", 0xA5EC), more.get("version", 0xC1))
    struct.pack_into("<H", stream, 0x0A, more.get("flags", 0))
    sizes = (*(stories or (len(raw) + len(wide),)), *[0] * 8)[:8]
    struct.pack_into("<8i", stream, 0x4C, *sizes)
    place = more.get("place", 2 * TEXT | 0x40000000)
    size, end = more.get("size", len(raw)), TEXT + len(raw)
    places = struct.pack("<HIH", 0, place, 0)
    pieces = struct.pack("<II", 0, size) + places
    if wide:
        second = struct.pack("<HIH", 0, end, 0)
        pieces = struct.pack("<III", 0, size, size + len(wide)) + places + second
    table = b"\1\3\0xyz\2" + struct.pack("<I", len(pieces)) + pieces
    struct.pack_into("<II", stream, 0x1A2, 0, len(table))
    for entry, number, marks, step in ((0xFA, 1, marked, 1), (0x102, 2, styles, 13)):
        if marks:
            stream[512 * (number + 1) : 512 * (number + 2)] = page(marks, step)
            struct.pack_into("<II", stream, entry, len(table), 12)
            table += struct.pack("<III", 0, len(raw), number + 1)
    name = "1Table" if more.get("flags", 0) & 0x200 else "0Table"
    return compound({"WordDocument": bytes(stream) + raw + wide.encode("utf-16-le"), name: table})


def refused(data: bytes) -> str:
    """Returns the message with which a document is refused."""
    with pytest.raises(KbprocError) as caught:
        parse(data, "a.doc")
    assert caught.value.type == "operation.failed"
    return caught.value.message


def style(number: int, properties: bytes = b"") -> bytes:
    return struct.pack("<H", number) + properties


@pytest.mark.parametrize("flags", [0, 0x200])
def test_headings_are_sections_of_the_paragraphs_below_them(flags: int) -> None:
    text = "Guide\rIntro.\rPart\rWords – “now”\r"
    styles = {(0, 6): style(1), (13, 18): style(2)}
    parsed = parse(word(text, styles=styles, flags=flags), "a.doc")
    assert parsed.blocks == [
        Block(text="Guide", section="Guide"),
        Block(text="Intro.", section="Guide"),
        Block(text="Part", section="Guide > Part"),
        Block(text="Words – “now”", section="Guide > Part"),
    ]
    assert parsed.title == "Guide"


def test_rows_of_a_table_keep_their_empty_cells() -> None:
    text = "Above\rItem\x07\x07Count\x07\x07Hook\x07red\rish\x0712\x07\x07Below\r"
    styles = {(at, at + 1): style(0, ROW_END) for at in (18, 35)}
    parsed = parse(word(text, styles=styles), "a.doc")
    assert [(block.kind, block.text) for block in parsed.blocks] == [
        ("prose", "Above"),
        ("table", "Item |  | Count\nHook | red ish | 12"),
        ("prose", "Below"),
    ]


def test_a_table_at_the_end_without_its_last_mark_is_read() -> None:
    styles = {(4, 5): style(0, ROW_END)}
    parsed = parse(word("a\x07b\x07\x07c\x07d", styles=styles), "a.doc")
    assert [(block.kind, block.text) for block in parsed.blocks] == [
        ("table", "a | b\nc"),
        ("prose", "d"),
    ]


def test_deleted_and_hidden_text_is_counted_and_not_read() -> None:
    parsed = parse(word("Old new secret end\r", marked={(0, 4): DELETED, (8, 15): HIDDEN}), "a.doc")
    assert [block.text for block in parsed.blocks] == ["new end"]
    assert parsed.unread["deleted_passages"] == 1
    assert parsed.unread["hidden_passages"] == 1


def test_a_property_is_found_behind_others_of_each_size() -> None:
    others = b"".join(
        [
            struct.pack("<HB", 0x0835, 0),
            struct.pack("<HH", 0x4A43, 24),
            struct.pack("<HI", 0x6A03, 0),
            struct.pack("<HB", 0xCA47, 2) + b"zz",
            struct.pack("<H", 0xEA3F) + b"zzz",
        ]
    )
    parsed = parse(word("Old new\r", marked={(0, 4): others + DELETED}), "a.doc")
    assert [block.text for block in parsed.blocks] == ["new"]
    off = others + struct.pack("<HB", 0x0800, 0)
    parsed = parse(word("Old new\r", marked={(0, 4): off}), "a.doc")
    assert [block.text for block in parsed.blocks] == ["Old new"]


def test_the_style_stands_before_the_properties_of_a_paragraph() -> None:
    text = "Guide\rWords\r"
    for more in (struct.pack("<HB", 0x2405, 1), struct.pack("<HH", 0x4600, 9)):
        parsed = parse(word(text, styles={(0, 6): style(3, more)}), "a.doc")
        assert [block.section for block in parsed.blocks] == ["Guide", "Guide"]
    parsed = parse(word(text, styles={(0, 6): style(10), (6, 12): style(0)}), "a.doc")
    assert [block.section for block in parsed.blocks] == [None, None]


def test_of_a_field_the_result_is_read() -> None:
    text = "See \x13PAGE \x13x\x14y\x15 z\x147\x15.\r\x13open\r"
    assert [block.text for block in parse(word(text), "a.doc").blocks] == ["See 7."]


def test_notes_follow_the_text_and_comments_and_headers_are_counted() -> None:
    stories = (5, 5, 5, 0, 4, 4)
    parsed = parse(word("Main\rFoot\rHead\rWhy\rEnd\r", stories=stories), "a.doc")
    assert [block.text for block in parsed.blocks] == ["Main", "Foot", "End"]
    assert parsed.unread["comments"] == 1
    assert parsed.unread["headers_and_footers"] == 1


def test_a_wide_piece_is_read_and_signs_become_characters() -> None:
    text = "中\x0bA\x1eB\x1f\x01\xa0C\r"
    wide = text.encode("utf-16-le")
    parsed = parse(word(wide, size=len(text), place=TEXT, stories=(len(text),)), "a.doc")
    assert [block.text for block in parsed.blocks] == ["中\nA-B C"]
    assert parsed.unread["pictures"] == 1


def test_pieces_follow_each_other_and_properties_lie_at_their_bytes() -> None:
    # A character of the second piece has two bytes, of which the first is the seventh.
    marked = {(2, 3): HIDDEN, (9, 13): DELETED}
    styles = {(0, 7): style(1), (17, 21): style(2)}
    text = word("A b c.\r", wide="d漢字e\rf\r", marked=marked, styles=styles)
    parsed = parse(text, "a.doc")
    assert [(block.text, block.section) for block in parsed.blocks] == [
        ("A  c.", "A c."),
        ("de", "A c."),
        ("f", "A c. > f"),
    ]
    assert parsed.unread["hidden_passages"] == 1
    assert parsed.unread["deleted_passages"] == 1


def test_a_document_that_is_encrypted_or_too_old_is_refused_by_name() -> None:
    assert refused(word("x\r", flags=0x100)) == "a.doc needs a password: save it without one."
    assert refused(word("x\r", version=0xC0)) == "a.doc is older than Word 97."
    assert refused(word("x\r", mark=0xA5DC)) == "a.doc is older than Word 97."


@pytest.mark.parametrize(
    "data",
    [
        compound({"WordDocument": b"\xec\xa5"}),
        compound({"Book": b"x"}),
        word(b"x", size=1 << 30),
        compound({"WordDocument": word("x\r")[512 : 512 + TEXT]}),
    ],
)
def test_a_damaged_document_is_refused(data: bytes) -> None:
    assert refused(data) == "a.doc is damaged or no Word document."


def test_a_text_that_is_shorter_than_its_sizes_is_read_as_far_as_it_goes() -> None:
    parsed = parse(word("Half\r", size=100, stories=(100, -5, 7)), "a.doc")
    assert [block.text for block in parsed.blocks] == ["Half"]
