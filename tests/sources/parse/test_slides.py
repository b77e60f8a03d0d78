"""Slides have their titles as sections, with tables, notes and what they hold besides text."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from kbproc.base.errors import KbprocError
from kbproc.engine.sources.parse.blocks import Block
from kbproc.engine.sources.parse.slides import parse
from tests.kit.compound import compound
from tests.kit.office import archive, odf, presentation

OFFICE = "http://schemas.openxmlformats.org"
SPACES = (
    f'xmlns:p="{OFFICE}/presentationml/2006/main" xmlns:a="{OFFICE}/drawingml/2006/main"'
    f' xmlns:r="{OFFICE}/officeDocument/2006/relationships"'
)
CHART = f'xmlns:c="{OFFICE}/drawingml/2006/chart" r:id="chart"'
DIAGRAM = f'xmlns:dgm="{OFFICE}/drawingml/2006/diagram" r:dm="data"'


def slide(*shapes: str, entries: str = "") -> str:
    return f"<p:sld {SPACES} {entries}>{''.join(shapes)}</p:sld>"


def shape(text: str, role: str = "") -> str:
    mark = f'<p:ph type="{role}"/>' if role else ""
    return f"<p:sp>{mark}<a:p><a:r><a:t>{text}</a:t></a:r></a:p></p:sp>"


def relations(links: str) -> str:
    return f'<Relationships xmlns="{OFFICE}/package/2006/relationships">{links}</Relationships>'


def deck(
    *slides: str, missing: int = 0, links: str = "", notes: str = "", parts: Mapping[str, str] = {}
) -> bytes:
    """Returns a presentation of these slides, and of some without a part.

    `links`: the relations of the first slide; `notes`, `parts`: parts beside the slides.
    """
    numbers = range(1, len(slides) + missing + 1)
    ids = "".join(f'<p:sldId id="{number}" r:id="r{number}"/>' for number in numbers)
    targets = "".join(
        f'<Relationship Id="r{number}" Type="slide" Target="slides/{number}.xml"/>'
        for number in numbers
    )
    return archive(
        {
            "ppt/presentation.xml": f"<p:p {SPACES}><p:sldIdLst>{ids}</p:sldIdLst></p:p>",
            "ppt/_rels/presentation.xml.rels": relations(targets),
            "ppt/slides/_rels/1.xml.rels": relations(links),
            "ppt/n.xml": notes,
            **parts,
            **{f"ppt/slides/{n}.xml": each for n, each in enumerate(slides, 1)},
        }
    )


def test_slides_have_numbers_titles_tables_groups_and_notes() -> None:
    parsed = parse(presentation(), "a.pptx")
    assert parsed.blocks == [
        Block(text="Quarter plan", page=1, section="Quarter plan"),
        Block(text="Hire two people\nMove the office", page=1, section="Quarter plan"),
        Block(text="Notes: Mention the budget.", page=1, section="Quarter plan"),
        Block(text="Costs", page=2, section="Costs"),
        Block(text="Item | EUR\nRent | 900", page=2, section="Costs", kind="table"),
        Block(text="Within a group", page=2, section="Costs"),
    ]
    assert (parsed.title, parsed.pages) == ("Quarter plan", 2)
    assert parsed.metadata == {"author": "Ann"}


def test_a_slide_without_a_title_has_its_number_and_a_hidden_one_says_so() -> None:
    data = deck(
        slide(shape(" ", "title"), shape("One")),
        slide(shape("Costs", "ctrTitle"), entries='show="0"'),
    )
    assert parse(data, "a.pptx").blocks == [
        Block(text="One", page=1, section="Slide 1"),
        Block(text="Costs", page=2, section="Costs (hidden)"),
    ]


def test_furniture_pictures_and_objects_are_counted() -> None:
    parsed = parse(
        deck(
            slide(
                shape("7", "sldNum"),
                shape("", "dt"),
                shape("Draft", "ftr"),
                shape("Words"),
                "<p:pic><a:blip/></p:pic>",
                f"<p:graphicFrame><p:oleObj><p:pic><a:blip/></p:pic></p:oleObj></p:graphicFrame>"
                f"<p:graphicFrame><c:chart {CHART}/></p:graphicFrame>",
            )
        ),
        "a.pptx",
    )
    assert [block.text for block in parsed.blocks] == ["Words"]
    assert parsed.unread == {"headers_and_footers": 2, "pictures": 1, "objects": 2}


def test_charts_diagrams_and_descriptions_are_read_as_in_a_text_of_word() -> None:
    spaces = SPACES + f' xmlns:c="{OFFICE}/drawingml/2006/chart"'
    line = "<a:p><a:r><a:t>{}</a:t></a:r><a:r><a:t>{}</a:t></a:r></a:p>".format
    frame = "<p:graphicFrame><p:cNvPr descr='{}'/>{}</p:graphicFrame>".format
    data = deck(
        slide(
            shape("Loads", "title"),
            frame("A chart of loads", f"<c:chart {CHART}/>"),
            frame("", f"<dgm:relIds {DIAGRAM}/>"),
            "<p:pic><p:cNvPr descr='The north quay'/><a:blip/></p:pic>",
            "<p:sp><p:cNvPr descr='An arrow to the quay'/></p:sp>",
            "<p:grpSp><p:sp><p:txBody><a:p><a:r><a:t>Within</a:t></a:r></a:p></p:txBody></p:sp>"
            "</p:grpSp>",
        ),
        links='<Relationship Id="chart" Type="x/chart" Target="../chart.xml"/>'
        '<Relationship Id="data" Type="x/diagramData" Target="../data.xml"/>'
        '<Relationship Id="lay" Type="x/slideLayout" Target="../layout.xml"/>',
        parts={
            "ppt/chart.xml": f"<c:chartSpace {spaces}><c:title>{line('Tonnes a', ' day')}</c:title>"
            "<c:tx><c:v>Rope</c:v></c:tx><c:cat><c:strCache><c:pt><c:v>Monday</c:v></c:pt>"
            "</c:strCache></c:cat><c:numCache><c:v>4711</c:v></c:numCache></c:chartSpace>",
            "ppt/_rels/chart.xml.rels": relations(
                '<Relationship Id="u" Type="x/chartUserShapes" Target="user.xml"/>'
            ),
            "ppt/user.xml": f"<x {SPACES}>{line('Record', '!')}</x>",
            "ppt/data.xml": f"<x {SPACES}>{line('Load', ', then lift')}</x>",
            "ppt/layout.xml": f"<x {SPACES}>{shape('Confidential')}{shape('Click', 'title')}</x>",
        },
    )
    parsed = parse(data, "a.pptx")
    assert [block.text for block in parsed.blocks] == [
        "Loads",
        "Tonnes a day\nRope\nMonday\nRecord!\n[A chart of loads]",
        "Load, then lift",
        "[The north quay]",
        "[An arrow to the quay]",
        "Within",
    ]
    assert parsed.unread == {"objects": 2, "pictures": 1, "headers_and_footers": 1}


def test_notes_and_comments_are_those_of_the_relations_of_a_slide() -> None:
    links = (
        '<Relationship Id="n" Type="notesSlide" Target="../n.xml"/>'
        '<Relationship Id="c" Type="comments" Target="../c.xml"/>'
        '<Relationship Id="i" Type="image" Target="../n.xml"/>'
    )
    notes = f"<p:notes {SPACES}>{shape('Say it.', 'body')}{shape('7', 'sldNum')}</p:notes>"
    parsed = parse(deck(slide(shape("Words")), links=links, notes=notes), "a.pptx")
    assert [block.text for block in parsed.blocks] == ["Words", "Notes: Say it."]
    assert parsed.unread == {"comments": 1}


def test_a_break_within_a_paragraph_is_a_space_and_a_blank_one_goes() -> None:
    text = "<p:sp><a:p><a:r><a:t>a</a:t></a:r><a:br/><a:r><a:t>b</a:t></a:r></a:p><a:p/></p:sp>"
    table = (
        "<p:graphicFrame><a:tbl><a:tr><a:tc><a:p><a:r><a:t>x</a:t></a:r></a:p></a:tc><a:tc/>"
        "<a:tc><a:p><a:r><a:t>y</a:t></a:r></a:p></a:tc></a:tr></a:tbl></p:graphicFrame>"
    )
    parsed = parse(deck(slide(text, table)), "a.pptx")
    assert [(block.kind, block.text) for block in parsed.blocks] == [
        ("prose", "a b"),
        ("table", "x |  | y"),
    ]


def test_a_slide_that_is_missing_or_damaged_is_counted_and_loses_no_other() -> None:
    parsed = parse(deck("<p:sld", slide(shape("Here")), missing=1), "a.pptx")
    assert [(block.page, block.text) for block in parsed.blocks] == [(2, "Here")]
    assert parsed.unread == {"damaged_pages": 2}
    assert parsed.pages == 3


def test_slides_of_opendocument_and_of_the_older_format_are_told_apart() -> None:
    page = "<draw:page><text:p>Words</text:p></draw:page>"
    assert parse(odf(page, "presentation"), "a.odp").blocks == [
        Block(text="Words", page=1, section="Slide 1")
    ]
    with pytest.raises(KbprocError) as caught:
        parse(compound({"PowerPoint Document": b""}), "a.ppt")
    assert "PowerPoint 97" in caught.value.message


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"PK", "a.pptx is damaged: it is not a whole PPTX archive"),
        (
            archive({"x": ""}),
            "a.pptx is damaged or no presentation: ppt/presentation.xml: there is no such part.",
        ),
        (archive({"ppt/presentation.xml": "<p"}), "a.pptx is damaged or no presentation: "),
        (compound({"Book": b""}), "a.pptx is encrypted or of an older format"),
    ],
)
def test_a_damaged_presentation_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(KbprocError) as caught:
        parse(data, "a.pptx")
    assert caught.value.type == "operation.failed"
    assert caught.value.message.startswith(message)
