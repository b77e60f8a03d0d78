"""A workbook of Excel is read by its cells that hold something, and by what stands beside them."""

from __future__ import annotations

import base64
import io
import zipfile
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from kbproc.base.errors import KbprocError
from kbproc.engine.sources.parse.formats import parse
from tests.kit.office import archive, workbook
from tests.kit.patience import LONG

SPACE = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
PACKAGE = "http://schemas.openxmlformats.org/package/2006/relationships"
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNk+A8AAQUBAScY42YAAAAASUVORK5CYII="
)


def relations(*links: tuple[str, str, str]) -> str:
    each = '<Relationship Id="{}" Type="{}/{}" Target="{}"/>'
    lines = "".join(each.format(id, OFFICE, kind, target) for id, kind, target in links)
    return f'<Relationships xmlns="{PACKAGE}">{lines}</Relationships>'


def sheet(
    rows: str,
    *,
    below: str = "",
    links: str = "",
    parts: Mapping[str, str] = {},
    strings: str = "",
    root: str = f'<worksheet xmlns="{SPACE}" xmlns:r="{OFFICE}">{{}}</worksheet>',
) -> bytes:
    """Returns a workbook of one sheet, "S", of these rows; `below`: elements after them."""
    return archive(
        {
            "xl/workbook.xml": f'<workbook xmlns="{SPACE}" xmlns:r="{OFFICE}"><sheets>'
            '<sheet name="S" sheetId="1" r:id="r1"/></sheets></workbook>',
            "xl/_rels/workbook.xml.rels": relations(
                ("r1", "worksheet", "worksheets/a.xml"),
                ("r2", "sharedStrings", "s.xml"),
                ("r3", "person", "persons/p.xml"),
            ),
            "xl/worksheets/a.xml": root.format(f"<sheetData>{rows}</sheetData>{below}"),
            "xl/worksheets/_rels/a.xml.rels": links or relations(),
            "xl/s.xml": f'<sst xmlns="{SPACE}">{strings}</sst>',
            **parts,
        }
    )


def shown(data: bytes, name: str = "a.xlsx") -> tuple[list[tuple[str | None, str]], dict[str, int]]:
    parsed = parse(data, "sheet", name)
    return [(block.section, block.text) for block in parsed.blocks], parsed.unread


def cells(places: Mapping[str, object]) -> bytes:
    def fill(book: Any) -> None:
        sheet = book.add_worksheet("S")
        for place, value in places.items():
            sheet.write(place, value)

    return workbook(fill)


def test_cells_far_apart_are_read_as_others_are() -> None:
    assert shown(cells({"A1": "near", "XFD5000": "far"})) == (
        [("S, A1", "near"), ("S, XFD5000", "far")],
        {},
    )
    assert shown(cells({"A1": "a", "XFD1": "b", "B1048576": "c"})) == (
        [("S, A1:XFD1", "a | b"), ("S, B1048576", "c")],
        {},
    )
    table = {f"{letter}{row}": f"{letter}{row}" for letter in "ABD" for row in range(1, 200)}
    blocks, unread = shown(cells({**table, "ZZZ7"[1:]: "stray"}))
    text = "\n".join(text for _, text in blocks)
    assert "A7 | B7 | D7 | stray" in text
    assert "A199 | B199 | D199" in text
    assert not unread


def test_a_diagonal_of_cells_costs_what_its_cells_cost() -> None:
    count = 4_000 if LONG else 1_000

    def fill(book: Any) -> None:
        sheet = book.add_worksheet("S")
        for number in range(count):
            sheet.write(number, number, f"word{number}")

    blocks, unread = shown(workbook(fill))
    assert "\n".join(text for _, text in blocks).split() == [f"word{n}" for n in range(count)]
    assert not unread


