"""Documents of the older Office formats: DOC and PPT that LibreOffice wrote, and MSG by hand."""

from __future__ import annotations

import lzma
import random
import struct
from pathlib import Path

import pytest

from kbproc.base.errors import KbprocError
from kbproc.engine.sources.parse.blocks import Parsed
from kbproc.engine.sources.parse.formats import detect, parse
from tests.kit.compound import compound

HERE = Path(__file__).parent
DOC = (HERE / "corpus" / "manual.doc").read_bytes()
PPT = lzma.decompress((HERE / "older" / "plan.ppt.xz").read_bytes())


def read(data: bytes, name: str) -> Parsed:
    type = detect(name, data[:4096])
    assert type is not None
    return parse(data, type, name)


def test_a_document_has_headings_tables_and_notes() -> None:
    parsed = read(DOC, "manual.doc")
    assert [(block.kind, block.section, block.text) for block in parsed.blocks] == [
        ("prose", "Crane manual", "Crane manual"),
        ("prose", "Crane manual", "Pull the red lever. Größe prüfen – “now” 中文."),
        ("prose", "Crane manual > Safety", "Safety"),
        ("prose", "Crane manual > Safety", "It ends after thirty days. See the guide."),
        ("table", "Crane manual > Safety", "Item |  | Count\nHook | red | 12"),
        ("prose", "Crane manual > Safety", "Seen and after."),
        ("prose", None, "It is stiff."),
    ]
    assert parsed.title == "Crane manual"
    assert parsed.unread == {"comments": 1, "deleted_passages": 1, "hidden_passages": 1}


def test_slides_have_numbers_texts_and_notes() -> None:
    parsed = read(PPT, "plan.ppt")
    assert [(block.page, block.text) for block in parsed.blocks] == [
        (1, "Quarter plan"),
        (1, "Hire two people\nGröße – now"),
        (1, "Notes: Mention the budget."),
        (2, "Rent 900"),
    ]
    assert parsed.pages == 2


def message(**more: bytes) -> bytes:
    """Returns a message of Outlook with two attachments; `more`: property → its content."""
    ticks = 133_541_064_000_000_000
    sent = struct.pack("<IIQ", 0x00390040, 6, ticks)
    texts = {"0037": "Café plan", "0C1A": "Ann Lee", "5D01": "ann@a.org", "0E04": "Bob"}
    attached = "__attach_version1.0_#0000000"
    streams = {
        "__properties_version1.0": bytes(32) + sent,
        **{f"__substg1.0_{key}001F": text.encode("utf-16-le") for key, text in texts.items()},
        **{f"__substg1.0_{key}": data for key, data in more.items()},
        f"{attached}0/__substg1.0_37010102": b"# Tides",
        f"{attached}0/__substg1.0_3707001F": "Ebbe und Flut.md".encode("utf-16-le"),
        f"{attached}1/__substg1.0_3701000D": b"an object",
    }
    return compound(streams)


@pytest.mark.parametrize(
    ("body", "words", "unread"),
    [
        (
            {"1000001F": "Noon.\r\n\r\nOn Mon, Bob wrote:\r\n> When?".encode("utf-16-le")},
            "Noon.",
            {"quoted_passages": 1, "attachments": 1},
        ),
        ({"1000001E": "Größe".encode("cp1252")}, "Größe", {"attachments": 1}),
        ({"10130102": b"<p>Noon &amp; night</p>"}, "Noon & night", {"attachments": 1}),
        ({"10090102": b"LZFu"}, "", {"objects": 1, "attachments": 1}),
    ],
)
def test_a_message_of_outlook(body: dict[str, bytes], words: str, unread: dict[str, int]) -> None:
    parsed = read(message(**body), "a.msg")
    texts = [block.text for block in parsed.blocks]
    assert texts[0] == (
        "From: Ann Lee <ann@a.org>\nTo: Bob\nDate: Tue, 05 Mar 2024 10:00:00 +0000\n"
        "Subject: Café plan"
    )
    assert "".join(texts[1:-1]) == words
    assert texts[-1] == "Attachment: Ebbe und Flut.md (7 bytes)"
    assert {block.section for block in parsed.blocks} == {"Ann Lee, 2024-03-05"}
    assert [(part.name, part.data) for part in parsed.parts] == [("Ebbe und Flut.md", b"# Tides")]
    assert parsed.metadata["date"] == "2024-03-05T10:00:00+00:00"
    assert parsed.unread == unread


@pytest.mark.parametrize(
    ("name", "data"),
    [("a.doc", DOC), ("a.ppt", PPT), ("a.msg", message(**{"1000001E": b"Noon"}))],
)
def test_damage_is_refused_or_read_in_part(name: str, data: bytes) -> None:
    """Files that are cut, and files with numbers that point elsewhere, in circles or far away."""
    chance = random.Random(name)
    for number in range(150):
        changed = bytearray(data[: chance.randrange(len(data))] if number % 3 == 0 else data)
        for _ in range(chance.choice([1, 4, 40])):
            at = chance.randrange(max(1, len(changed) - 4))
            changed[at : at + 4] = chance.choice(
                [b"\0" * 4, b"\xff" * 4, chance.randbytes(4), changed[:4], struct.pack("<I", at)]
            )
        try:
            read(bytes(data[:8] + changed[8:]), name)
        except KbprocError as error:
            assert error.type in {"operation.failed", "input.unsupported_type"}
            assert "Error" not in error.message


def test_other_compound_files_are_refused_with_a_reason() -> None:
    other = compound({"Book": b"x" * 5000})
    for name in ("a.doc", "a.msg", "a.ppt", "a.docx"):
        with pytest.raises(KbprocError) as caught:
            read(other, name)
        assert caught.value.type == "operation.failed"
        assert "Error" not in caught.value.message
