"""A spreadsheet of OpenDocument is read as its cells are shown, with comments and drawings."""

from __future__ import annotations

import pytest

from kbproc.base.errors import KbprocError
from kbproc.engine.sources.parse.formats import parse
from tests.kit.office import NAMESPACES, ODF, archive, odf

SVG = 'xmlns:svg="urn:oasis:names:tc:opendocument:xmlns:svg-compatible:1.0"'
DC = 'xmlns:dc="http://purl.org/dc/elements/1.1/"'


def cell(text: str = "", entries: str = "") -> str:
    return f"<table:table-cell {entries}>{text}</table:table-cell>"


def p(text: str) -> str:
    return f"<text:p>{text}</text:p>"


def table(*rows: str, entries: str = 'table:name="S"') -> str:
    return f"<table:table {entries}>{''.join(rows)}</table:table>"


def row(*cells: str, entries: str = "") -> str:
    return f"<table:table-row {entries}>{''.join(cells)}</table:table-row>"


def shown(body: str, **parts: str) -> tuple[list[tuple[str | None, str]], dict[str, int]]:
    parsed = parse(odf(body, "spreadsheet", parts), "sheet", "a.ods")
    return [(block.section, block.text) for block in parsed.blocks], parsed.unread


def many(name: str, times: int) -> str:
    return f'table:number-{name}-repeated="{times}"'


def test_cells_far_apart_are_read_as_others_are() -> None:
    empty = f"<table:table-cell {many('columns', 16_383)}/>"
    rows = f"<table:table-row {many('rows', 4_998)}>{cell()}</table:table-row>"
    far = table(row(cell(p("near"))), rows, row(empty, cell(p("far"))))
    assert shown(far) == ([("S, A1", "near"), ("S, XFD5000", "far")], {})
    short = f"<table:table-row {many('rows', 1_048_573)}/>"
    wide = table(
        row(cell(p("a")), empty.replace("383", "382"), cell(p("b"))), short, row(cell(p("c")))
    )
    assert shown(wide) == ([("S, A1:XFD1", "a | b"), ("S, A1048575", "c")], {})


def test_values_are_shown_as_a_reader_sees_them() -> None:
    value = 'office:value-type="{}" office:{}="{}"'.format
    error = 'table:formula="of:=1/0" office:value-type="string" calcext:value-type="error"'
    body = table(
        row(
            cell(p("15 %"), value("percentage", "value", "0.15")),
            cell(p("05.03.24"), value("date", "date-value", "2024-03-05")),
            cell("", value("float", "value", "7")),
            cell(p("#DIV/0!"), error.replace(' calcext:value-type="error"', "")),
            cell("", 'table:formula="of:=A1&gt;2"'),
        ),
        row(
            cell(p("one <text:span>word</text:span>") + p("two &amp; three")),
            entries=many("rows", 2),
        ),
    )
    assert shown(body) == (
        [("S, A1:D3", "15 % | 05.03.24 | 7 | #DIV/0!" + "\none word two & three" * 2)],
        {"formulas": 1},
    )


def test_merged_and_covered_cells_and_hidden_and_further_sheets() -> None:
    spanned = 'table:number-columns-spanned="1" table:number-rows-spanned="2"'
    hidden = "<table:covered-table-cell><text:p>under</text:p></table:covered-table-cell>"
    body = table(
        row(cell(p("North"), spanned), cell(p("dig"))),
        row(hidden, cell(p("fill"))),
    ) + table(row(cell(p("Fee"))), entries='table:name="A &amp; B" table:style-name="t2"')
    assert shown(body) == (
        [("S, A1:B2", "North | dig\nNorth | fill"), ("A & B, A1", "Fee")],
        {"hidden_passages": 1},
    )


def test_comments_drawings_charts_and_descriptions_are_read() -> None:
    note = (
        f"<office:annotation {DC}><dc:creator>Ann</dc:creator><dc:date>2024</dc:date>"
        f"{p('Ask the')}{p('pilot')}</office:annotation>"
    )
    chart = (
        f'<draw:frame><draw:object xlink:href="./Object 1"/><draw:image/>'
        f"<svg:desc {SVG}>A chart of loads</svg:desc></draw:frame>"
    )
    box = f"<draw:custom-shape>{p('Closed in winter')}</draw:custom-shape>"
    body = table(
        f"<table:shapes>{box}</table:shapes>",
        row(cell(p("Berth") + note), cell(chart)),
    )
    content = (
        f"<x {NAMESPACES}><title>{p('Loads by day')}</title>"
        f"{table(row(cell(p('Rope')), cell(p('12'), 'office:value-type=' + repr('float'))))}</x>"
    )
    assert shown(body, **{"Object 1/content.xml": content}) == (
        [
            ("S, A1", "Berth"),
            ("S", "Closed in winter"),
            ("S, A1", "Comment by Ann: Ask the pilot"),
            ("S, B1", "Loads by day Rope [A chart of loads]"),
        ],
        {"objects": 1, "pictures": 1},
    )


def test_other_prefixes_and_odd_marks_are_understood() -> None:
    content = (
        f'<o:c xmlns:o="{ODF}:office:1.0" xmlns:t="{ODF}:table:1.0" xmlns:x="{ODF}:text:1.0">'
        '<o:body><t:table t:name="S"><!-- <t:table> --><t:table-row><t:table-cell t:formula="a>2">'
        "<x:p>7</x:p></t:table-cell><t:table-cell><x:p><![CDATA[<8>]]></x:p></t:table-cell>"
        "</t:table-row></t:table></o:body></o:c>"
    )
    parsed = parse(archive({"content.xml": content}), "sheet", "a.ods")
    assert [(block.section, block.text) for block in parsed.blocks] == [("S, A1:B1", "7 | <8>")]
    with pytest.raises(KbprocError, match=r"a\.ods is damaged at content\.xml: a table has no end"):
        parse(archive({"content.xml": content.replace("</t:table>", "")}), "sheet", "a.ods")
