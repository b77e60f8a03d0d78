"""A PDF page is read in the order of its columns, and a page that lacks its text says why."""

from __future__ import annotations

import io
from typing import Any

import pytest
from pypdf import PdfReader
from pypdf.generic import IndirectObject, NameObject

from kbproc.engine.sources.parse.fonts import Fonts, damages
from kbproc.engine.sources.parse.pages import PageText, read
from tests.kit.pdfs import pdf, stream, text_page

LEFT = ["The first column is", "a text of some words", "that goes on and on", "to its own end here"]
RIGHT = [
    "A second column has",
    "other words beside it",
    "which a reader meets",
    "after the first one",
]


def page_of(content: bytes, **entries: Any) -> Any:
    """Returns the one page of a PDF with this content."""
    return PdfReader(io.BytesIO(pdf(content, **entries))).pages[0]


def read_page(content: bytes, *, with_title: bool = False, **entries: Any) -> PageText:
    return read(page_of(content, **entries), Fonts(), with_title=with_title)


def test_a_page_has_the_text_of_its_lines() -> None:
    assert read_page(text_page(["First line.", "Second line."])) == PageText(
        "First line.\nSecond line.\n"
    )


def test_ligatures_and_hard_spaces_are_letters_and_spaces() -> None:
    names = "/Type /Font /Subtype /Type1 /BaseFont /Helvetica"
    font = f"<< {names} /Encoding << /Differences [1 /fi /fl] >> >>".encode()
    content = b"BT /F2 11 Tf 50 800 Td (\001ne \002y\240 x) Tj ET"
    parsed = read_page(content, fonts="/F2 7 0 R", extra=[font])
    assert parsed.text == "fine fly  x"


@pytest.mark.parametrize(
    ("before", "place"),
    [
        ("", "1 0 0 1 {along} {across} Tm"),
        # The page is turned, or drawn at half its size, or the text is on a turned one.
        ("", "0 1 -1 0 {across} {along} Tm"),
        (".5 0 0 .5 40 90 cm", "1 0 0 1 {along} {across} Tm"),
        ("0 1 -1 0 900 20 cm", "1 0 0 1 {along} {across} Tm"),
    ],
)
def test_columns_that_were_drawn_across_are_read_one_after_the_other(
    before: str, place: str
) -> None:
    turn = -1 if place.startswith("0 1") else 1
    rows = "".join(
        f"BT /F1 10 Tf {place.format(along=along, across=400 - turn * 14 * row)} "
        f"[({words[row][:9]}) ({words[row][9:]})] TJ ET\n"
        for row in range(4)
        for along, words in ((50, LEFT), (160, RIGHT))
    )
    parsed = read_page(f"q {before}\n{rows}Q".encode())
    assert parsed.text.split("\n") == [*LEFT, *RIGHT]


def test_a_form_with_text_is_read_and_one_without_becomes_a_picture() -> None:
    kind = "/Type /XObject /Subtype /Form /BBox [0 0 99 99]"
    fonts = "/Font << /F1 3 0 R >>"
    words = stream(f"{kind} /Resources << {fonts} /XObject << /G 8 0 R >> >>", b"/G Do")
    inner = stream(f"{kind} /Resources << {fonts} >>", b"BT /F1 9 Tf (Within) Tj ET")
    figure = stream(kind, b"0 0 9 9 re f")
    resources = "/XObject << /Gone 99 0 R /F 7 0 R /M 9 0 R >>"
    page = page_of(b"/F Do /M Do /M Do", resources=resources, extra=[words, inner, figure])
    assert read(page, Fonts()).text.strip() == "Within"
    objects = page["/Resources"]["/XObject"]
    assert [objects[name]["/Subtype"] for name in ("/F", "/M")] == ["/Form", "/Image"]


@pytest.mark.parametrize(
    ("content", "lacks"),
    [
        (b"", None),
        (b"q Q", None),
        (b"0 0 100 100 re f", "pages_without_text"),
        (b"0 0 100 100 re W n", None),
        (b"BT /F1 9 Tf () Tj ET 0 0 9 9 re S", "pages_without_text"),
    ],
)
def test_a_page_without_text_is_a_lack_only_where_something_is_drawn(
    content: bytes, lacks: str | None
) -> None:
    assert read_page(content) == PageText("", lacks)


def test_a_picture_that_covers_the_page_makes_a_short_text_a_stamp() -> None:
    image = stream(
        "/Type /XObject /Subtype /Image /Width 1 /Height 1 /ColorSpace /DeviceGray"
        " /BitsPerComponent 8",
        b"x",
    )
    stamp = b"BT /F1 9 Tf 9 9 Td (Scanned by a machine) Tj ET "
    resources: Any = {"resources": "/XObject << /I 7 0 R >>", "extra": [image]}
    covering = read_page(stamp + b"q 595 0 0 842 0 0 cm /I Do Q", **resources)
    turned = read_page(stamp + b"q 0 842 -595 0 595 0 cm /I Do Q", **resources)
    small = read_page(stamp + b"q 100 0 0 100 0 0 cm /I Do Q", **resources)
    assert covering == turned == PageText("Scanned by a machine\n", "pages_without_text")
    assert small == PageText("Scanned by a machine\n", None)


def test_the_largest_line_is_returned_where_it_is_asked_for() -> None:
    body = "".join(f"(A line of the usual size {row}) Tj T* " for row in range(5))
    content = f"BT /F1 20 Tf 22 TL 50 800 Td (A great) Tj T* (title) Tj T* /F1 10 Tf {body} ET"
    assert read_page(content.encode(), with_title=True).largest == "A great title"
    assert read_page(content.encode()).largest is None
    # A large word that was turned is a watermark, and two letters are no title.
    watermark = b"BT /F1 40 Tf 0 1 -1 0 30 90 Tm (Draft) Tj ET BT /F1 30 Tf 9 9 Td (ab) Tj ET "
    assert read_page(watermark + text_page(["A line"] * 9), with_title=True).largest is None
    assert read_page(text_page(["One size", "for all lines"]), with_title=True).largest is None


def test_letters_without_names_are_reported_as_such() -> None:
    font = b"""<< /Type /Font /Subtype /Type0 /BaseFont /X /Encoding /Identity-H
        /DescendantFonts [8 0 R] >>"""
    inner = b"""<< /Type /Font /Subtype /CIDFontType2 /BaseFont /X
        /CIDSystemInfo << /Ordering (Identity) >> >>"""
    content = b"BT /F2 11 Tf 50 800 Td <003700480051004F> Tj ET"
    parsed = read_page(content, fonts="/F2 7 0 R", extra=[font, inner])
    assert (parsed.text.strip(), parsed.lacks) == ("", "pages_without_unicode")


def test_reading_a_page_leaves_its_content_in_place() -> None:
    page = page_of(b"0 0 9 9 re f BT /F1 11 Tf 50 800 Td (Once) Tj ET")
    fonts = Fonts()
    before = page.raw_get("/Contents")
    assert [read(page, fonts).text, read(page, fonts).text] == ["Once", "Once"]
    assert page.raw_get("/Contents") == before


def test_a_page_whose_content_is_damaged_raises_an_error_of_pypdf() -> None:
    page = page_of(b"(x) Tj", extra=[stream("/Filter /NoSuchDecode", b"(x) Tj")])
    page[NameObject("/Contents")] = IndirectObject(7, 0, page.pdf)
    with pytest.raises(damages()):
        read(page, Fonts())
