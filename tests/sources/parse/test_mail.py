"""Mail: heads, bodies in every encoding, versions, messages within messages, attachments."""

from __future__ import annotations

from email.message import EmailMessage

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbproc.base.errors import KbprocError
from kbproc.engine.sources.parse.blocks import Parsed
from kbproc.engine.sources.parse.formats import detect, parse


def read(data: bytes, name: str = "a.eml") -> Parsed:
    return parse(data, "mail", name)


def texts(data: bytes, name: str = "a.eml") -> list[str]:
    return [block.text for block in read(data, name).blocks]


def message(subject: str, body: str, **options: str) -> EmailMessage:
    mail = EmailMessage()
    mail["Subject"], mail["From"] = subject, "Jörg Müller <j@x.de>"
    mail.set_content(body, **options)  # type: ignore[arg-type]
    return mail


@pytest.mark.parametrize("cte", ["quoted-printable", "base64", "8bit"])
@pytest.mark.parametrize("charset", ["utf-8", "iso-8859-1", "windows-1252"])
def test_heads_and_bodies_are_decoded(cte: str, charset: str) -> None:
    mail = message(
        "Grüße aus Köln", "Schöne Grüße = hier.\n\nZweiter Absatz.", cte=cte, charset=charset
    )
    mail["To"], mail["Cc"] = "a@b.c, Zoë <z@b.c>", "c@d.e"
    mail["Date"] = "Tue, 05 Mar 2024 10:00:00 +0100"
    mail["Received"] = "from nowhere"
    parsed = read(mail.as_bytes())
    assert parsed.title == "Grüße aus Köln"
    assert [block.text for block in parsed.blocks] == [
        "From: Jörg Müller <j@x.de>\nTo: a@b.c, Zoë <z@b.c>\nCc: c@d.e\n"
        "Date: Tue, 05 Mar 2024 10:00:00 +0100\nSubject: Grüße aus Köln",
        "Schöne Grüße = hier.",
        "Zweiter Absatz.",
    ]
    assert parsed.metadata["date"] == "2024-03-05T10:00:00+01:00"
    assert parsed.metadata["from"] == "Jörg Müller <j@x.de>"
    assert {block.line for block in parsed.blocks} == {None}
    assert {block.section for block in parsed.blocks} == {"Jörg Müller, 2024-03-05"}
    assert parsed.unread == {}


@pytest.mark.parametrize(
    ("field", "subject"),
    [
        (b"=?utf-8?b?R3LDvMOfZQ==?=", "Grüße"),
        (b"=?iso-8859-1?q?Caf=E9_au_lait?= for C:\\users", "Café au lait for C:\\users"),
        (b"Re:\n =?utf-8?q?Gr=C3?=\n =?utf-8?q?=BC=C3=9Fe?=", "Re: Grüße"),
        (b"=?koi8-r?B?8NLJ18XU?= =?utf-8?Q?!?=", "Привет!"),
        (b"raw Stra\xdfe", "raw Straße"),
        ("raw Straße".encode(), "raw Straße"),
        (b"=?no-such?q?plain?= and =?utf-8?b?x?=", "plain and =?utf-8?b?x?="),
        (b"=?utf-8?q?cut", "=?utf-8?q?cut"),
    ],
)
def test_subjects(field: bytes, subject: str) -> None:
    assert read(b"From: a\nSubject: " + field + b"\n\nbody").title == subject


def test_the_plain_version_is_read_unless_it_only_points_to_the_page() -> None:
    mail = message("s", "Plain words here.")
    mail.add_alternative("<p>Plain <b>words</b> here.</p>", subtype="html")
    assert texts(mail.as_bytes())[1:] == ["Plain words here."]
    mail = message("s", "See the page.")
    mail.add_alternative(f"<p>{'Much more to read. ' * 30}</p>", subtype="html")
    assert texts(mail.as_bytes())[1].startswith("Much more to read.")
    mail = message("s", "  \n")
    mail.add_alternative("<p>Größe &amp; more</p>", subtype="html")
    assert texts(mail.as_bytes())[1:] == ["Größe & more"]


def test_a_page_is_read_in_the_encoding_of_its_part() -> None:
    page = "<meta charset=utf-8><h1>Köln</h1><p>Straße".encode("iso-8859-1")
    head = b"From: a\nContent-Type: text/html; charset=iso-8859-1\n\n"
    parsed = read(head + page)
    assert [block.text for block in parsed.blocks] == ["From: a", "Köln", "Straße"]
    assert parsed.blocks[2].section == "a > Köln"


