"""Sheets, slides, OpenDocument, notebooks, books, RTF, captions, marked-up text and records."""

from __future__ import annotations

import datetime
import io
import json
import zipfile
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbproc.base.errors import KbprocError
from kbproc.engine.sources.parse.blocks import Block, Parsed
from kbproc.engine.sources.parse.formats import detect, parse
from kbproc.engine.sources.parse.number_format import in_format
from kbproc.engine.sources.parse.packed import RATIO_FROM
from tests.kit.office import archive, book, odf, ods, presentation, workbook


def read(data: bytes, name: str) -> Parsed:
    kind = detect(name, data[:4096])
    assert kind is not None
    return parse(data, kind, name)


def shown(parsed: Parsed) -> list[tuple[str | None, str]]:
    return [(block.section, block.text) for block in parsed.blocks]


def test_a_sheet_is_cited_by_its_name_and_range() -> None:
    def fill(book: Any) -> None:
        sheet = book.add_worksheet("Budget")
        day = book.add_format({"num_format": "yyyy-mm-dd"})
        sheet.write_row("B4", ["Item", "Count", "Bought"])
        sheet.write_row("B5", ["Screws", 12.0])
        sheet.write_datetime("D5", datetime.datetime(2024, 3, 5), day)
        sheet.write_row("B6", ["Nails", 3.5])
        sheet.write("A10", "Approved by Ann.")
        secret = book.add_worksheet("Wages")
        secret.hide()
        secret.write_row("A1", ["Ann", True])
        book.add_worksheet("Empty")

    parsed = read(workbook(fill), "a.xlsx")
    assert shown(parsed) == [
        (
            "Budget, B4:D6",
            "Item | Count | Bought\nScrews | 12 | 2024-03-05\nNails | 3.5",
        ),
        ("Budget, A10", "Approved by Ann."),
        ("Wages (hidden), A1:B1", "Ann | TRUE"),
    ]
    assert {block.kind for block in parsed.blocks} == {"table"}
    assert parsed.metadata == {"sheets": 3}


def test_rows_of_a_long_sheet_stand_below_their_head() -> None:
    def fill(book: Any) -> None:
        sheet = book.add_worksheet("Parts")
        sheet.write_row(0, 0, ["Part", "Price"])
        for number in range(1, 200):
            sheet.write_row(number, 0, [f"part number {number}", number])

    parsed = read(workbook(fill), "a.xlsx")
    assert len(parsed.blocks) > 3
    assert all(block.text.startswith("Part | Price\n") for block in parsed.blocks)
    ends = [block.section.rpartition(":")[2] for block in parsed.blocks if block.section]
    begins = [
        block.section.partition(", ")[2].partition(":")[0]
        for block in parsed.blocks
        if block.section
    ]
    assert begins[0] == "A1" and ends[-1] == "B200"
    following = [f"A{int(end[1:]) + 1}" for end in ends[:-1]]
    assert begins[1:] == following
    for number in range(1, 200):
        assert sum(f"part number {number} |" in block.text for block in parsed.blocks) == 1


def test_a_merged_cell_stands_in_each_of_its_rows() -> None:
    def fill(book: Any) -> None:
        sheet = book.add_worksheet("Plan")
        sheet.write_row("A1", ["Team", "Task"])
        sheet.merge_range("A2:A4", "North", None)
        sheet.write_column("B2", ["dig", "fill", "rest"])

    (block,) = read(workbook(fill), "a.xlsx").blocks
    assert block.text == "Team | Task\nNorth | dig\nNorth | fill\nNorth | rest"


def test_the_head_of_several_columns_stands_in_each() -> None:
    def fill(book: Any) -> None:
        sheet = book.add_worksheet("Plan")
        sheet.merge_range("A1:D1", "Plan of the harbour", None)
        sheet.write("A3", "Team")
        sheet.merge_range("B3:C3", "March", None)
        sheet.write_row("A4", ["North", 1, 2])

    parsed = read(workbook(fill), "a.xlsx")
    assert shown(parsed) == [
        ("Plan, A1", "Plan of the harbour"),
        ("Plan, A3:C4", "Team | March | March\nNorth | 1 | 2"),
    ]