ROW = '<row r="2"><c r="B2"><v>{}</v></c></row>'
ODD: list[tuple[str, bytes, list[tuple[str, str]]]] = [
    (
        "cells without names follow one another",
        sheet('<row r="3"><c><v>1</v></c><c><v>2</v></c></row><row><c/><c><v>3</v></c></row>'),
        [("S, A3:B4", "1 | 2\n | 3")],
    ),
    (
        "attributes in another order and other quotes",
        sheet("<row r='5'><c t='str' s='0' r='C5' ><f>x</f><v>a &lt; b</v></c></row>"),
        [("S, C5", "a < b")],
    ),
    (
        "a prefix",
        sheet(
            "",
            root=f'<x:worksheet xmlns:x="{SPACE}"><x:sheetData><x:row r="1"><x:c r="A1">'
            "<x:v>4</x:v></x:c></x:row></x:sheetData></x:worksheet>",
        ),
        [("S, A1", "4")],
    ),
    (
        "comments and sections of XML",
        sheet(
            '<row r="1"><!-- <c r="B1"><v>9</v></c> --><c r="A1" t="str"><v><![CDATA[<a> & b]]>'
            "</v></c></row>"
        ),
        [("S, A1", "<a> & b")],
    ),
    (
        "texts of several runs without their readings, and of none",
        sheet(
            '<row r="1"><c r="A1" t="s"><v>1</v></c><c r="B1" t="s"><v>2</v></c>'
            '<c r="C1" t="inlineStr"><is><r><t>in</t></r><r><t>line</t></r></is></c></row>',
            strings="<si/><si><r><t>Har</t></r><r><t>bour</t></r><rPh><t>no</t></rPh></si>"
            "<si><t>a_x000A_b_x005F_x</t></si>",
        ),
        [("S, A1:C1", "Harbour | a b_x | inline")],
    ),
    (
        "two cells of one name",
        sheet('<row r="1"><c r="A1"><v>1</v></c><c r="A1"><v>2</v></c></row>' + ROW.format("x y")),
        [("S, A1:B2", "1 | 2\n | x y")],
    ),
    (
        "values that a reader sees: an error, a switch, a date",
        sheet(
            '<row r="1"><c r="A1" t="e"><f>1/0</f><v>#DIV/0!</v></c><c r="B1" t="b"><v>0</v></c>'
            '<c r="C1" t="d"><v>2024-03-05T00:00:00</v></c></row>'
        ),
        [("S, A1:C1", "#DIV/0! | FALSE | 2024-03-05")],
    ),
    ("a text that does not exist", sheet('<row r="1"><c r="A1" t="s"><v>7</v></c></row>'), []),
]


@pytest.mark.parametrize(("data", "blocks"), [odd[1:] for odd in ODD], ids=[odd[0] for odd in ODD])
def test_cells_are_read_however_they_are_written(data: bytes, blocks: list[Any]) -> None:
    assert shown(data) == (blocks, {})


def test_formulas_without_a_saved_value_are_counted() -> None:
    rows = (
        '<row r="1"><c r="A1"><f>B1*2</f></c><c r="B1"><f t="shared" si="0"/><v></v></c>'
        '<c r="C1" t="str"><f>IF(1,"","")</f><v></v></c><c r="D1"><f>1+1</f><v>2</v></c>'
        '<c r="E1" s="3"/></row>'
    )
    assert shown(sheet(rows)) == ([("S, D1", "2")], {"formulas": 2})


@pytest.mark.parametrize("content", ["<worksheet><sheetData>" + ROW.format(5), ""])
def test_a_sheet_that_is_cut_is_counted_and_read_as_far_as_it_goes(content: str) -> None:
    blocks, unread = shown(sheet("", root=content.replace("{", "{{")))
    assert [text for _, text in blocks] == ["5"] * bool(content)
    assert unread == {"damaged_pages": 1}


def test_what_is_no_workbook_is_refused() -> None:
    with pytest.raises(KbprocError, match=r"a\.xlsx is damaged or no workbook: xl/workbook\.xml"):
        parse(archive({"x": "y"}), "sheet", "a.xlsx")


def beside(book: Any) -> None:
    """Fills a sheet with what Excel lets a person put beside and upon its cells."""
    sheet = book.add_worksheet("Quay")
    sheet.write("A1", "Berth")
    sheet.write_comment("B2", "Ask the pilot", {"author": "Ann"})
    sheet.insert_textbox("D4", "Closed in\nwinter")
    sheet.insert_image("F6", "p.png", {"image_data": io.BytesIO(PIXEL), "description": "A crane"})
    sheet.insert_button("H8", {"caption": "Print the plan"})
    sheet.data_validation(
        "A5",
        {
            "validate": "list",
            "source": ["north", "south"],
            "input_title": "Side",
            "input_message": "Which quay?",
        },
    )
    sheet.set_header('&C&"Arial"Port authority')
    sheet.set_footer("&P")
    chart = book.add_chart({"type": "bar"})
    chart.add_series({"name": "Tonnes", "values": "=Quay!$A$1:$A$3"})
    chart.set_title({"name": "Loads by day"})
    chart.set_x_axis({"name": "Weekday"})
    sheet.insert_chart("J9", chart)
    alone = book.add_chart({"type": "line"})
    alone.add_series({"values": "=Quay!$A$1:$A$3"})
    alone.set_title({"name": "Depths"})
    book.add_chartsheet("Curve").set_chart(alone)


def test_what_stands_beside_the_cells_is_read_and_cited() -> None:
    blocks, unread = shown(workbook(beside))
    assert blocks == [
        ("Quay, A1", "Berth"),
        ("Quay, B2", "Comment by Ann: Ask the pilot"),
        ("Quay, A5", "Hint: Side: Which quay?"),
        ("Quay, F6", "[A crane]"),
        ("Quay, J9", "Loads by day\nTonnes\nWeekday"),
        ("Quay, D4", "Closed in\nwinter"),
        ("Quay", "Print the plan"),
        ("Curve", "Depths"),
    ]
    assert unread == {"pictures": 1, "objects": 2, "headers_and_footers": 1, "form_choices": 2}


