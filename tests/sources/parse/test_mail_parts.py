"""A mail's head, body and attachments become blocks, parts and metadata, whatever its bytes are."""

from __future__ import annotations

import base64

import pytest

from kbproc.engine.sources.parse.blocks import Block, Part
from kbproc.engine.sources.parse.mail import (
    add_part,
    file_name,
    metadata_of,
    parse,
    parsed_body,
    sender_and_date,
)

HEAD = "From: Ann Lee <ann@a.org>\nDate: Tue, 05 Mar 2024 10:00:00 +0100\nSubject: Crane\n"
SHOWN = "From: Ann Lee <ann@a.org>\nDate: Tue, 05 Mar 2024 10:00:00 +0100\nSubject: Crane"
CITED = "Ann Lee, 2024-03-05"


def multipart(kind: str, *parts: str) -> bytes:
    """Returns a message of these parts, each with its own head."""
    body = "".join(f"--edge\n{each}\n" for each in parts)
    head = f'{HEAD}MIME-Version: 1.0\nContent-Type: multipart/{kind}; boundary="edge"\n\n'
    return f"{head}{body}--edge--\n".encode()


def bodies(data: bytes, name: str = "a.eml") -> list[str]:
    """Returns the texts of a message below its head."""
    return [block.text for block in parse(data, name).blocks[1:]]


def test_a_message_is_its_head_and_its_paragraphs() -> None:
    parsed = parse(f"{HEAD}Message-ID: <1@a>\n\nFirst.\n\nSecond.\n".encode(), "a.eml")
    assert parsed.blocks == [
        Block(text=SHOWN, section=CITED),
        Block(text="First.", section=CITED),
        Block(text="Second.", section=CITED),
    ]
    assert parsed.title == "Crane"
    assert parsed.metadata == {
        "from": "Ann Lee <ann@a.org>",
        "message_id": "<1@a>",
        "date": "2024-03-05T10:00:00+01:00",
    }


def test_each_message_of_an_mbox_has_its_own_section_and_folder() -> None:
    attached = multipart("mixed", "Content-Type: application/pdf\n\nx").decode()
    mbox = (
        f"From ann@a.org Tue Mar  5 10:00:00 2024\n{HEAD}\nOne.\n\n>From here on.\n\n"
        f"From ann@a.org Tue Mar  5 11:00:00 2024\n{attached}"
    )
    parsed = parse(mbox.encode(), "a.mbox")
    section = f"Crane > {CITED}"
    assert [(block.text, block.section) for block in parsed.blocks] == [
        (SHOWN, section),
        ("One.", section),
        ("From here on.", section),
        (SHOWN, section),
        ("Attachment: application/pdf (1 byte)", section),
    ]
    assert parsed.parts == [Part("2/attachment.pdf", b"x")]
    assert (parsed.title, parsed.metadata) == (None, {})


def test_attachments_of_one_name_are_two_parts() -> None:
    attachment = 'Content-Disposition: attachment; filename="a.txt"\n\n{}'.format
    parsed = parse(multipart("mixed", attachment("one"), attachment("two!")), "a.eml")
    assert [block.text for block in parsed.blocks[1:]] == [
        "Attachment: a.txt (3 bytes)",
        "Attachment: a.txt (4 bytes)",
    ]
    assert parsed.parts == [Part("a.txt", b"one"), Part("a (2).txt", b"two!")]


def test_the_plain_version_is_read_unless_it_only_points_to_the_page() -> None:
    page = f"Content-Type: text/html\n\n<p>{'Rope and hook. ' * 20}</p>"
    stub = "Content-Type: text/plain\n\nSee the page."
    plain = f"Content-Type: text/plain\n\n{'Rope, and a hook. ' * 20}"
    assert bodies(multipart("alternative", stub, page)) == [("Rope and hook. " * 20).strip()]
    assert bodies(multipart("alternative", plain, page)) == [("Rope, and a hook. " * 20).strip()]
    hint = "Content-Type: text/plain\n\nThis mail is in HTML; use a program that shows it."
    short = "Content-Type: text/html\n\n<p>Noon at the pier.</p>"
    assert bodies(multipart("alternative", hint, short)) == ["Noon at the pier."]


def test_the_one_version_that_there_is_is_read() -> None:
    page = "Content-Type: text/html\n\n<p>Noon.</p>"
    assert bodies(multipart("alternative", page)) == ["Noon."]
    other = "Content-Type: text/calendar\n\nBEGIN:VCALENDAR"
    assert bodies(multipart("alternative", other)) == ["BEGIN:VCALENDAR"]
    assert bodies(multipart("alternative", page, other)) == ["Noon."]


def test_the_fields_of_a_delivery_report_are_text() -> None:
    status = "Content-Type: message/delivery-status\n\nReporting-MTA: a.org\n\nAction: failed\n"
    assert bodies(multipart("report", status)) == ["Reporting-Mta: a.org\n\nAction: failed"]


def test_a_message_within_a_message_is_read_below_its_subject() -> None:
    inner = "Content-Type: message/rfc822\n\nFrom: bo@b.org\nSubject: Hooks\n\nWithin."
    parsed = parse(multipart("mixed", "\nAbove.", inner), "a.eml")
    below = f"{CITED} > Hooks > bo@b.org"
    assert [(block.text, block.section) for block in parsed.blocks[1:]] == [
        ("Above.", CITED),
        ("From: bo@b.org\nSubject: Hooks", below),
        ("Within.", below),
    ]


