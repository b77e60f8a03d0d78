"""The slides of a PowerPoint 97 file are those of its last save, with titles and notes."""

from __future__ import annotations

import struct

import pytest

from kbproc.base.errors import KbprocError
from kbproc.engine.sources.parse.blocks import Block
from kbproc.engine.sources.parse.powerpoint_97 import parse
from tests.kit.compound import compound

DOCUMENT, LIST, PERSIST, SLIDE, NOTES = 1000, 4080, 1011, 1006, 1008
HEADER, WIDE, NARROW, NOTES_ATOM, INFO = 3999, 4000, 4008, 1009, 1017
EDIT, TABLE = 4085, 6002


def record(kind: int, content: bytes = b"", *, instance: int = 0, inner: bool = False) -> bytes:
    """Returns a record; `inner`: it holds other records."""
    return struct.pack("<HHI", instance << 4 | 15 * inner, kind, len(content)) + content


def text(words: str, kind: int = 1, *, wide: bool = False) -> bytes:
    """Returns a text with its header; kind 0 is a title."""
    content = words.encode("utf-16-le" if wide else "latin-1")
    return record(HEADER, struct.pack("<I", kind)) + record(WIDE if wide else NARROW, content)


def persist(number: int, id: int) -> bytes:
    return record(PERSIST, struct.pack("<IIiI", number, 0, 0, id))


def slide(*content: bytes, flags: int = 0) -> bytes:
    info = record(INFO, bytes(10) + struct.pack("<H", flags))
    return record(SLIDE, info + b"".join(content), inner=True)


def note(id: int, *content: bytes) -> bytes:
    atom = record(NOTES_ATOM, struct.pack("<I", id))
    return record(NOTES, atom + b"".join(content), inner=True)


def presentation(lists: bytes, *persisted: bytes, earlier: bytes = b"", **streams: bytes) -> bytes:
    """Returns a file whose document has these lists; the other records are numbered from 2.

    `earlier`: what an earlier save left at the beginning.
    """
    data, places = bytearray(earlier), []
    for each in (record(DOCUMENT, lists, inner=True), *persisted):
        places.append(len(data))
        data += each
    table = len(data)
    numbers = struct.pack(f"<{len(places) + 1}I", len(places) << 20 | 1, *places)
    data += record(TABLE, numbers)
    edit = len(data)
    data += record(EDIT, bytes(8) + struct.pack("<III", 0, table, 1) + bytes(8))
    user = bytes(16) + struct.pack("<I", edit)
    return compound({"PowerPoint Document": bytes(data), "Current User": user, **streams})


def slides(*content: bytes) -> bytes:
    return record(LIST, b"".join(content), inner=True)


def refused(data: bytes) -> str:
    """Returns the message with which a file is refused."""
    with pytest.raises(KbprocError) as caught:
        parse(data, "a.ppt")
    assert caught.value.type == "operation.failed"
    return caught.value.message


def test_a_slide_has_its_number_its_title_and_its_texts() -> None:
    listed = slides(persist(2, 256), text("Plan", 0), text("Hire\rMove"), persist(3, 257))
    # The text of the second slide is in the slide itself, in a box without a container's mark.
    box = record(0xF00D, text("Größe – now", wide=True) + text("*"))
    parsed = parse(presentation(listed, slide(), slide(box), earlier=b"old slide"), "a.ppt")
    assert parsed.blocks == [
        Block(text="Plan", page=1, section="Plan"),
        Block(text="Hire\nMove", page=1, section="Plan"),
        Block(text="Größe – now", page=2),
    ]
    assert (parsed.title, parsed.pages) == ("Plan", 2)
    assert parsed.unread == {"pictures": 0}


def test_notes_stand_behind_their_slide() -> None:
    listed = slides(persist(2, 256), text("One"), persist(3, 257), text("Two"))
    notes = record(LIST, persist(4, 900), instance=2, inner=True)
    data = presentation(listed + notes, slide(), slide(), note(257, text("Mention it."), text("*")))
    assert [(block.page, block.text) for block in parse(data, "a.ppt").blocks] == [
        (1, "One"),
        (2, "Two"),
        (2, "Notes: Mention it."),
    ]


def test_a_hidden_slide_says_so_and_pictures_are_counted() -> None:
    listed = slides(persist(2, 256), text("Costs", 6), persist(3, 257), text("No title"))
    data = presentation(listed, slide(flags=4), slide(flags=4), Pictures=b"png")
    parsed = parse(data, "a.ppt")
    assert [block.section for block in parsed.blocks] == ["Costs (hidden)", "(hidden)"]
    assert parsed.unread == {"pictures": 1}


def test_a_presentation_without_slides_is_empty() -> None:
    parsed = parse(presentation(b""), "a.ppt")
    assert (parsed.blocks, parsed.pages, parsed.title) == ([], 0, None)


def test_a_locked_presentation_is_refused_by_name() -> None:
    data = presentation(b"", EncryptedSummary=b"x")
    assert refused(data) == "a.ppt needs a password: save it without one."


@pytest.mark.parametrize(
    "data",
    [
        compound({"PowerPoint Document": b"", "Current User": b""}),
        compound({"Book": b"x"}),
        presentation(slides(persist(9, 256))),
        presentation(slides(record(PERSIST, b"short"))),
        compound({"PowerPoint Document": bytes(60), "Current User": bytes(20)}),
        compound({"PowerPoint Document": bytes(60), "Current User": b"\xff" * 20}),
    ],
)
def test_a_damaged_presentation_is_refused(data: bytes) -> None:
    assert refused(data) == "a.ppt is damaged or no presentation of PowerPoint 97 or later."


def test_a_record_that_claims_more_than_there_is_ends_with_the_file() -> None:
    long = struct.pack("<HHI", 0, NARROW, 1 << 31) + b"Half"
    listed = slides(persist(2, 256))
    parsed = parse(presentation(listed, slide(long)), "a.ppt")
    [block] = parsed.blocks
    assert block.text.startswith("Half")