def test_a_thread_of_comments_is_read_in_place_of_what_older_versions_show() -> None:
    links = relations(("c", "comments", "../c.xml"), ("t", "threadedComment", "../t.xml"))
    comment = '<comment ref="{}" authorId="{}"><text><r><t>{}</t></r></text></comment>'.format
    thread = '<threadedComment ref="B2" personId="{}"><text>{}</text></threadedComment>'.format
    parts = {
        "xl/c.xml": f'<comments xmlns="{SPACE}"><authors><author>Bo</author></authors>'
        f"<commentList>{comment('B2', 0, '[Threaded comment] Your version')}"
        f"{comment('C3', 0, 'Older')}{comment('D4', 9, 'Unsigned')}</commentList></comments>",
        "xl/t.xml": f"<x>{thread('p1', 'Why so deep?')}{thread('p9', 'It was dredged.')}</x>",
        "xl/persons/p.xml": '<x><person id="p1" displayName="Ann Lee"/></x>',
    }
    blocks, unread = shown(sheet(ROW.format(9), links=links, parts=parts))
    assert blocks == [
        ("S, B2", "9"),
        ("S, B2", "Comment by Ann Lee: Why so deep?\nComment: It was dredged."),
        ("S, C3", "Comment by Bo: Older"),
        ("S, D4", "Comment: Unsigned"),
    ]
    assert unread == {}


def test_parts_beside_a_sheet_that_are_missing_or_damaged_are_counted() -> None:
    links = relations(
        ("c", "comments", "../c.xml"), ("d", "drawing", "../d.xml"), ("v", "vmlDrawing", "../v.xml")
    )
    parts = {"xl/c.xml": "<", "xl/v.xml": '<x><ClientData ObjectType="Button"/><br></x>'}
    blocks, unread = shown(sheet(ROW.format(9), links=links, parts=parts))
    assert blocks == [("S, B2", "9")]
    assert unread == {"comments": 1, "objects": 2}


CONSTRUCTS: dict[str, Callable[[str], bytes]] = {
    "number": lambda word: sheet(f"<row><c><v>{word}</v></c></row>"),
    "shared": lambda word: sheet(
        '<row><c t="s"><v>0</v></c></row>', strings=f"<si><t>{word}</t></si>"
    ),
    "formula": lambda word: sheet(f'<row><c t="str"><f>A</f><v>{word}</v></c></row>'),
    "no value": lambda word: sheet(f'<row><c><f>"{word}"</f></c></row>'),
    "header": lambda word: sheet("", below=f"<oddHeader>&amp;L{word}</oddHeader>"),
    "choice": lambda word: sheet("", below=f'<formula1>"{word},x"</formula1>'),
    "hint": lambda word: sheet("", below=f'<dataValidation sqref="A1" prompt="{word}"/>'),
    "object": lambda word: sheet("", below=f'<oleObject progId="{word}" shapeId="7"/>'),
}


@pytest.mark.parametrize("construct", CONSTRUCTS)
def test_no_construct_of_a_sheet_is_dropped_without_a_count(construct: str) -> None:
    blocks, unread = shown(CONSTRUCTS[construct]("Bollard"))
    assert "Bollard" in "".join(text for _, text in blocks) or unread, blocks


def test_a_date_of_a_workbook_that_counts_from_1904_is_four_years_later() -> None:
    packed = cells({"A1": 1})
    styles = (
        f'<styleSheet xmlns="{SPACE}"><cellXfs><xf numFmtId="0"/><xf numFmtId="15"/></cellXfs>'
        "</styleSheet>"
    )

    def with_parts(settings: str) -> bytes:
        old = zipfile.ZipFile(io.BytesIO(packed))
        parts: dict[str, str | bytes] = {name: old.read(name) for name in old.namelist()}
        parts["xl/styles.xml"] = styles
        rows = '<row><c s="1"><v>366.5</v></c><c s="1"><v>1e12</v></c><c s="1"><v>0.5</v></c></row>'
        parts["xl/worksheets/sheet1.xml"] = (
            f'<worksheet xmlns="{SPACE}"><sheetData>{rows}</sheetData></worksheet>'
        )
        book = bytes(parts["xl/workbook.xml"]).decode()  # type: ignore[arg-type]
        start = book.index("<workbookPr")
        end = book.index("/>", start)
        parts["xl/workbook.xml"] = f"{book[:start]}<workbookPr {settings}{book[end:]}"
        return archive(parts)

    ((_, text),), _ = shown(with_parts(""))
    assert text == "31-Dec-00 | 1000000000000 | 31-Dec-99"
    ((_, text),), _ = shown(with_parts('date1904="1"'))
    assert text == "1-Jan-05 | 1000000000000 | 1-Jan-04"