FORMATS: list[tuple[object, str, str]] = [
    (0.15, "0%", "15%"),
    (0.1525, "0.0 %", "15.3 %"),
    (1234.5, '#,##0.00 "€"', "1,234.50 €"),
    (1234.5, "[$$-409]#,##0.00", "$1,234.50"),
    (-5.5, "#,##0.00;[Red](#,##0.00)", "(5.50)"),
    (-5.5, "0.0", "-5.5"),
    (15, '0 "%"', "15 %"),
    (0, '0;-0;"none"', "none"),
    (2.5, "0", "3"),
    (7, "0000", "0007"),
    (1.5, "0.0##", "1.5"),
    (1_250_000, '0.0,,"M"', "1.3M"),
    (1e6, "0.00E+00", "1.00E+06"),
    (12.5, "_-* #,##0.00 [$€-407]_-", "12.50 €"),
    (0.5, "# ?/?", "0.5"),
    (5, "[>3]0.0;0", "5"),
    (1234, "General", "1234"),
    (1e300, "0.00", repr(1e300)),
    (datetime.datetime(2024, 3, 5), "dd.mm.yyyy", "05.03.2024"),
    (datetime.datetime(2024, 3, 5), "d mmmm yyyy", "5 March 2024"),
    (datetime.datetime(2024, 3, 5), "[$-407]d. mmmm yyyy", "2024-03-05"),
    (datetime.datetime(2024, 3, 5, 14, 30), "yyyy-mm-dd hh:mm", "2024-03-05 14:30"),
    (datetime.datetime(2024, 3, 5, 14, 30), "h:mm AM/PM", "2:30 PM"),
    (datetime.timedelta(hours=26.5), "[h]:mm", "26:30"),
    (datetime.datetime(2024, 3, 5), "[$-F800]dddd, mmmm dd, yyyy", "2024-03-05"),
]


@pytest.mark.parametrize(("value", "code", "text"), FORMATS)
def test_a_cell_is_read_as_the_sheet_shows_it(value: object, code: str, text: str) -> None:
    def fill(book: Any) -> None:
        sheet = book.add_worksheet("Sums")
        sheet.write("C3", value, book.add_format({"num_format": code}))

    assert shown(read(workbook(fill), "a.xlsx")) == [("Sums, C3", text)]


@given(
    st.floats() | st.integers() | st.datetimes() | st.timedeltas() | st.times(),
    st.text('0#?.,;%E+-/"\\_*[]$yYmdhs:@ aAPM/General()€7', max_size=14),
)
def test_any_format_shows_a_value_or_leaves_it(value: object, code: str) -> None:
    text = in_format(value, code)
    assert text is None or len(text) < 700


def test_an_ods_sheet_is_read_too() -> None:
    data = ods("Places", [("Town", "River"), ("Köln", "Rhein")])
    assert shown(read(data, "a.ods")) == [("Places, A1:B2", "Town | River\nKöln | Rhein")]


@pytest.mark.parametrize("wrong", ["</ta/le:table>", "", "</table:table><table:table>"])
def test_a_sheet_whose_end_never_comes_is_damaged(wrong: str) -> None:
    data = odf(f'<table:table table:name="Towns"><table:table-row/>{wrong}', "spreadsheet")
    with pytest.raises(KbprocError, match=r"towns\.ods is damaged at content\.xml"):
        read(data, "towns.ods")


