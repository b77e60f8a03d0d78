"""Kinds of files by their bytes: names of other kinds, and files that no parser reads."""

from __future__ import annotations

import io
import sqlite3
import struct
import zipfile
from pathlib import Path

import pytest

from kbproc.engine.sources.parse.formats import FORMATS, detect, detection
from tests.kit.office import archive, book, odf, presentation, workbook
from tests.kit.pdfs import pdf, text_page
from tests.kit.words import docx, run

PDF = pdf(text_page(["Words."]))
DOCX = docx(f"<w:p>{run('Words.')}</w:p>")
XLSX = workbook(lambda opened: opened.add_worksheet("A").write("A1", "Words"))
PAGE = b"<!doctype html><table><tr><td>Words"


@pytest.mark.parametrize(
    ("name", "data", "type", "kind"),
    [
        ("a.docx", PDF, "pdf", "a PDF"),
        ("a.txt", PDF, "pdf", "a PDF"),
        ("a.csv", PDF, "pdf", "a PDF"),
        ("a.pdf", PAGE, "html", "a web page"),
        ("a.xls", PAGE, "html", "a web page"),
        ("a.xlsx", PAGE, "html", "a web page"),
        ("a.pdf", presentation(), "slides", "a PowerPoint presentation"),
        ("a.docx", XLSX, "sheet", "an Excel workbook"),
        ("a.docx", rb"{\rtf1 Words.}", "rtf", "rich text"),
        ("a.pdf", book("A", {"B": "C"}), "book", "an EPUB book"),
        ("a.md", odf("", "text"), "odt", "an OpenDocument text"),
        ("a.pdf", b"no mark at all", "text", "a text"),
        ("a.xls", "a\tGröße\n1\t2\n".encode("utf-16"), "text", "a text"),
        ("graph.dot", b"#!/usr/bin/dot\ndigraph {}", "code", "a text"),
    ],
)
def test_a_name_that_says_something_else_is_told(
    name: str, data: bytes, type: str, kind: str
) -> None:
    detected = detection(name, data[:4096])
    assert (detected.type, detected.kind) == (type, kind)
    assert detected.note == f"{name} is {kind}, and was read as that."


@pytest.mark.parametrize(
    ("name", "data", "type"),
    [
        ("a.pdf", PDF, "pdf"),
        ("a.docx", DOCX, "docx"),
        ("a.xlsx", XLSX, "sheet"),
        ("a.html", PAGE, "html"),
        ("a.md", PAGE, "markdown"),
        ("a.md", b"%pdf- is how a PDF begins", "markdown"),
        ("a.txt", b"BZh is the mark of bzip2", "text"),
        ("a.py", b"MZ = 1", "code"),
        ("a.pdf", b"a late mark: %PDF-1.4", "pdf"),
        ("a.pdf", b"\0\1\2 no mark at all", "pdf"),
        ("a.docx", b"PK no docx", "docx"),
        ("noname", b"some words", "text"),
        ("a.unknown", "Größe".encode("latin-1"), "text"),
        ("a.docx", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "docx"),
    ],
)
def test_a_name_that_fits_is_not_doubted(name: str, data: bytes, type: str) -> None:
    detected = detection(name, data[:4096])
    assert (detected.type, detected.note) == (type, None)


def sqlite(folder: Path) -> bytes:
    path = folder / "a.db"
    with sqlite3.connect(path) as database:
        database.execute("create table a (b)")
    return path.read_bytes()


LFS_POINTER = (
    b"version https://git-lfs.github.com/spec/v1\n"
    b"oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 12345\n"
)


def test_what_no_parser_reads_has_a_kind(tmp_path: Path) -> None:
    wav = b"RIFF" + struct.pack("<I", 36) + b"WAVEfmt "
    kinds = {
        "a.db": (sqlite(tmp_path), "a SQLite database"),
        "a.pdf": (b"\x89PNG\r\n\x1a\n" + bytes(20), "a PNG picture"),
        "b.bin": (b"\x7fELF" + bytes(60), "a program"),
        "c.docx": (wav, "a sound recording"),
        "d": (b"\xff\xd8\xff\xe0" + bytes(20), "a JPEG picture"),
        "e.zip": (archive({"a.md": "x"}), "a ZIP archive"),
        "f.svg": (b"<svg/>", None),
        "g.xyz": (bytes(range(256)), None),
        "h.txt": (bytes(range(256)), None),
        "i.pdf": (LFS_POINTER, "a pointer of Git LFS"),
        "j.md": (LFS_POINTER, "a pointer of Git LFS"),
    }
    for name, (data, kind) in kinds.items():
        detected = detection(name, data[:4096])
        assert (detected.type, detected.kind, detected.note) == (None, kind, None), name
    about = LFS_POINTER + b"\nSo a pointer looks. " * 80
    assert detect("k.md", about) == "markdown"


def test_every_type_that_a_kind_names_has_a_parser() -> None:
    target = io.BytesIO()
    zipfile.ZipFile(target, "w").close()
    assert detect("a", target.getvalue()) is None
    for data in (PDF, DOCX, XLSX, PAGE, presentation(), book("A", {"B": "C"})):
        assert detect("a", data[:4096]) in FORMATS
