"""Parts of an Office document are found by their links, and elements have short names."""

from __future__ import annotations

import io
import zipfile
from typing import Any

import pytest

from kbproc.engine.sources.parse.ooxml import (
    Archive,
    DamagedPartError,
    PartLink,
    child,
    descendants,
    is_on,
    name_of,
    short,
    value,
)
from kbproc.engine.sources.parse.packed import parsed_xml
from tests.kit.office import archive
from tests.kit.words import OFFICE, STRICT

WORD = f"{OFFICE}/wordprocessingml/2006/main"
LINKS = f"{OFFICE}/package/2006/relationships"


def element(content: str) -> Any:
    return parsed_xml(f'<w:p xmlns:w="{WORD}" xmlns:x="urn:x">{content}</w:p>'.encode())


def links(*relations: str) -> str:
    return f'<Relationships xmlns="{LINKS}">{"".join(relations)}</Relationships>'


def link(id: str, kind: str, target: str, more: str = "") -> str:
    return f'<Relationship Id="{id}" Type="{OFFICE}/{kind}" Target="{target}" {more}/>'


def read(**parts: str) -> Archive:
    """Returns an archive of these parts; "__" stands for a slash and "_xml" for the suffix."""
    names = {name.replace("__", "/").replace("_xml", ".xml"): each for name, each in parts.items()}
    return Archive(zipfile.ZipFile(io.BytesIO(archive(dict(names)))), "word/document.xml")


def test_both_sets_of_namespaces_have_the_same_short_names() -> None:
    assert [short(f"{{{space}}}p") for space in (WORD, STRICT)] == ["w:p", "w:p"]
    assert [short("{urn:x}p"), short("Relationship")] == ["?:p", "Relationship"]
    assert short("{http://purl.org/dc/elements/1.1/}title") == "dc:title"


def test_comments_and_instructions_have_no_name() -> None:
    assert [name_of(each) for each in element("<!-- c --><?i x?><w:r/>")] == ["", "", "w:r"]


def test_a_path_leads_to_the_first_children() -> None:
    root = element('<w:a/><w:a><w:b w:val="2"/></w:a><w:c><w:b x:val="3"/><w:b w:val="4"/></w:c>')
    assert child(root, "w:a", "w:b") is None
    assert value(root, "w:a", "w:b") is None
    assert value(root, "w:c", "w:b") == "3"
    assert value(root, "w:c") is None
    assert child(None, "w:a") is None
    assert [name_of(each) for each in descendants(root, "w:b", "w:p")] == ["w:p", *["w:b"] * 3]


@pytest.mark.parametrize(
    ("switch", "expected"),
    [
        ("<w:vanish/>", True),
        ('<w:vanish w:val="1"/>', True),
        ('<w:vanish w:val=""/>', True),
        ('<w:vanish w:val="0"/>', False),
        ('<w:vanish w:val="false"/>', False),
        ('<w:vanish w:val="off"/>', False),
        ("<w:bold/>", False),
    ],
)
def test_a_switch_is_on_unless_it_says_otherwise(switch: str, expected: bool) -> None:
    assert is_on(element(switch), "w:vanish") == expected


def test_the_main_part_is_that_of_the_relations_else_the_usual_one() -> None:
    named = read(**{"_rels/.rels": links(link("a", "officeDocument", "/x/y.xml"))})
    assert named.main == "x/y.xml"
    assert read(x="y").main == "word/document.xml"
    assert read(**{"_rels/.rels": "<broken"}).main == "word/document.xml"


def test_targets_are_paths_in_the_archive() -> None:
    relations = links(
        link("a", "image", "media/p.png"),
        link("b", "notesSlide", "../notes/n.xml"),
        link("c", "header", "/word/h.xml"),
        link("d", "hyperlink", "http://a.org", 'TargetMode="External"'),
        link("e", "image", ""),
        link("f", "up", "../../../../etc/passwd"),
        f'<Other Id="g" Target="x" xmlns="{LINKS}"/>',
    )
    opened = read(**{"word/_rels/document.xml.rels": relations})
    assert opened.links_by_id("word/document.xml") == {
        "a": PartLink("image", "word/media/p.png"),
        "b": PartLink("notesSlide", "notes/n.xml"),
        "c": PartLink("header", "word/h.xml"),
        "f": PartLink("up", "etc/passwd"),
    }
    assert opened.links("word/other.xml") == []


def test_a_part_that_is_missing_or_damaged_is_an_error_or_none() -> None:
    opened = read(good_xml="<a/>", bad_xml="<a")
    assert opened.xml("good.xml").tag == "a"
    assert opened.optional("good.xml").tag == "a"
    assert [opened.optional(name) for name in ("bad.xml", "gone.xml", None)] == [None] * 3
    with pytest.raises(DamagedPartError, match=r"^gone\.xml: there is no such part$"):
        opened.xml("gone.xml")
    with pytest.raises(DamagedPartError, match=r"^bad\.xml: "):
        opened.xml("bad.xml")


def test_properties_are_those_with_text() -> None:
    core = (
        '<c xmlns:dc="http://purl.org/dc/elements/1.1/" xmlns:x="urn:x"><dc:title>Crane</dc:title>'
        "<dc:creator/><x:date>today</x:date></c>"
    )
    assert read(docProps__core_xml=core).properties() == {"title": "Crane", "date": "today"}
    elsewhere = {"_rels/.rels": links(link("a", "core-properties", "p.xml")), "p.xml": core}
    assert read(**elsewhere).properties()["title"] == "Crane"
    assert read(x="y").properties() == {}