def test_an_ods_sheet_with_a_password_is_named() -> None:
    entry = '<manifest:file-entry manifest:full-path="content.xml"><manifest:encryption-data/>'
    data = archive(
        {
            "mimetype": "application/vnd.oasis.opendocument.spreadsheet",
            "META-INF/manifest.xml": (
                '<manifest:manifest xmlns:manifest="urn:oasis:names:tc:opendocument:xmlns:'
                f'manifest:1.0">{entry}</manifest:file-entry></manifest:manifest>'
            ),
            "content.xml": bytes(range(256)),
        }
    )
    with pytest.raises(KbprocError, match="needs a password"):
        read(data, "locked.ods")


def test_a_bomb_is_refused() -> None:
    bomb, outcomes = io.BytesIO(), {}
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as opened:
        opened.writestr("content.xml", b"0" * (RATIO_FROM + (1 << 20)))
    for name in ("a.xlsx", "a.pptx", "a.odt", "a.epub", "a.docx"):
        try:
            parse(bomb.getvalue(), detect(name, b"") or "", name)
        except KbprocError as error:
            outcomes[name] = error.type
        else:
            outcomes[name] = "is read"
    assert {name: type for name, type in outcomes.items() if type != "input.too_large"} == {}


def test_slides_have_numbers_titles_tables_groups_and_notes() -> None:
    parsed = read(presentation(), "a.pptx")
    assert [(block.page, block.section, block.text) for block in parsed.blocks] == [
        (1, "Quarter plan", "Quarter plan"),
        (1, "Quarter plan", "Hire two people\nMove the office"),
        (1, "Quarter plan", "Notes: Mention the budget."),
        (2, "Costs", "Costs"),
        (2, "Costs", "Item | EUR\nRent | 900"),
        (2, "Costs", "Within a group"),
    ]
    assert (parsed.pages, parsed.title, parsed.metadata) == (2, "Quarter plan", {"author": "Ann"})


def test_a_text_of_opendocument_keeps_headings_lists_tables_and_notes() -> None:
    parsed = read(
        odf(
            "<text:tracked-changes><text:changed-region/></text:tracked-changes>"
            '<text:h text:outline-level="1">Manual</text:h>'
            '<text:h text:outline-level="2">Start</text:h>'
            '<text:p>Press<text:s text:c="2"/>the <text:span>red</text:span> button'
            "<text:note><text:note-body><text:p>It is big.</text:p></text:note-body></text:note>"
            ".</text:p><text:list><text:list-item><text:p>First</text:p></text:list-item>"
            "<text:list-item><text:p>Second</text:p></text:list-item></text:list>"
            "<table:table><table:table-row><table:table-cell><text:p>A</text:p>"
            "</table:table-cell><table:table-cell><text:p>1</text:p></table:table-cell>"
            "</table:table-row></table:table>"
            "<text:p>See<office:annotation><text:p>why?</text:p></office:annotation> it.</text:p>",
            "text",
        ),
        "a.odt",
    )
    start = "Manual > Start"
    assert shown(parsed) == [
        ("Manual", "Manual"),
        (start, "Start"),
        (start, "Press  the red button.\n[It is big.]"),
        (start, "First"),
        (start, "Second"),
        (start, "A | 1"),
        (start, "See it."),
    ]
    assert parsed.unread == {"comments": 1, "deleted_passages": 1}
    assert parsed.title == "Manual"


def test_slides_of_opendocument() -> None:
    parsed = read(
        odf(
            '<draw:page draw:name="p1"><draw:frame presentation:class="title"><draw:text-box>'
            "<text:p>Hello</text:p></draw:text-box></draw:frame><draw:frame><draw:text-box>"
            "<text:p>World</text:p></draw:text-box></draw:frame><presentation:notes><draw:frame>"
            "<draw:text-box><text:p>Smile.</text:p></draw:text-box></draw:frame>"
            "</presentation:notes></draw:page>",
            "presentation",
        ),
        "a.odp",
    )
    assert [(block.page, block.section, block.text) for block in parsed.blocks] == [
        (1, "Hello", "Hello"),
        (1, "Hello", "World"),
        (1, "Hello", "Notes: Smile."),
    ]


