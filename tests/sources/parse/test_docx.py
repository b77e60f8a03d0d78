"""DOCX: order, sections, titles, and archives made to do harm."""

from __future__ import annotations

import io
import zipfile

import docx
import pytest

from kbproc.base.errors import KbprocError
from kbproc.sources.parse.blocks import Block, Parsed
from kbproc.sources.parse.docx import MAX_UNPACKED
from kbproc.sources.parse.formats import parse


def packed(document: docx.document.Document) -> bytes:
    stream = io.BytesIO()
    document.save(stream)
    return stream.getvalue()


def read(data: bytes) -> Parsed:
    return parse(data, "docx", "a.docx")


def refused(data: bytes) -> KbprocError:
    with pytest.raises(KbprocError) as caught:
        read(data)
    return caught.value


def test_a_document() -> None:
    document = docx.Document()
    document.core_properties.title = "The title"
    document.core_properties.author = "Ann"
    document.add_heading("Guide", 0)
    document.add_paragraph("Intro.")
    document.add_heading("Install", 1)
    document.add_paragraph("one", style="List Bullet")
    document.add_paragraph("two", style="List Bullet")
    document.add_heading("Linux", 2)
    table = document.add_table(2, 2)
    for i, word in enumerate(("a", "b", "1", "2")):
        table.cell(i // 2, i % 2).text = word
    table.cell(1, 1).add_paragraph("more")
    document.add_paragraph("End.")

    parsed = read(packed(document))
    assert (parsed.title, parsed.metadata) == ("The title", {"author": "Ann"})
    assert parsed.blocks == [
        Block(text="Guide"),
        Block(text="Intro."),
        Block(text="Install", section="Install"),
        Block(text="- one\n- two", section="Install"),
        Block(text="Linux", section="Install > Linux"),
        Block(text="a | b\n1 | 2 more", section="Install > Linux", kind="table"),
        Block(text="End.", section="Install > Linux"),
    ]


def test_the_title_is_else_the_style_title_or_the_first_heading() -> None:
    document = docx.Document()
    document.core_properties.title = ""
    document.add_heading("First", 1)
    assert read(packed(document)).title == "First"
    document.add_heading("Shown", 0)
    assert read(packed(document)).title == "Shown"


def test_damaged_encrypted_and_other_archives() -> None:
    whole = packed(docx.Document())
    assert "damaged" in refused(whole[: len(whole) // 2]).message
    assert "damaged" in refused(b"").message
    assert "encrypted" in refused(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"\0" * 600).message
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("a.txt", "no document")
    error = refused(stream.getvalue())
    assert error.type == "operation.failed"
    assert "no Word document" in error.message


def bomb(size: int, files: int = 1) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for i in range(files):
            with archive.open(f"word/{i}.xml", "w") as file:
                for _ in range(size >> 20):
                    file.write(bytes(1 << 20))
    return stream.getvalue()


def test_a_zip_bomb_is_not_unpacked() -> None:
    error = refused(bomb(24 << 20))
    assert error.type == "input.too_large"
    assert "zip bomb" in error.message


def test_a_document_that_unpacks_to_too_much_is_refused() -> None:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("word/document.xml", b"x")
    data = bytearray(stream.getvalue())
    # The size that the directory declares is what a reader would allocate.
    at = data.index(b"PK\x01\x02") + 24
    data[at : at + 4] = (MAX_UNPACKED + 1).to_bytes(4, "little")
    assert refused(bytes(data)).type == "input.too_large"


def test_entities_are_not_expanded() -> None:
    document = packed(docx.Document())
    stream = io.BytesIO()
    evil = (
        b'<?xml version="1.0"?><!DOCTYPE d [<!ENTITY a "xxxxxxxxxx"><!ENTITY b "&a;&a;&a;&a;">]>'
        b'<w:document xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main">'
        b"<w:body><w:p><w:r><w:t>safe&b;</w:t></w:r></w:p></w:body></w:document>"
    )
    with (
        zipfile.ZipFile(io.BytesIO(document)) as old,
        zipfile.ZipFile(stream, "w") as new,
    ):
        for item in old.infolist():
            new.writestr(item, evil if item.filename == "word/document.xml" else old.read(item))
    assert [block.text for block in read(stream.getvalue()).blocks] == ["safe"]
