"""A saved web page is read as its page, whatever its parts are encoded in."""

from __future__ import annotations

import quopri
from email.message import EmailMessage
from email.mime.image import MIMEImage
from email.mime.multipart import MIMEMultipart
from email.mime.text import MIMEText

import pytest

from kbproc.engine.sources.parse.formats import detect, parse


@pytest.mark.parametrize("charset", ["utf-8", "windows-1252"])
def test_a_saved_page_is_its_page(charset: str) -> None:
    page = "<title>Höfe</title><h1>Höfe</h1><p>Fünf long wörds = " + "see the quay " * 20 + "</p>"
    archive = MIMEMultipart("related", type="text/html")
    archive["From"], archive["Subject"] = "<Saved by Blink>", "Höfe"
    archive["Snapshot-Content-Location"] = "https://port.example/quay"
    body = MIMEText("", "html", charset)
    del body["Content-Transfer-Encoding"]
    body["Content-Transfer-Encoding"] = "quoted-printable"
    body.set_payload(quopri.encodestring(page.encode(charset)).decode())
    archive.attach(body)
    archive.attach(MIMEImage(b"\x89PNG\r\n\x1a\n", "png"))
    data = archive.as_bytes()
    type = detect("a.mhtml", data[:4096])
    assert type == "mail"
    parsed = parse(data, type, "a.mhtml")
    assert parsed.title == "Höfe"
    assert parsed.blocks[1].text == ("Fünf long wörds = " + "see the quay " * 20).strip()
    assert parsed.metadata == {"url": "https://port.example/quay"}
    assert parsed.unread == {"pictures": 1} and parsed.parts == []


def test_a_file_without_a_page_is_read_as_mail() -> None:
    mail = EmailMessage()
    mail["From"], mail["Subject"] = "a@b.c", "Noon"
    mail.set_content("At noon.")
    assert [block.text for block in parse(mail.as_bytes(), "mail", "a.mht").blocks] == [
        "From: a@b.c\nSubject: Noon",
        "At noon.",
    ]