def test_a_notebook_is_cited_by_heading_and_cell() -> None:
    cells = [
        {"cell_type": "markdown", "source": ["# Sales\n", "\n", "By year."]},
        {
            "cell_type": "code",
            "source": "total = 1 + 1\nprint(total)",
            "outputs": [
                {"output_type": "stream", "text": ["2\n"]},
                {
                    "output_type": "display_data",
                    "data": {"image/png": "aaaa", "text/plain": "<Figure>"},
                },
                {"output_type": "error", "ename": "ValueError", "evalue": "no"},
                {"output_type": "stream", "text": "x" * 5000},
            ],
        },
    ]
    notebook = {"cells": cells, "metadata": {"language_info": {"name": "python"}}, "nbformat": 4}
    parsed = read(json.dumps(notebook).encode(), "a.ipynb")
    assert [(section, text[:20]) for section, text in shown(parsed)] == [
        ("cell 1", "# Sales"),
        ("cell 1", "By year."),
        ("cell 2", "total = 1 + 1\nprint("),
        ("cell 2", "Output:\n2"),
        ("cell 2", "Output:\n<Figure>"),
        ("cell 2", "Output:\nValueError: "),
        ("cell 2", "Output:\nxxxxxxxxxxxx"),
    ]
    assert len(parsed.blocks[-1].text) < 2100
    assert (parsed.title, parsed.metadata) == ("Sales", {"language": "python"})
    assert parsed.unread == {"pictures": 1, "long_outputs": 1}


@pytest.mark.parametrize("data", [b"{", b"[]", b'{"cells": 3}', b'{"cells": [3]}', b"{}"])
def test_what_is_no_notebook_is_named(data: bytes) -> None:
    with pytest.raises(KbprocError) as raised:
        parse(data, "notebook", "a.ipynb")
    assert raised.value.type == "operation.failed" and "a.ipynb" in raised.value.message


def test_a_book_is_cited_by_chapter() -> None:
    data = book("The Sea", {"Storm": "The wind rose.", "Calm": "It fell."})
    parsed = read(data, "a.epub")
    assert shown(parsed) == [
        ("Storm", "Storm"),
        ("Storm", "The wind rose."),
        ("Calm", "Calm"),
        ("Calm", "It fell."),
    ]
    assert (parsed.title, parsed.metadata) == ("The Sea", {"author": "Ann Lee", "language": "en"})
    assert parsed.unread == {"pictures": 1}
    assert detect("book", data[:4096]) == "book"


def test_a_locked_book_is_named() -> None:
    data = archive(
        {
            "mimetype": "application/epub+zip",
            "META-INF/encryption.xml": '<encryption><CipherReference URI="a.xhtml"/></encryption>',
        }
    )
    with pytest.raises(KbprocError, match="locked"):
        parse(data, "book", "a.epub")


def test_a_book_of_fiction() -> None:
    book = (
        "<FictionBook><description><title-info><author><first-name>Ann</first-name> "
        "<last-name>Lee</last-name></author><book-title>Sea</book-title></title-info></description>"
        "<body><section><title><p>One</p></title><p>The wind rose.</p></section>"
        "<section><title><p>Two</p></title><p>It fell.</p></section></body>"
        "<binary>aaaa</binary></FictionBook>"
    )
    parsed = read(book.encode(), "a.fb2")
    assert shown(parsed) == [
        ("One", "One"),
        ("One", "The wind rose."),
        ("Two", "Two"),
        ("Two", "It fell."),
    ]
    assert (parsed.title, parsed.metadata, parsed.unread) == (
        "Sea",
        {"author": "Ann Lee"},
        {"pictures": 1},
    )


def test_rich_text_is_read() -> None:
    data = rb"{\rtf1\ansi\ansicpg1252 Caf\'e9 opens.\par Gr\u252?\'dfe{\pict\pngblip aa}\par}"
    parsed = read(data, "a.rtf")
    assert [block.text for block in parsed.blocks] == ["Café opens.", "Grüße"]
    assert parsed.unread == {"pictures": 1}
    assert detect("letter", data) == "rtf"


