"""YAML, TOML and XML are cut at their records, whose paths are the sections of the blocks."""

from __future__ import annotations

import pytest

from kbproc.base.errors import KbprocError
from kbproc.engine.sources.parse.blocks import Block
from kbproc.engine.sources.parse.trees import local_name, parse


def test_a_list_of_yaml_is_cut_at_its_records_with_the_comments_above_them() -> None:
    data = b"# Cranes.\n\n# The first.\n- name: red\n  load: 4\n- name: blue\n  hook: *steel\n"
    data = data.replace(b"4", b"&steel 4")
    parsed = parse(data, "a.yaml")
    assert parsed.blocks == [
        Block(text="# Cranes.\n", kind="code", line=1),
        Block(
            text="# The first.\n- name: red\n  load: &steel 4", section="/0", kind="code", line=3
        ),
        Block(text="- name: blue\n  hook: *steel\n", section="/1", kind="code", line=6),
    ]
    assert parsed.metadata == {"language": "yaml"}


def test_a_long_mapping_of_yaml_is_cut_at_its_keys_and_a_short_one_is_not() -> None:
    inner = "".join(f"  key{number}: {number}\n" for number in range(12))
    parsed = parse(f"a/b~c:\n{inner}last: 1\n".encode(), "a.yml")
    assert [(block.section, block.line) for block in parsed.blocks] == [
        ("/a~1b~0c", 1),
        ("/last", 14),
    ]
    [block] = parse(b"a:\n  b: 1\n  c: 2\n", "a.yml").blocks
    assert (block.section, block.kind) == (None, "code")


def test_each_document_of_a_yaml_stream_has_its_number() -> None:
    parsed = parse(b"a: 1\n---\n- x: 1\n- x: 2\n", "a.yaml")
    assert [(block.section, block.text) for block in parsed.blocks] == [
        ("/0", "a: 1\n---"),
        ("/1/0", "- x: 1"),
        ("/1/1", "- x: 2\n"),
    ]


def test_tables_of_toml_are_records_with_their_numbers() -> None:
    data = b'''top = [1,
[2]]
[a."b.c"]  # one
x = """
[no.table]
"""
[[cranes]]
n = 1
[[cranes]]
n = 2
[cranes.hook]
steel = true
'''
    parsed = parse(data, "a.toml")
    assert [(block.section, block.line) for block in parsed.blocks] == [
        (None, 1),
        ("/a/b.c", 3),
        ("/cranes/0", 7),
        ("/cranes/1", 9),
        ("/cranes/1/hook", 11),
    ]
    assert parsed.blocks[1].text == '[a."b.c"]  # one\nx = """\n[no.table]\n"""'
    assert parsed.metadata == {"language": "toml"}


def test_equal_elements_of_xml_are_records_and_the_rest_stands_above_them() -> None:
    data = (
        b'<c:list xmlns:c="urn:c" owner="Ann"><title>Cranes</title><!-- two -->'
        b'<crane c:id="1"><load> 4\n t </load>beside</crane><crane><!-- old --><hook/>steel</crane>'
        b"</c:list>"
    )
    parsed = parse(data, "a.xml")
    assert parsed.blocks == [
        Block(text="@owner: Ann\ntitle: Cranes", kind="code"),
        Block(text="@id: 1\nload: 4 t\nbeside", section="/list/crane[1]", kind="code"),
        Block(text="steel", section="/list/crane[2]", kind="code"),
    ]
    assert parsed.metadata == {"language": "xml"}
    assert parsed.unread == {"comments": 2}


def test_the_records_of_xml_are_the_longest_row_and_inner_elements_have_paths() -> None:
    few = "<few><a id='1'/><a id='2'/></few>"
    many = "<many><b><c><d>x</d></c></b><b id='2'/><b id='3'/></many>"
    for data in (few + many, many + few):
        parsed = parse(f"<l>{data}</l>".encode(), "a.xml")
        assert [(block.section, block.text) for block in parsed.blocks] == [
            (None, "few.a@id: 1\nfew.a@id: 2"),
            ("/l/many/b[1]", "c.d: x"),
            ("/l/many/b[2]", "@id: 2"),
            ("/l/many/b[3]", "@id: 3"),
        ]


def test_an_entity_of_xml_is_never_resolved() -> None:
    data = (
        b'<!DOCTYPE l [<!ENTITY secret SYSTEM "file:///etc/passwd">]>'
        b'<l><e id="1">&secret;</e><e id="2">x</e></l>'
    )
    first, second = parse(data, "a.xml").blocks
    assert first.text == "@id: 1\n&secret;"
    assert second.text == "@id: 2\nx"


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a.yaml", b"a: [1\nb: 2\n"),
        ("a.yaml", b"[" * 3000),
        ("a.toml", b"[a\nx = 1\n"),
        ("a.xml", b"<l><e>"),
        ("a.xml", b"<p>Prose <b>x</b> and <b>y</b>.</p>"),
        ("a.yaml", b"word\n"),
    ],
)
def test_a_file_that_is_damaged_or_has_no_records_is_read_as_code(name: str, data: bytes) -> None:
    parsed = parse(data, name)
    assert "\n".join(block.text for block in parsed.blocks).strip() == data.decode().strip()
    assert {block.section for block in parsed.blocks} == {None}
    assert parsed.blocks[0].line == 1


def test_binary_data_is_refused_and_a_bad_byte_is_counted() -> None:
    with pytest.raises(KbprocError) as caught:
        parse(bytes(range(16)) * 40, "a.yaml")
    assert caught.value.type == "input.unsupported_type"
    assert caught.value.message == "a.yaml is not text: it holds binary data."
    parsed = parse("- a: 1\n- b: Größe ".encode() + b"\xff\n", "a.yaml")
    assert parsed.unread["replaced_bytes"] == 1


def test_the_name_of_an_attribute_has_no_namespace() -> None:
    assert [local_name("{urn:c}id"), local_name("id")] == ["id", "id"]
