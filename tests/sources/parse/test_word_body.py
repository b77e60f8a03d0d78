"""The text of a Word document is what Word shows with all changes accepted, and the rest counts."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping

import pytest

from kbproc.engine.sources.parse.ooxml import Archive
from kbproc.engine.sources.parse.word_body import Body, Paragraph
from tests.kit.words import docx, paragraph, part, run


def read(content: str, parts: Mapping[str, str] | None = None) -> tuple[Body, list[Paragraph]]:
    """Returns the reader of a document with this body, and the paragraphs that it reads."""
    opened = zipfile.ZipFile(io.BytesIO(docx(content, parts)))
    archive = Archive(opened, "word/document.xml")
    body = Body(archive)
    return body, body.read(archive.xml(archive.main))


def texts(content: str, parts: Mapping[str, str] | None = None) -> list[str]:
    return [each.text for each in read(content, parts)[1]]


def mark(kind: str, inner: str = "") -> str:
    """Returns the begin, separator or end of a field."""
    return f'<w:r><w:fldChar w:fldCharType="{kind}">{inner}</w:fldChar></w:r>'


def cell(text: str) -> str:
    return f"<w:tc>{paragraph(run(text))}</w:tc>"


def test_a_paragraph_has_its_text_style_and_level() -> None:
    styles = part(
        "styles",
        '<w:style w:styleId="H"><w:name w:val="Heading 2"/></w:style>',
    )
    properties = '<w:pStyle w:val="H"/>'
    body, paragraphs = read(
        paragraph(run("A") + "<w:r><w:tab/><w:br/></w:r>" + run("b"), properties)
        + paragraph(run("plain")),
        {"styles": styles},
    )
    assert paragraphs == [
        Paragraph(text="A\t\nb", style="H", level=2),
        Paragraph(text="plain"),
    ]
    assert +body.unread == {}


def test_insertions_are_read_and_deletions_are_not() -> None:
    deletion = "<w:del><w:r><w:delText>old</w:delText></w:r>" + run("older") + "</w:del>"
    moved = f"<w:moveFrom>{run('from')}</w:moveFrom><w:moveTo>{run('to')}</w:moveTo>"
    assert texts(paragraph(deletion + f"<w:ins>{run('new ')}</w:ins>" + moved)) == ["new to"]


def test_a_deleted_paragraph_mark_joins_two_paragraphs() -> None:
    deleted = "<w:rPr><w:del/></w:rPr>"
    assert texts(paragraph(run("One "), deleted) + paragraph(run("two"))) == ["One two"]
    assert texts(paragraph(run("last"), deleted)) == ["last"]


def test_a_dropped_capital_joins_the_paragraph_below_it() -> None:
    dropped = '<w:framePr w:dropCap="drop"/>'
    framed = '<w:framePr w:dropCap="none"/>'
    assert texts(paragraph(run("T"), dropped) + paragraph(run("he rope"))) == ["The rope"]
    assert texts(paragraph(run("A"), framed) + paragraph(run("rope"))) == ["A", "rope"]


def test_a_table_within_a_cell_is_part_of_its_text() -> None:
    inner = f"<w:tbl><w:tr>{cell('a')}{cell('b')}</w:tr></w:tbl>"
    outer = f"<w:tbl><w:tr><w:tc>{inner}{paragraph(run('c'))}</w:tc>{cell('d')}</w:tr></w:tbl>"
    assert texts(outer) == ["a | b c | d"]


def test_of_a_field_the_result_is_read_but_not_its_code() -> None:
    code = run("code") + "<w:r><w:instrText>PAGE</w:instrText></w:r>"
    field = mark("begin") + code + mark("separate") + run("7")
    assert texts(paragraph(field + mark("end") + run("."))) == ["7."]
    # A field that never begins or ends hides nothing.
    assert texts(paragraph(mark("end") + field + mark("end") + mark("separate"))) == ["7"]
    assert texts(paragraph(field + run("."))) == ["code7."]


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        ("<w:checkBox><w:checked/></w:checkBox>", "☒"),
        ('<w:checkBox><w:default w:val="1"/><w:checked w:val="0"/></w:checkBox>', "☐"),
        ('<w:checkBox><w:default w:val="1"/></w:checkBox>', "☒"),
        (
            '<w:ddList><w:result w:val="1"/><w:listEntry w:val="red"/>'
            '<w:listEntry w:val="blue"/></w:ddList>',
            "blue",
        ),
        ('<w:ddList><w:result w:val="9"/><w:listEntry w:val="red"/></w:ddList>', ""),
        ('<w:ddList><w:result w:val="-1"/><w:listEntry w:val="red"/></w:ddList>', ""),
    ],
)
def test_a_field_of_a_form_shows_its_choice(entry: str, text: str) -> None:
    field = mark("begin", f"<w:ffData>{entry}</w:ffData>") + mark("separate") + mark("end")
    assert texts(paragraph(field)) == [text]


def test_a_table_keeps_its_empty_cells_and_loses_its_deleted_rows() -> None:
    deleted = f"<w:tr><w:trPr><w:del/></w:trPr>{cell('gone')}</w:tr>"
    hidden = f"<w:tr><w:trPr><w:hidden/></w:trPr>{cell('secret')}</w:tr>"
    controlled = f"<w:sdt><w:sdtContent><w:tr>{cell('c')}{cell('d')}</w:tr></w:sdtContent></w:sdt>"
    two = f"<w:tc>{paragraph(run('a'))}{paragraph(run(' b '))}</w:tc>"
    body, paragraphs = read(
        f"<w:tbl><w:tr>{two}{cell('')}{cell('x')}</w:tr>{deleted}{hidden}{controlled}</w:tbl>"
    )
    assert paragraphs == [Paragraph(text="a b |  | x\nc | d", is_table=True)]
    assert +body.unread == {"hidden_passages": 1}


def test_notes_stand_behind_their_paragraph_with_the_numbers_that_word_gives() -> None:
    notes = {
        "footnotes": part(
            "footnotes",
            f'<w:footnote w:id="1" w:type="separator">{paragraph(run("rule"))}</w:footnote>'
            f'<w:footnote w:id="5">{paragraph(run(" Stiff. "))}{paragraph("")}'
            f"{paragraph(run('Oil it.'))}</w:footnote>",
        ),
        "endnotes": part("endnotes", f'<w:endnote w:id="5">{paragraph(run("Late."))}</w:endnote>'),
    }
    references = (
        '<w:r><w:footnoteReference w:id="5"/></w:r><w:r><w:endnoteReference w:id="5"/></w:r>'
        '<w:r><w:footnoteReference w:id="1"/></w:r><w:r><w:footnoteReference w:id="99"/></w:r>'
    )
    assert texts(paragraph(run("Lever") + references) + paragraph(run("next")), notes) == [
        "Lever",
        "[1] Stiff.\nOil it.",
        "[i] Late.",
        "next",
    ]


def test_neighbouring_hidden_runs_are_one_hidden_passage() -> None:
    hidden = "<w:vanish/>"
    body, paragraphs = read(
        paragraph(run("a", hidden) + run("b", hidden) + run("shown") + run("c", hidden))
        + paragraph(run("off", '<w:vanish w:val="0"/>'))
    )
    assert [each.text for each in paragraphs] == ["shown", "off"]
    assert +body.unread == {"hidden_passages": 2}


def test_comments_and_margins_are_counted_where_they_hold_text() -> None:
    body, _ = read(
        paragraph(run("x")),
        {
            "comments": part(
                "comments",
                f"<w:comment>{paragraph(run('why?'))}</w:comment>"
                f"<w:comment>{paragraph(run(' '))}</w:comment>",
            ),
            "header1": part("hdr", paragraph(run("Draft"))),
            "header2": part("hdr", paragraph("")),
            "footer1": part("ftr", paragraph(run("p. 1"))),
        },
    )
    assert +body.unread == {"comments": 1, "headers_and_footers": 2}


@pytest.mark.parametrize(
    ("code", "font", "text"),
    [
        ("F061", "Symbol", "α"),
        ("61", "Symbol", "α"),
        ("F0FC", "Wingdings", "✓"),
        ("F000", "Wingdings 2", "•"),
        ("0041", "Arial", "A"),
        ("zz", "Arial", ""),
        ("D800", "Arial", ""),
        ("7FFFFFFF", "Arial", ""),
    ],
)
def test_a_symbol_becomes_its_character(code: str, font: str, text: str) -> None:
    symbol = f'<w:r><w:sym w:font="{font}" w:char="{code}"/></w:r>'
    assert texts(paragraph(symbol)) == [text]


def test_a_picture_is_counted_and_described_by_its_author() -> None:
    picture = (
        '<w:r><w:drawing><wp:inline><wp:docPr descr="{}"/><a:graphic><a:blip/></a:graphic>'
        "</wp:inline></w:drawing></w:r>"
    )
    words_of_program = "A crane. Description automatically generated with confidence"
    body, paragraphs = read(
        paragraph(picture.format("Crane  in the fog")) + paragraph(picture.format(words_of_program))
    )
    assert [each.text for each in paragraphs] == ["[Crane in the fog]", "[A crane.]"]
    assert +body.unread == {"pictures": 2}


def test_the_distinct_texts_of_a_chart_and_its_description_are_read_and_it_is_an_object() -> None:
    chart = part(
        "chart",
        "<a:t>Loads</a:t><c:strCache><c:v>Rope</c:v><c:v> Hook </c:v><c:v>Rope</c:v></c:strCache>"
        "<c:numCache><c:v>4</c:v></c:numCache>",
    )
    drawing = (
        '<w:r><w:drawing><wp:docPr descr="A chart"/><a:blip/><c:chart r:id="{}"/></w:drawing></w:r>'
    )
    body, paragraphs = read(
        paragraph(drawing.format("chart1")) + paragraph(drawing.format("gone")), {"chart1": chart}
    )
    assert [each.text for each in paragraphs] == ["Loads Rope Hook [A chart]", "[A chart]"]
    assert +body.unread == {"objects": 2}


def test_an_older_picture_is_counted_and_described_too() -> None:
    picture = '<w:r><w:pict><v:shape alt="A hook"><v:imagedata/></v:shape></w:pict></w:r>'
    art = '<w:r><w:pict><v:shape><v:textpath string="Draft"/></v:shape></w:pict></w:r>'
    body, paragraphs = read(paragraph(picture) + paragraph(art))
    assert [each.text for each in paragraphs] == ["[A hook]", "Draft"]
    assert +body.unread == {"pictures": 1}


def test_paragraphs_within_controls_and_alternatives_are_read_and_other_parts_are_objects() -> None:
    both = (
        f"<mc:AlternateContent><mc:Choice/><mc:Fallback>{paragraph(run('b'))}</mc:Fallback>"
        "</mc:AlternateContent>"
    )
    control = f"<w:sdt><w:sdtPr>{paragraph(run('no'))}</w:sdtPr>{paragraph(run('a'))}</w:sdt>"
    deleted = f"<w:del>{paragraph(run('gone'))}</w:del>"
    body, paragraphs = read(
        f'{control}{both}{deleted}<w:altChunk r:id="x"/><m:oMath><m:r><m:t>c</m:t></m:r></m:oMath>'
    )
    assert [each.text for each in paragraphs] == ["a", "b", "c"]
    assert +body.unread == {"objects": 1}


def test_of_two_alternatives_one_is_read_and_a_text_box_follows_its_paragraph() -> None:
    box = f"<w:txbxContent>{paragraph(run('boxed'))}</w:txbxContent>"
    drawing = (
        f"<mc:AlternateContent><mc:Choice><w:drawing>{box}</w:drawing></mc:Choice>"
        f"<mc:Fallback><w:pict>{box}</w:pict></mc:Fallback></mc:AlternateContent>"
    )
    assert texts(paragraph(run("out") + f"<w:r>{drawing}</w:r>")) == ["out", "boxed"]


def test_equations_and_readings_have_their_signs() -> None:
    term = "<m:r><m:t>{}</m:t></m:r>".format
    brackets = (
        '<m:d><m:dPr><m:begChr m:val="["/><m:endChr m:val=""/></m:dPr>' + term("y") + "</m:d>"
    )
    root = (
        f"<m:oMath>{term('x')}<m:sup>{term('2')}</m:sup><m:d>{term('a')}</m:d>{brackets}</m:oMath>"
    )
    ruby = f"<w:ruby><w:rt>{run('kan')}</w:rt><w:rubyBase>{run('漢')}</w:rubyBase></w:ruby>"
    assert texts(paragraph(root)) == ["x^2(a)[y"]
    assert texts(paragraph(f"<w:r>{ruby}</w:r>")) == ["漢(kan)"]