def test_attachments_are_named_and_counted() -> None:
    mail = message("s", "Body.")
    mail.add_attachment(
        b"x" * 12_345, maintype="application", subtype="pdf", filename="Bérîcht.pdf"
    )
    mail.add_attachment("notes, not read", filename="notes.txt")
    inner = message("Inneres", "Größe within.", cte="base64")
    inner.add_attachment(b"y", maintype="image", subtype="png")
    mail.add_attachment(inner)
    parsed = read(mail.as_bytes())
    assert [block.text for block in parsed.blocks][1:] == [
        "Body.",
        "Attachment: Bérîcht.pdf (12 KB)",
        "Attachment: notes.txt (16 bytes)",
        "From: Jörg Müller <j@x.de>\nSubject: Inneres",
        "Größe within.",
        "Attachment: image/png (1 byte)",
    ]
    who = "Jörg Müller"
    assert [block.section for block in parsed.blocks][3:] == [
        who,
        *[f"{who} > Inneres > {who}"] * 3,
    ]
    assert [(part.name, len(part.data)) for part in parsed.parts] == [
        ("Bérîcht.pdf", 12_345),
        ("notes.txt", 16),
        ("attachment.png", 1),
    ]
    assert parsed.unread == {}


def test_names_of_attachments_are_names_of_files() -> None:
    mail = message("s", "Body.")
    for name in ("../../etc/passwd", "a\\b.txt", "a.txt", "a.txt", ".", "x" * 300 + ".pdf"):
        mail.add_attachment(b"1", maintype="application", subtype="x", filename=name)
    names = [part.name for part in read(mail.as_bytes()).parts]
    assert names == [
        "_.._etc_passwd",
        "a_b.txt",
        "a.txt",
        "a (2).txt",
        "attachment",
        "x" * 100 + ".pdf",
    ]


REPLIES = {
    "> quoted\n> twice\n\nMy answer.": ("My answer.", {"quoted_passages": 1}),
    "Yes.\n\nOn Mon, 4 March 2024 at 10:00, Ann <a@b.c>\nwrote:\n\n> Shall we?\n>> Old": (
        "Yes.",
        {"quoted_passages": 1},
    ),
    "First.\n\n> one\n\nSecond.\n\n> two\n\nThird.": (
        "First. Second. Third.",
        {"quoted_passages": 2},
    ),
    "Ja.\n\n-----Ursprüngliche Nachricht-----\nVon: Ann\nKommst du?": (
        "Ja.",
        {"quoted_passages": 1},
    ),
    "Body.\n-- \nAnn Lee\nHarbour office": ("Body.", {"signatures": 1}),
    "Top.\n-- \nAnn\n\nAm 4.3.2024 schrieb Bob:\n> Frage": (
        "Top.",
        {"quoted_passages": 1, "signatures": 1},
    ),
    "FYI\n\n---------- Forwarded message ---------\nFrom: Bob\n\n> old": (
        "FYI ---------- Forwarded message --------- From: Bob > old",
        {},
    ),
    "> only a quote": ("> only a quote", {}),
    "-- \nonly a signature": ("-- only a signature", {}),
    "5 > 3 and\na -- b": ("5 > 3 and a -- b", {}),
}


@pytest.mark.parametrize("body", REPLIES)
def test_quotes_and_signatures_are_counted_and_not_read(body: str) -> None:
    words, unread = REPLIES[body]
    parsed = read(message("Re: s", body, charset="utf-8").as_bytes())
    assert " ".join(" ".join(block.text for block in parsed.blocks[1:]).split()) == words
    assert parsed.unread == unread


@pytest.mark.parametrize(
    ("page", "words", "unread"),
    [
        (
            "<div>Yes.</div><div class=gmail_quote>On Monday Ann wrote:<blockquote>Shall we?",
            "Yes.",
            {"quoted_passages": 1},
        ),
        (
            "<p>Yes.</p><div class=moz-cite-prefix>Ann wrote:</div><blockquote type=cite>Come?"
            "</blockquote><pre class=moz-signature>-- \nBob</pre>",
            "Yes.",
            {"quoted_passages": 1, "signatures": 1},
        ),
        (
            "<p>FYI</p><div class=gmail_quote>---------- Forwarded message ---<p>Old news",
            "FYI ---------- Forwarded message --- Old news",
            {},
        ),
        ("<blockquote type=cite>Only a quote</blockquote>", "Only a quote", {}),
    ],
)
def test_quotes_of_a_page_are_counted_and_not_read(
    page: str, words: str, unread: dict[str, int]
) -> None:
    mail = EmailMessage()
    mail["From"] = "a"
    mail.set_content(page, subtype="html")
    parsed = read(mail.as_bytes())
    assert " ".join(" ".join(block.text for block in parsed.blocks[1:]).split()) == words
    assert parsed.unread == unread


@pytest.mark.parametrize(
    ("rest", "body"),
    [
        (b"Content-Type: multipart/mixed\n\nno boundary here", "no boundary here"),
        (b"Content-Type: multipart/mixed; boundary=x\n\n--x\n\ncut off", "cut off"),
        (b"Content-Type: text/plain; charset=punycode\n\nGr\xc3\xb6\xc3\x9fe", "Größe"),
        (b"Content-Type: text/plain; charset=us-ascii\n\nGr\xf6\xdfe here", "Größe here"),
        (b"Content-Transfer-Encoding: base64\n\nR3LDtsOfZQ", "Größe"),
        (b"Content-Transfer-Encoding: no-such\n\nas it is", "as it is"),
    ],
)
def test_damaged_mail_is_read_as_far_as_it_goes(rest: bytes, body: str) -> None:
    assert texts(b"From: a\n" + rest)[1:] == [body]