@pytest.mark.parametrize(
    ("field", "title"),
    [
        ("=?utf-8?q?Gr=C3?= =?utf-8?q?=BC=C3=9Fe?=", "Grüße"),
        ("=?iso-8859-1?b?Zv1y?= all", "fýr all"),
        ("=?no-such-charset?q?Gr=C3=BC?=", "Grü"),
        ("=?utf-8?b?R3L?= x", "Gr x"),
        ("=?utf-8?b?R?=", "=?utf-8?b?R?="),
    ],
)
def test_encoded_words_are_decoded_or_stay(field: str, title: str) -> None:
    assert parse(f"Subject: {field}\n\nx".encode(), "a.eml").title == title


def test_a_body_in_another_encoding_than_it_says_is_still_read() -> None:
    coded = base64.b64encode("Größe".encode()).decode()
    head = f"{HEAD}Content-Type: text/plain; charset=no-such\nContent-Transfer-Encoding: base64\n"
    assert bodies(f"{head}\n{coded}".encode()) == ["Größe"]
    # Some codecs of Python are no encodings of mail, and a bad byte is counted.
    for charset, words in (
        ("idna", "xn--bcher-kva"),
        ("punycode", "bcher-kva"),
        ("unicode_escape", r"C:\x41pps"),
        ("raw_unicode_escape", r"C:\u0041pps"),
    ):
        coded = f"{HEAD}Content-Type: text/plain; charset={charset}\n\n{words}"
        assert bodies(coded.encode()) == [words]
    damaged = parse(f"{HEAD}\nGröße ß ".encode() + b"\xff", "a.eml")
    assert damaged.unread["replaced_bytes"] == 1
    # Binary data that calls itself text is an attachment.
    binary = base64.b64encode(bytes(range(8)) * 50).decode()
    parsed = parse(f"{head}\n{binary}".encode(), "a.eml")
    assert parsed.blocks[1].text == "Attachment: text/plain (400 bytes)"
    assert parsed.parts == [Part("attachment", bytes(range(8)) * 50)]


def test_text_behind_the_last_part_is_read_where_there_is_some() -> None:
    footer = multipart("mixed", "\nAbove.") + b"You get this mail from a list.\n"
    assert bodies(footer) == ["Above.", "You get this mail from a list."]
    assert bodies(multipart("mixed", "\nAbove.") + b"\n \n") == ["Above."]


def test_a_head_may_follow_blank_lines_and_have_bare_letters() -> None:
    parsed = parse(b"\xef\xbb\xbf\r\nSubject: Gr\xc3\xbc\xc3\x9fe  \xff\n\nx", "a.eml")
    assert parsed.title == "Grüße \ufffd"
    assert parsed.unread["replaced_bytes"] == 1


def test_a_field_that_is_too_long_is_cut_and_counted() -> None:
    long = f"Content-Type: text/plain; x={'y' * 20_000}\n"
    parsed = parse(f"{HEAD}{long}\nWords.".encode(), "a.eml")
    assert [block.text for block in parsed.blocks[1:]] == ["Words."]
    assert parsed.unread["fields"] == 1


@pytest.mark.parametrize("data", [b"Dear Ann,\n\nNoon.", b"Note: x\n\nNoon."])
def test_a_file_that_does_not_begin_as_a_mail_is_plain_text(data: bytes) -> None:
    parsed = parse(data, "a.eml")
    assert [(block.text, block.section, block.line) for block in parsed.blocks] == [
        (data.decode().split("\n")[0], None, 1),
        ("Noon.", None, 3),
    ]


@pytest.mark.parametrize(
    ("fields", "words", "date"),
    [
        ({"from": "Ann <a@b.c>", "date": "Tue, 05 Mar 2024 10:00:00 +0000"}, "Ann, 2024-03-05", 1),
        ({"from": "a@b.c", "date": "Tue, 99 Mar 2024"}, "a@b.c", 0),
        ({"date": "no date"}, None, 0),
        ({}, None, 0),
    ],
)
def test_a_message_is_cited_by_its_sender_and_a_real_date(
    fields: dict[str, str], words: str | None, date: int
) -> None:
    assert sender_and_date(fields) == words
    assert ("date" in metadata_of(fields)) == bool(date)


def test_the_name_of_an_attachment_is_safe_and_has_a_suffix() -> None:
    assert file_name("../../etc/pass\x00wd", "text/html") == "_.._etc_passwd"
    assert file_name("", "text/html") == "attachment.html"
    assert file_name("Bericht", "application/pdf") == "Bericht.pdf"
    assert file_name("a." + "y" * 30, "text/plain") == "a." + "y" * 19
    assert file_name("x" * 300 + ".txt", "text/plain") == "x" * 100 + ".txt"
    parts: dict[str, Part] = {}
    for data in (b"1", b"2", b"3"):
        add_part(parts, "1/a.md", data)
    assert list(parts) == ["1/a.md", "1/a (2).md", "1/a (3).md"]
    assert parts["1/a (3).md"] == Part("1/a (3).md", b"3")


def test_the_body_of_a_reply_is_the_senders_own_words() -> None:
    plain = parsed_body(
        "Noon.\n\nOn Mon, Bob wrote:\n> When?\n", "a", is_page=False, is_answer=True
    )
    assert [block.text for block in plain.blocks] == ["Noon."]
    assert plain.unread["quoted_passages"] == 1
    page = "<p>Größe</p><div class=gmail_quote>When?</div>"
    parsed = parsed_body(page, "a", is_page=True, is_answer=True)
    assert [block.text for block in parsed.blocks] == ["Größe"]
    assert parsed.unread["quoted_passages"] == 1
