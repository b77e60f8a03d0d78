"""YAML, TOML and XML as records: their paths, their lines, and bombs."""

from __future__ import annotations

import pytest

from kbproc.engine.sources.parse.blocks import Parsed
from kbproc.engine.sources.parse.formats import parse


def read(text: str | bytes, name: str) -> Parsed:
    return parse(text.encode() if isinstance(text, str) else text, "code", name)


def shown(text: str | bytes, name: str) -> list[tuple[int | None, str | None, str]]:
    return [(block.line, block.section, block.text) for block in read(text, name).blocks]


PARTS = """\
# Parts of the crane
parts:
  - name: hook
    mass: 8 kg
  # the long one
  - name: rope
    mass: 2 kg
owner: harbour office
more:
  a: 1
  b: 2
  c: 3
  d/e: 4
  f: |
    long
    text # no comment
"""


def test_records_of_yaml_have_paths_and_lines() -> None:
    assert shown(PARTS, "a.yaml") == [
        (1, "/parts", "# Parts of the crane\nparts:"),
        (3, "/parts/0", "  - name: hook\n    mass: 8 kg"),
        (5, "/parts/1", "  # the long one\n  - name: rope\n    mass: 2 kg"),
        (8, "/owner", "owner: harbour office"),
        (9, "/more", "more:\n" + PARTS.partition("more:\n")[2].rstrip()),
    ]
    assert read(PARTS, "a.yml").metadata == {"language": "yaml"}


def test_each_document_of_a_stream_is_a_record() -> None:
    stream = 'kind: Service\nname: web\n---\nkind: Job\nname: "a/b"\n'
    assert [(line, section) for line, section, _ in shown(stream, "a.yaml")] == [
        (1, "/0"),
        (4, "/1"),
    ]


def test_no_line_of_yaml_or_toml_is_lost() -> None:
    for text, name in ((PARTS, "a.yaml"), (TOML, "a.toml")):
        lines = [line for block in read(text, name).blocks for line in block.text.split("\n")]
        assert [line for line in lines if line] == [line for line in text.split("\n") if line]


@pytest.mark.parametrize(
    "text", ["a: [1, 2", "a: b: c", "plain words", "", "\t- x", "a: 1\nb: 2", "%YAML 3", "&a *a"]
)
def test_yaml_without_records_is_read_as_before(text: str) -> None:
    blocks = read(text, "a.yaml").blocks
    assert "\n".join(block.text for block in blocks) == text.strip("\n")


def test_a_bomb_of_aliases_stays_as_it_is_written() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 60)]
    text = "\n".join(lines)
    blocks = read(text, "a.yaml").blocks
    assert sum(len(block.text) for block in blocks) <= len(text)
    assert blocks[5].section == "/a5"


@pytest.mark.parametrize("text", ["[" * 50_000, "a:\n" * 3, "- " * 20_000 + "x", "{a: " * 20_000])
def test_deep_yaml_is_read_or_left_as_text(text: str) -> None:
    assert read(text, "a.yaml").blocks


TOML = '''\
title = "Crane"  # its name

[owner]
name = "Ann"
note = """
[no table]
"""

[[parts]]
name = "hook"
sizes = [
  [1, 2],
]

[[parts]]
name = "rope"

[parts.maker."A/B"]
town = "Ulm"
'''


def test_tables_of_toml_have_paths_and_lines() -> None:
    assert [(line, section) for line, section, _ in shown(TOML, "a.toml")] == [
        (1, None),
        (3, "/owner"),
        (9, "/parts/0"),
        (15, "/parts/1"),
        (18, "/parts/1/maker/A~1B"),
    ]


XML = """<?xml version="1.0"?><!DOCTYPE c [<!ENTITY e "expanded">]>
<catalog xmlns="urn:x"><title>Parts &amp; more</title><!-- a remark -->
<list owner="Ann"><part id="1"><name>hook</name><mass unit="kg">8</mass></part>
<part id="2"><name>rope &e;</name><text>a <b>long</b> one</text></part></list>
</catalog>"""


def test_records_of_xml_have_paths() -> None:
    parsed = read(XML, "a.xml")
    assert [(block.section, block.text) for block in parsed.blocks] == [
        (None, "title: Parts & more\nlist@owner: Ann"),
        ("/catalog/list/part[1]", "@id: 1\nname: hook\nmass@unit: kg\nmass: 8"),
        (
            "/catalog/list/part[2]",
            "@id: 2\nname: rope\nname: &e;\ntext: a\ntext.b: long\ntext: one",
        ),
    ]
    assert parsed.unread == {"comments": 1}


def test_xml_without_records_is_read_as_it_is_written() -> None:
    prose = "<p>One <b>bold</b> and <b>more</b> words.</p>"
    assert shown(prose, "a.xml") == [(1, None, prose)]
    assert shown("<a><b>", "a.xml") == [(1, None, "<a><b>")]


def test_a_bomb_of_entities_stays_small() -> None:
    entities = "".join(f'<!ENTITY e{i} "{f"&e{i - 1};" * 10}">' for i in range(1, 20))
    text = f'<!DOCTYPE a [<!ENTITY e0 "x">{entities}]><a><b i="1">&e19;</b><b i="2">y</b></a>'
    blocks = read(text, "a.xml").blocks
    assert sum(len(block.text) for block in blocks) < 2 * len(text)


def test_deep_xml_is_bounded() -> None:
    deep = "<a><b i='1'/><b>" + "<c>" * 150 + "deep" + "</c>" * 150 + "</b></a>"
    assert "deep" in read(deep, "a.xml").blocks[-1].text
    assert read("<a>" * 5000 + "</a>" * 5000, "a.xml").blocks