def test_bad_bytes_of_a_body_are_counted() -> None:
    cut = b"From: a\nContent-Type: text/plain; charset=utf-8\n\nGr\xc3\xb6\xc3\x9fe f\xc3\xbcr \xc3"
    assert read(cut).unread == {"replaced_bytes": 1}


def test_an_mbox_holds_several_messages() -> None:
    box = (
        b"From a@b Thu Jan  1 00:00:00 2024\nFrom: a\nSubject: one\n\nbody\n>From here\n\n"
        b"From c Thu Jan  1 00:00:00 2024\r\nFrom: b\r\n"
        b"Subject: =?utf-8?q?zw=C3=B6lf?=\r\n\r\nlast\r\n"
    )
    parsed = read(box, "a.mbox")
    assert [(block.section, block.text) for block in parsed.blocks] == [
        ("one > a", "From: a\nSubject: one"),
        ("one > a", "body\nFrom here"),
        ("zwölf > b", "From: b\nSubject: zwölf"),
        ("zwölf > b", "last"),
    ]
    assert parsed.title is None
    assert detect("a.mbox", box) == detect("a.eml", box) == "mail"


@pytest.mark.parametrize("data", [b"Dear all,\n\nSubject: none", b"Note: this is\nnot mail", b"x"])
def test_what_does_not_begin_as_mail_is_text(data: bytes) -> None:
    assert read(data).blocks == parse(data, "text", "a.txt").blocks
    mail = b"From: a\nSubject: b\n\nbody"
    assert [block.line for block in parse(mail, "text", "a.txt").blocks] == [1, 4]


@pytest.mark.parametrize(
    "field",
    [
        b"Subject: " + b"=?a?q?" * 200_000,
        b"Subject: " + b"=?utf-8?q?ab?= " * 60_000,
        b'Content-Type: text/plain; a="' + b";" * 1_000_000,
        b"Content-Disposition: inline" + b";a=1" * 250_000,
        b"To: a\nTo: a" * 50_000,
        b"Content-Type: multipart/mixed; boundary=x\n\n" + b"--x\n\n" * 50_000,
    ],
)
def test_hostile_fields_take_no_longer(field: bytes) -> None:
    assert read(b"From: a\n" + field + b"\n\nbody").blocks[0].text.startswith("From: a")


def test_deep_nesting_is_read_or_refused_with_a_reason() -> None:
    deep = b"From: a\n" + b"Content-Type: message/rfc822\n\nFrom: b\n" * 20_000 + b"\nbody"
    try:
        assert read(deep).blocks
    except KbprocError as error:
        assert error.type == "operation.failed"


@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_refused_with_a_type(data: bytes) -> None:
    for head in (
        b"From: a\n",
        b"From: a\nContent-Type: multipart/alternative; boundary=x\n\n--x\n",
    ):
        try:
            read(head + data)
        except KbprocError as error:
            assert error.type == "input.unsupported_type"


def test_each_message_of_a_long_mbox_has_its_own_body() -> None:
    envelope = b"From a@a.org Thu Jan  1 00:00:00 2026\n"
    data = b"".join(envelope + b"From: a\nSubject: s%d\n\nbody%d\n\n" % (i, i) for i in range(300))
    bodies = [text for text in texts(data, "a.mbox") if text.startswith("body")]
    assert bodies == [f"body{i}" for i in range(300)]


def test_a_first_message_without_an_envelope_is_read() -> None:
    data = b"From: a\nSubject: one\n\nfirst\n\nFrom c Thu Jan  1 00:00:00 2026\nFrom: b\n\nsecond\n"
    assert [text for text in texts(data, "a.mbox") if ":" not in text] == ["first", "second"]


def test_a_list_s_footer_below_the_last_part_is_read() -> None:
    data = (
        b"From: a\nContent-Type: multipart/mixed; boundary=x\n\n--x\n\nbody\n--x--\n"
        b"Footer words of the list\n"
    )
    assert texts(data)[1:] == ["body", "Footer words of the list"]


def test_what_is_cut_of_a_field_is_counted() -> None:
    lines = b"".join(b"\n indented %d" % i for i in range(3000))
    assert read(b"From: a\n\nContent-Type: quoted" + lines).unread == {"fields": 1}


def test_a_thai_mail_of_outlook() -> None:
    head = b"From: a\nContent-Type: text/plain; charset=windows-874\n\n"
    assert texts(head + "สวัสดี".encode("cp874"))[-1] == "สวัสดี"
