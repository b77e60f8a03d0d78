"""The first bytes of a file say of what kind it is."""

from __future__ import annotations

import pytest

from kbproc.engine.sources.parse.kinds import OLDER_OFFICE, OLE, ZIP, Kind, kind_of
from tests.kit.compound import compound
from tests.kit.office import archive, book, odf, ods
from tests.kit.pdfs import pdf
from tests.kit.words import docx


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (book("B", {"a": "b"}), Kind("an EPUB book", "book")),
        (docx(""), Kind("a Word document", "docx")),
        (ods("A", [["x"]]), Kind("an OpenDocument spreadsheet", "sheet")),
        (odf("", "presentation"), Kind("an OpenDocument presentation", "slides")),
        (odf("", "text"), Kind("an OpenDocument text", "odt")),
        (archive({"xl/workbook.xml": ""}), Kind("an Excel workbook", "sheet")),
        (archive({"ppt/slides/1.xml": ""}), Kind("a PowerPoint presentation", "slides")),
        (archive({"a.txt": "x"}), ZIP),
        (archive({}), ZIP),
    ],
)
def test_a_zip_is_of_the_kind_of_its_names(data: bytes, kind: Kind) -> None:
    assert kind_of(data[:4096]) == kind


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (compound({"Book": b""}), OLDER_OFFICE),
        (b"\x89PNG\r\n\x1a\n", Kind("a PNG picture", "picture")),
        (b"RIFF\0\0\0\0WEBPVP8", Kind("a WebP picture")),
        (b"RIFF\0\0\0\0WAVE", Kind("a sound recording")),
        (b"\0\0\0\x18ftypheic", Kind("a HEIC picture")),
        (b"\0\0\0\x18ftypmp42", Kind("a video")),
        (b"a.txt".ljust(257, b"\0") + b"ustar", Kind("a TAR archive", "archive")),
        (b"\x1f\x8b\x08", Kind("a gzip archive", "archive")),
        (b"SQLite format 3\0", Kind("a SQLite database")),
        (b"book".ljust(60, b"\0") + b"BOOKMOBI", Kind("a Kindle book")),
        (b"MZ\x90", Kind("a Windows program")),
    ],
)
def test_other_kinds_have_a_mark_at_its_place(data: bytes, kind: Kind) -> None:
    assert kind_of(data) == kind


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (pdf(b""), Kind("a PDF", "pdf")),
        (b"\n" * 1000 + b"%PDF-1.4", Kind("a PDF", "pdf")),
        (b" \r\n{\\RTF1", Kind("rich text", "rtf")),
        (b"\n<!DOCTYPE HTML>", Kind("a web page", "html")),
        (b"<HTML lang=en>", Kind("a web page", "html")),
    ],
)
def test_text_formats_are_known_by_their_first_words(data: bytes, kind: Kind) -> None:
    assert kind_of(data) == kind


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"words",
        OLE[:7],
        b"\n" * 1020 + b"%PDF-1.4",
        b"<p>x</p>",
        b"x{\\rtf1",
        b"PK\x01\x02",
        b"  WEBP",
        b"\0" * 100,
    ],
)
def test_text_and_unknown_bytes_have_no_kind(data: bytes) -> None:
    assert kind_of(data) is None
