"""An OpenDocument text has headings as sections, and a presentation has a page for each slide."""

from __future__ import annotations

import io
import zipfile

import pytest

from kbproc.base.errors import KbprocError
from kbproc.engine.sources.parse.blocks import Block, Parsed
from kbproc.engine.sources.parse.odf import parse, parse_slides
from tests.kit.office import archive, odf


def read(body: str) -> Parsed:
    return parse(odf(body, "text"), "a.odt")


def read_slides(body: str) -> Parsed:
    return parse_slides(zipfile.ZipFile(io.BytesIO(odf(body, "presentation"))), "a.odp")


def p(text: str) -> str:
    return f"<text:p>{text}</text:p>"


def cell(text: str, entries: str = "") -> str:
    return f"<table:table-cell {entries}>{text}</table:table-cell>"


def row(*cells: str) -> str:
    return f"<table:table-row>{''.join(cells)}</table:table-row>"


def test_headings_are_sections_and_the_first_is_the_title() -> None:
    parsed = read(
        p("Above.")
        + '<text:h text:outline-level="1">Guide</text:h>'
        + '<text:h text:outline-level="2">Linux</text:h>'
        + f"<text:list><text:list-item>{p('Item')}</text:list-item></text:list>"
        + '<text:h text:outline-level="x">End</text:h>'
    )
    assert parsed.blocks == [
        Block(text="Above."),
        Block(text="Guide", section="Guide"),
        Block(text="Linux", section="Guide > Linux"),
        Block(text="Item", section="Guide > Linux"),
        Block(text="End", section="End"),
    ]
    assert parsed.title == "Guide"


def test_spaces_tabs_breaks_and_notes_of_a_paragraph_are_read() -> None:
    note = f"<text:note><text:note-citation>1</text:note-citation><text:note-body>{p('Stiff.')}"
    parsed = read(
        p(
            f'a<text:s text:c="3"/>b<text:s/>c<text:tab/>d<text:line-break/>e{note}'
            "</text:note-body></text:note>f"
        )
    )
    assert [block.text for block in parsed.blocks] == ["a   b c\td\nef\n[Stiff.]"]


def test_a_table_keeps_its_empty_cells_and_repeats_what_is_repeated() -> None:
    head = f"<table:table-header-rows>{row(cell(p('A')), cell(''), cell(p('B')))}"
    twice, many = (f'table:number-columns-repeated="{times}"' for times in (2, 9))
    parsed = read(
        f"<table:table>{head}</table:table-header-rows>"
        f"{row(cell(p('x'), twice), '<table:covered-table-cell/>', cell(p('y') + p('z')))}"
        f"{row(cell('', many))}"
        "</table:table>"
    )
    assert parsed.blocks == [Block(text="A |  | B\nx | x |  | y z", kind="table")]


def test_a_cell_that_claims_to_be_repeated_a_million_times_is_not() -> None:
    many = 'table:number-columns-repeated="1000000"'
    spaces = '<text:s text:c="1000000"/>'
    parsed = read(f"<table:table>{row(cell(p('x'), many))}</table:table>{p(f'a{spaces}b')}")
    assert [block.text for block in parsed.blocks] == [" | ".join("x" * 100), f"a{' ' * 100}b"]


def test_content_that_is_left_out_is_counted() -> None:
    parsed = read(
        "<text:tracked-changes><text:changed-region/><text:changed-region/></text:tracked-changes>"
        + p("a<office:annotation><text:p>why?</text:p></office:annotation>b")
        + p("<draw:frame><draw:image/><draw:object/></draw:frame>")
        + f"<table:table>{row(cell('<draw:image/>' + p('c')))}</table:table>"
    )
    assert [block.text for block in parsed.blocks] == ["ab", "c"]
    assert parsed.unread == {"deleted_passages": 2, "comments": 1, "pictures": 2, "objects": 1}


def test_properties_are_metadata() -> None:
    data = archive(
        {
            "content.xml": f"<text>{'<p>x</p>'}</text>",
            "meta.xml": "<m><title>Crane manual</title><creator>Bo</creator>"
            "<initial-creator>Ann Lee</initial-creator>"
            "<creation-date>2024-03-05</creation-date></m>",
        }
    )
    parsed = parse(data, "a.odt")
    assert parsed.title == "Crane manual"
    assert parsed.metadata == {"author": "Ann Lee", "date": "2024-03-05"}


def test_slides_have_numbers_titles_and_notes() -> None:
    title = f'<draw:frame presentation:class="title"><draw:text-box>{p("Plan")}</draw:text-box>'
    notes = f"<presentation:notes><draw:image/>{p('Mention')}{p('it.')}</presentation:notes>"
    parsed = read_slides(
        f"<draw:page>{title}</draw:frame>{p('Hire')}{notes}</draw:page>"
        f'<draw:page draw:name="Costs">{p("Rent")}</draw:page><draw:page>{p("End")}</draw:page>'
    )
    assert parsed.blocks == [
        Block(text="Plan", page=1, section="Plan"),
        Block(text="Hire", page=1, section="Plan"),
        Block(text="Notes: Mention it.", page=1, section="Plan"),
        Block(text="Rent", page=2, section="Costs"),
        Block(text="End", page=3, section="Slide 3"),
    ]
    assert (parsed.title, parsed.pages, parsed.unread) == ("Plan", 3, {"pictures": 1})


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "a.odt is damaged: it is not a whole ODT archive"),
        (archive({"x": "y"}), "a.odt is damaged at content.xml: it has no such part."),
        (archive({"content.xml": "<a>"}), "a.odt is damaged at content.xml: "),
    ],
)
def test_a_damaged_text_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(KbprocError) as caught:
        parse(data, "a.odt")
    assert caught.value.type == "operation.failed"
    assert caught.value.message.startswith(message)