@pytest.mark.parametrize(
    ("name", "data"),
    [
        (
            "a.srt",
            "1\n00:00:01,000 --> 00:00:03,000\n<i>Hello</i> there.\n\n"
            "2\n00:01:00,500 --> 00:01:02,000\nBye &amp; good night.\n",
        ),
        (
            "a.vtt",
            "WEBVTT\n\nNOTE a remark\n\n00:00:01.000 --> 00:00:03.000 align:start\n"
            "<c.loud>Hello</c> there.\n\nsecond\n00:01:00.500 --> 00:01:02.000\n"
            "Bye &amp; good night.\n",
        ),
    ],
)
def test_captions_are_cited_by_time(name: str, data: str) -> None:
    (block,) = read(data.encode(), name).blocks
    assert block.text == "Hello there.\nBye & good night."
    assert block.section in {"00:00:01–00:01:02"}


def test_a_voice_is_named() -> None:
    (block,) = read(b"WEBVTT\n\n00:01.000 --> 00:02.000\n<v Ann Lee>Hi.</v>\n", "a.vtt").blocks
    assert (block.section, block.text) == ("00:01–00:02", "Ann Lee: Hi.")


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("a.rst", "Guide\n=====\n\nIntro.\n\nSetup\n-----\n\nRun it.\n\nEnd\n===\n\nBye.\n"),
        ("a.org", "* Guide\n\nIntro.\n\n** Setup  :tag:\n\nRun it.\n\n* End\n\nBye.\n"),
        ("a.adoc", "= Guide\n\nIntro.\n\n== Setup\n\nRun it.\n\n= End\n\nBye.\n"),
        (
            "a.tex",
            "\\section{Guide}\n\nIntro.\n\n\\subsection{Setup}\n\nRun it.\n\n"
            "\\section*{End}\n\nBye.\n",
        ),
        ("a.1", ".SH Guide\n\nIntro.\n\n.SS Setup\n\nRun it.\n\n.SH End\n\nBye.\n"),
    ],
)
def test_headings_of_marked_up_text_are_sections(name: str, source: str) -> None:
    parsed = read(source.encode(), name)
    sections = {block.text: block.section for block in parsed.blocks}
    assert (sections["Intro."], sections["Run it."], sections["Bye."]) == (
        "Guide",
        "Guide > Setup",
        "End",
    )
    lines = source.split("\n")
    assert all(lines[(block.line or 0) - 1] == block.text.split("\n")[0] for block in parsed.blocks)
    assert parsed.title == "Guide"


def test_records_are_found_by_their_pointer() -> None:
    data = {
        "version": 3,
        "items": [{"name": "bolt", "size": {"mm": 8}, "tags": ["a", "b"]}, {"name": "nut"}],
    }
    parsed = read(json.dumps(data).encode(), "a.json")
    assert shown(parsed) == [
        (None, "version: 3"),
        ("/items/0", "name: bolt\nsize.mm: 8\ntags: a, b"),
        ("/items/1", "name: nut"),
    ]


def test_lines_of_json_are_records_with_their_lines() -> None:
    parsed = read(b'{"a": "one"}\n\n{"a": null}\n', "a.jsonl")
    assert [(block.line, block.text) for block in parsed.blocks] == [(1, "a: one"), (3, "a: null")]


def test_settings_in_json_stay_code() -> None:
    data = b'{\n  "name": "x",\n  "scripts": {"test": "y"}\n}\n'
    assert [block.text for block in read(data, "package.json").blocks] == [data.decode().strip()]


def test_each_block_holds_text() -> None:
    """A parser never gives an empty block, whatever it reads."""
    empty = odf("<text:p/><table:table/>", "text")
    assert read(empty, "a.odt").blocks == []
    assert isinstance(read(b"{\\rtf1 }", "a.rtf").blocks, list)
    assert all(isinstance(block, Block) for block in read(presentation(), "b.pptx").blocks)


