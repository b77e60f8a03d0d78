"""A Word document's paragraphs become blocks below their headings, with lists and tables."""

from __future__ import annotations

import pytest

from kbproc.base.errors import KbprocError
from kbproc.engine.sources.parse.blocks import Block, Parsed
from kbproc.engine.sources.parse.docx import parse
from tests.kit.office import archive
from tests.kit.words import docx, paragraph, part, run

STYLES = part(
    "styles",
    "".join(
        f'<w:style w:type="paragraph" w:styleId="{id}"><w:name w:val="{name}"/></w:style>'
        for id, name in {
            "H1": "heading 1",
            "H2": "heading 2",
            "T": "Title",
            "B": "List Bullet",
            "L": "List Paragraph",
        }.items()
    ),
)
NUMBERING = part(
    "numbering",
    '<w:abstractNum w:abstractNumId="0"><w:lvl w:ilvl="0"><w:start w:val="1"/>'
    '<w:numFmt w:val="decimal"/><w:lvlText w:val="%1."/></w:lvl></w:abstractNum>'
    '<w:num w:numId="1"><w:abstractNumId w:val="0"/></w:num>',
)
NUMBERED = '<w:numPr><w:ilvl w:val="0"/><w:numId w:val="1"/></w:numPr>'


def styled(text: str, style: str, more: str = "") -> str:
    return paragraph(run(text), f'<w:pStyle w:val="{style}"/>{more}')


def read(*content: str, title: str = "") -> Parsed:
    parts = {"styles": STYLES, "numbering": NUMBERING}
    return parse(docx("".join(content), parts, title=title), "a.docx")


def test_headings_are_sections_and_the_style_title_is_the_title() -> None:
    parsed = read(
        styled("Guide", "H1"),
        styled("Crane manual", "T"),
        paragraph(run(" Words. ")),
        paragraph(run("  ")),
        styled("Linux", "H2"),
        paragraph(run("More.")),
    )
    assert parsed.blocks == [
        Block(text="Guide", section="Guide"),
        Block(text="Crane manual", section="Guide"),
        Block(text=" Words. ", section="Guide"),
        Block(text="Linux", section="Guide > Linux"),
        Block(text="More.", section="Guide > Linux"),
    ]
    assert parsed.title == "Crane manual"


def test_the_title_is_that_of_the_properties_else_the_first_heading() -> None:
    assert read(styled("Guide", "H1"), title="The crane").title == "The crane"
    assert read(styled("Guide", "H1"), styled("Care", "H1"), title="Document1").title == "Guide"
    assert read(paragraph(run("x"))).title is None


def test_items_of_a_list_are_one_block_and_long_ones_are_their_own() -> None:
    long = "x" * 300
    parsed = read(
        styled("one", "B"),
        styled("two", "L", NUMBERED),
        styled(long, "B"),
        styled("three", "B"),
        styled("no item", "L"),
        styled("Numbered", "H1", NUMBERED),
    )
    assert [block.text for block in parsed.blocks] == [
        "- one\n1. two",
        f"- {long}",
        "- three",
        "no item",
        "2. Numbered",
    ]
    assert parsed.blocks[-1].section == "2. Numbered"
    assert parsed.title == "Numbered"


def test_a_table_ends_a_list_and_keeps_its_section() -> None:
    table = f"<w:tbl><w:tr><w:tc>{paragraph(run('a'))}</w:tc><w:tc/></w:tr></w:tbl>"
    assert read(styled("Guide", "H1"), styled("one", "B"), table).blocks == [
        Block(text="Guide", section="Guide"),
        Block(text="- one", section="Guide"),
        Block(text="a | ", section="Guide", kind="table"),
    ]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "a.docx is damaged: it is not a whole DOCX archive"),
        (
            archive({"x": "y"}),
            "a.docx is damaged or no Word document: word/document.xml: there is no such part.",
        ),
        (
            archive({"word/document.xml": part("settings", "")}),
            "a.docx is damaged or no Word document: word/document.xml is no Word document.",
        ),
        (archive({"word/document.xml": "<w"}), "a.docx is damaged or no Word document: "),
    ],
)
def test_a_damaged_document_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(KbprocError) as caught:
        parse(data, "a.docx")
    assert caught.value.type == "operation.failed"
    assert caught.value.message.startswith(message)


@pytest.mark.parametrize(("author", "metadata"), [("Ann", {"author": "Ann"}), ("python-docx", {})])
def test_the_author_is_metadata_unless_it_is_a_program(
    author: str, metadata: dict[str, str]
) -> None:
    core = f'<c xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:creator>{author}</dc:creator></c>'
    body = part("document", f"<w:body>{paragraph(run('x'))}</w:body>")
    data = archive({"word/document.xml": body, "docProps/core.xml": core})
    assert parse(data, "a.docx").metadata == metadata
