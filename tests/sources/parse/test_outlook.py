"""Messages of Outlook are read from their properties, and their attachments are parts."""

from __future__ import annotations

import struct

import pytest

from kbproc.base.errors import KbprocError
from kbproc.engine.sources.parse.blocks import Block, Part
from kbproc.engine.sources.parse.outlook import parse
from tests.kit.compound import compound

SENT, RECEIVED = 0x00390040, 0x0E060040
TICKS = 133_541_064_000_000_000  # 2024-03-05, 10:00
HEAD = "__properties_version1.0"
FOLDER = "__attach_version1.0_#0000000{}/"


def stream(property: str, text: str) -> dict[str, bytes]:
    """Returns the stream of a property that is a text."""
    return {f"__substg1.0_{property}001F": text.encode("utf-16-le")}


def times(*entries: tuple[int, int]) -> bytes:
    """Returns the stream of fixed properties, with these times."""
    return bytes(32) + b"".join(struct.pack("<IIQ", tag, 6, ticks) for tag, ticks in entries)


def message(*streams: dict[str, bytes], head: bytes | None = None) -> bytes:
    merged = {HEAD: times() if head is None else head}
    for each in streams:
        merged |= each
    return compound(merged)


def attached(number: int, data: bytes, **names: str) -> dict[str, bytes]:
    """Returns the streams of an attachment; `names`: "long", "short" and its "type"."""
    folder = FOLDER.format(number)
    codes = {"long": "3707", "short": "3704", "type": "370E"}
    streams = {f"{folder}__substg1.0_37010102": data}
    for kind, name in names.items():
        [(key, text)] = stream(codes[kind], name).items()
        streams[f"{folder}{key}"] = text
    return streams


def head_of(data: bytes) -> list[str]:
    return parse(data, "a.msg").blocks[0].text.split("\n")


def test_a_message_is_its_head_and_its_own_words() -> None:
    parsed = parse(
        message(
            stream("0037", "Crane\0 plan"),
            stream("0C1A", "Ann Lee"),
            stream("5D01", "ann@a.org"),
            stream("0E04", "Bo"),
            stream("1035", "<1@a>"),
            stream("1000", "Noon.\r\n\r\nOn Mon, Bo wrote:\r\n> When?"),
            head=times((RECEIVED, 1), (SENT, TICKS)),
        ),
        "a.msg",
    )
    date = "Tue, 05 Mar 2024 10:00:00 +0000"
    head = f"From: Ann Lee <ann@a.org>\nTo: Bo\nDate: {date}\nSubject: Crane\0 plan"
    section = "Ann Lee, 2024-03-05"
    assert parsed.blocks == [
        Block(text=head, section=section),
        Block(text="Noon.", section=section),
    ]
    assert parsed.title == "Crane plan"
    assert parsed.metadata["message_id"] == "<1@a>"
    assert parsed.metadata["date"] == "2024-03-05T10:00:00+00:00"
    assert parsed.unread["quoted_passages"] == 1


@pytest.mark.parametrize(
    ("streams", "line"),
    [
        ({"5D01": "ann@a.org"}, "From: ann@a.org"),
        ({"0C1A": "ann@a.org", "5D01": "ann@a.org"}, "From: ann@a.org"),
        ({"0C1A": "Ann", "5D01": "/O=ORG/CN=ANN"}, "From: Ann"),
        ({"0C1A": "Ann", "0C1F": "ann@a.org"}, "From: Ann <ann@a.org>"),
    ],
)
def test_a_sender_has_an_address_only_where_it_is_one(streams: dict[str, str], line: str) -> None:
    assert head_of(message(*(stream(key, text) for key, text in streams.items()))) == [line]


@pytest.mark.parametrize(
    ("head", "lines"),
    [
        (times((RECEIVED, TICKS)), ["Date: Tue, 05 Mar 2024 10:00:00 +0000", "Subject: x"]),
        (times((SENT, 2**64 - 1)), ["Subject: x"]),
        (times((SENT, TICKS))[:-1], ["Subject: x"]),
        (b"", ["Subject: x"]),
    ],
)
def test_a_date_that_is_none_is_left_out(head: bytes, lines: list[str]) -> None:
    assert head_of(message(stream("0037", "x"), head=head)) == lines


@pytest.mark.parametrize(
    ("body", "words", "objects"),
    [
        ({"__substg1.0_1000001E": "Größe\0".encode("cp1252")}, ["Größe"], 0),
        ({"__substg1.0_10130102": b"<p>Noon &amp; night</p>"}, ["Noon & night"], 0),
        (stream("1013", "<p>Noon</p>"), ["Noon"], 0),
        ({"__substg1.0_10090102": b"LZFu"}, [], 1),
        ({"__substg1.0_1000001F": b"a\0b"}, ["a"], 0),
    ],
)
def test_a_body_is_plain_or_a_page_and_rich_text_is_counted(
    body: dict[str, bytes], words: list[str], objects: int
) -> None:
    parsed = parse(message(stream("0037", "x"), body), "a.msg")
    assert [block.text for block in parsed.blocks[1:]] == words
    assert parsed.unread.get("objects", 0) == objects


def test_attachments_are_parts_and_messages_within_are_counted() -> None:
    parsed = parse(
        message(
            stream("0037", "x"),
            attached(0, b"# Tides", long="Ebbe und Flut.md", short="EBBE~1.MD"),
            attached(1, b"x" * 2048, short="A.TXT"),
            attached(2, b"%PDF", type="application/pdf"),
            attached(3, b"2", long="A.TXT"),
            {f"{FOLDER.format(4)}__substg1.0_3701000D": b"a message"},
        ),
        "a.msg",
    )
    assert [block.text for block in parsed.blocks[1:]] == [
        "Attachment: Ebbe und Flut.md (7 bytes)",
        "Attachment: A.TXT (2 KB)",
        "Attachment: application/pdf (4 bytes)",
        "Attachment: A.TXT (1 byte)",
    ]
    assert parsed.parts == [
        Part("Ebbe und Flut.md", b"# Tides"),
        Part("A.TXT", b"x" * 2048),
        Part("attachment.pdf", b"%PDF"),
        Part("A (2).TXT", b"2"),
    ]
    assert parsed.unread["attachments"] == 1


def test_other_files_are_refused_by_name() -> None:
    for data, message_text in (
        (compound({"Book": b"x"}), "a.msg is no message of Outlook."),
        (b"From: a", "a.msg is damaged: it has no head."),
    ):
        with pytest.raises(KbprocError) as caught:
            parse(data, "a.msg")
        assert caught.value.type == "operation.failed"
        assert caught.value.message == message_text