def test_a_long_cell_is_read_to_its_end() -> None:
    def fill(book: Any) -> None:
        book.add_worksheet("Notes").write_row("A1", ["word " * 1000 + "end", 1])

    (block,) = read(workbook(fill), "a.xlsx").blocks
    assert block.text.endswith("end | 1") and block.text.count("word") == 1000


def test_a_head_of_long_cells_is_not_repeated() -> None:
    def fill(book: Any) -> None:
        sheet = book.add_worksheet("Notes")
        sheet.write_row("A1", ["name " * 200, "price " * 200])
        for number in range(1, 40):
            sheet.write_row(number, 0, ["part " * 20, number])

    blocks = read(workbook(fill), "a.xlsx").blocks
    assert len(blocks) > 2 and sum("price" in block.text for block in blocks) == 1


def test_at_the_limit_small_sheets_are_whole_and_the_huge_one_is_read_up_to_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kbproc.engine.sources.parse.sheet.MAX_CELLS", 10)

    def fill(book: Any) -> None:
        huge = book.add_worksheet("Huge")
        for number in range(20):
            huge.write(number, 0, number)
        book.add_worksheet("Small").write("A1", "found")

    lines = "\n".join(map(str, range(9)))
    parsed = read(workbook(fill), "a.xlsx")
    assert shown(parsed) == [("Huge, A1:A9", lines), ("Small, A1", "found")]
    assert parsed.unread == {"cells": 11}


def slide_with(shapes: str) -> bytes:
    """Returns the smallest presentation of one slide."""
    office = "http://schemas.openxmlformats.org"
    spaces = (
        f'xmlns:p="{office}/presentationml/2006/main" xmlns:a="{office}/drawingml/2006/main"'
        f' xmlns:r="{office}/officeDocument/2006/relationships"'
        f' xmlns:mc="{office}/markup-compatibility/2006"'
    )
    relations = f'<Relationships xmlns="{office}/package/2006/relationships">{{}}</Relationships>'
    return archive(
        {
            "ppt/presentation.xml": f'<p:presentation {spaces}><p:sldIdLst><p:sldId id="256"'
            ' r:id="r1"/><p:sldId id="257" r:id="gone"/></p:sldIdLst></p:presentation>',
            "ppt/_rels/presentation.xml.rels": relations.format(
                '<Relationship Id="r1" Type="slide" Target="slides/slide1.xml"/>'
            ),
            "ppt/slides/slide1.xml": f"<p:sld {spaces}><p:cSld><p:spTree>{shapes}</p:spTree>"
            "</p:cSld></p:sld>",
            "ppt/slides/_rels/slide1.xml.rels": relations.format(
                '<Relationship Id="n" Type="notesSlide" Target="../notesSlides/n.xml"/>'
                '<Relationship Id="c" Type="comments" Target="../comments/comment1.xml"/>'
            ),
            "ppt/notesSlides/n.xml": f"<p:notes {spaces}/>",
        }
    )


def shape(text: str, placeholder: str = "") -> str:
    mark = f'<p:nvPr><p:ph type="{placeholder}"/></p:nvPr>' if placeholder else ""
    return f"<p:sp>{mark}<p:txBody><a:p><a:r><a:t>{text}</a:t></a:r></a:p></p:txBody></p:sp>"


def test_no_text_of_a_slide_is_lost_or_read_twice() -> None:
    parsed = read(
        slide_with(
            shape("Plan", "title")
            + shape("Another", "title")
            + shape("Page 1", "sldNum")
            + f"<mc:AlternateContent><mc:Choice>{shape('Once')}</mc:Choice>"
            f"<mc:Fallback>{shape('Once')}</mc:Fallback></mc:AlternateContent>"
        ),
        "a.pptx",
    )
    assert [block.text for block in parsed.blocks] == ["Plan", "Another", "Once"]
    assert parsed.unread == {"damaged_pages": 1, "headers_and_footers": 1, "comments": 1}
    assert parsed.pages == 2


