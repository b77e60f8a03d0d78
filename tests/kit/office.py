"""Office files, books and slides for tests: written by other libraries, or by hand."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterable, Mapping
from typing import Any

from tests.kit.zips import zipped

ODF = "urn:oasis:names:tc:opendocument:xmlns"
NAMESPACES = " ".join(
    f'xmlns:{prefix}="{ODF}:{name}:1.0"'
    for prefix, name in {
        "office": "office",
        "text": "text",
        "table": "table",
        "draw": "drawing",
        "presentation": "presentation",
        "xlink": "xlink",
    }.items()
)


def archive(parts: dict[str, str | bytes]) -> bytes:
    return zipped(parts, zipfile.ZIP_STORED)


def odf(body: str, kind: str, parts: Mapping[str, str] = {}) -> bytes:
    content = (
        f"<office:document-content {NAMESPACES}><office:body><office:{kind}>{body}"
        f"</office:{kind}></office:body></office:document-content>"
    )
    return archive(
        {
            "mimetype": f"application/vnd.oasis.opendocument.{kind}",
            "META-INF/manifest.xml": "<manifest/>",
            "content.xml": content,
            **parts,
        }
    )


def ods(name: str, rows: Iterable[Iterable[str]]) -> bytes:
    """Returns an OpenDocument spreadsheet of one sheet of texts."""
    cell = '<table:table-cell office:value-type="string"><text:p>{}</text:p></table:table-cell>'
    lines = "".join(
        f"<table:table-row>{''.join(map(cell.format, row))}</table:table-row>" for row in rows
    )
    return odf(f'<table:table table:name="{name}">{lines}</table:table>', "spreadsheet")


def workbook(fill: Any) -> bytes:
    import xlsxwriter

    packed = io.BytesIO()
    book = xlsxwriter.Workbook(packed)
    fill(book)
    book.close()
    return packed.getvalue()


def presentation() -> bytes:
    from pptx import Presentation
    from pptx.util import Inches

    deck = Presentation()
    slide = deck.slides.add_slide(deck.slide_layouts[1])
    slide.shapes.title.text = "Quarter plan"
    slide.placeholders[1].text = "Hire two people\nMove the office"
    slide.notes_slide.notes_text_frame.text = "Mention the budget."
    other = deck.slides.add_slide(deck.slide_layouts[5])
    other.shapes.title.text = "Costs"
    inch = Inches(1)
    table = other.shapes.add_table(2, 2, inch, inch, inch, inch).table
    for row, cells in enumerate([("Item", "EUR"), ("Rent", "900")]):
        for column, text in enumerate(cells):
            table.cell(row, column).text = text
    group = other.shapes.add_group_shape()
    group.shapes.add_textbox(inch, inch, inch, inch).text_frame.text = "Within a group"
    deck.core_properties.author = "Ann"
    packed = io.BytesIO()
    deck.save(packed)
    return packed.getvalue()


def book(title: str, chapters: dict[str, str]) -> bytes:
    """Returns an EPUB with a picture and these chapters: heading → its one paragraph."""
    page = "<html><head><title>{0}</title></head><body><h1>{0}</h1><p>{1}</p></body></html>"
    items = "".join(
        f'<item id="c{number}" href="one%20{number}.xhtml" media-type="application/xhtml+xml"/>'
        for number in range(len(chapters))
    )
    spine = "".join(f'<itemref idref="c{number}"/>' for number in range(len(chapters)))
    package = (
        '<package xmlns="http://www.idpf.org/2007/opf"'
        f' xmlns:dc="http://purl.org/dc/elements/1.1/"><metadata><dc:title>{title}</dc:title>'
        "<dc:creator>Ann Lee</dc:creator><dc:language>en</dc:language></metadata><manifest>"
        f'{items}<item id="p" href="p.png" media-type="image/png"/></manifest>'
        f"<spine>{spine}</spine></package>"
    )
    parts: dict[str, str | bytes] = {
        "mimetype": "application/epub+zip",
        "META-INF/container.xml": '<container><rootfiles><rootfile full-path="OEBPS/p.opf"/>'
        "</rootfiles></container>",
        "OEBPS/p.opf": package,
    }
    for number, (heading, text) in enumerate(chapters.items()):
        parts[f"OEBPS/one {number}.xhtml"] = page.format(heading, text)
    return archive(parts)