def test_words_in_cells_and_titles_of_opendocument_stay_whole() -> None:
    words = (
        "<text:p>Har<text:span>bour</text:span><office:annotation><text:p>why?</text:p>"
        "</office:annotation></text:p>"
    )
    table = (
        "<table:table><table:table-row><table:table-cell>{}</table:table-cell>"
        "<table:table-cell>{}</table:table-cell></table:table-row></table:table>"
    )
    inner = table.format("<text:p>in</text:p>", "<text:p>ner</text:p>")
    parsed = read(odf(table.format(words, inner), "text"), "a.odt")
    assert [block.text for block in parsed.blocks] == ["Harbour | in ner"]
    assert parsed.unread == {"comments": 1}
    page = (
        f'<draw:page><draw:frame presentation:class="title"><draw:text-box>{words}'
        f"</draw:text-box></draw:frame><presentation:notes>{words}</presentation:notes></draw:page>"
    )
    parsed = read(odf(page, "presentation"), "a.odp")
    assert shown(parsed) == [("Harbour", "Harbour"), ("Harbour", "Notes: Harbour")]


def test_a_table_of_a_book_of_fiction_is_read() -> None:
    table = "<table><tr><td>One</td><th>Two</th></tr></table>"
    text = f"<FictionBook><body><section>{table}</section></body></FictionBook>"
    assert [block.text for block in read(text.encode(), "a.fb2").blocks] == ["One", "Two"]


def test_what_a_notebook_leaves_out_is_counted() -> None:
    outputs = [
        {"output_type": "stream", "text": "x" * 5000},
        {"output_type": "display_data", "data": {"text/html": "<b>only here</b>"}},
    ]
    cells = [{"cell_type": "code", "source": "", "outputs": outputs}]
    parsed = read(json.dumps({"cells": cells}).encode(), "a.ipynb")
    assert parsed.unread == {"long_outputs": 1}


def test_captions_lose_no_line() -> None:
    source = (
        "1\n00:00:01,000 --> 00:00:02,000\nFirst.\n\nStill the first.\n\n"
        "2\n00:00:03,000 --> 00:00:04,000\nSTYLE is all.\n00:00:05,000 --> 00:00:06,000\nThird.\n"
    )
    (block,) = read(source.encode(), "a.srt").blocks
    assert block.text == "First. Still the first.\nSTYLE is all.\nThird."
    parsed = read(
        b"WEBVTT\n\nNOTE a\nremark\n\nSTYLE\n::cue { color: red }\n\nintro\n"
        b"00:01.000 --> 00:02.000\nHi.\n\nNOTE again\n",
        "a.vtt",
    )
    assert [block.text for block in parsed.blocks] == ["Hi."]
    assert parsed.unread == {"comments": 2}


@pytest.mark.parametrize("breaks", ["\n", "\r\n", "\r"])
def test_headings_are_found_whatever_ends_lines(breaks: str) -> None:
    source = "Intro.\n\nGuide\n=====\n\nRun it.\n".replace("\n", breaks)
    sections = [block.section for block in read(source.encode(), "a.rst").blocks]
    assert sections == [None, "Guide", "Guide"]


def test_json_that_is_nested_deeply_is_read_as_code() -> None:
    data = b"[" * 5000 + b"]" * 5000
    assert read(data, "a.json").blocks


def test_a_value_of_json_is_never_lost() -> None:
    data = b'[{"a": {}, "b": [], "c": null, "d": ""}, {"e": [[1], {}]}]'
    first, second = read(data, "a.json").blocks
    assert first.text == "a: {}\nb: []\nc: null\nd:"
    assert second.text == "e[0]: 1\ne[1]: {}"
    assert read(b'"one"\n"two"\n', "a.jsonl").blocks[1].text == "two"
