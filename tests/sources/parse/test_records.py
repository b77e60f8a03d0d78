"""Records of JSON are blocks that are cited by their pointer or their line."""

from __future__ import annotations

import json

import pytest

from kbproc.base.errors import KbprocError
from kbproc.engine.sources.parse import records
from kbproc.engine.sources.parse.blocks import Block
from kbproc.engine.sources.parse.records import parse


def test_records_of_a_list_have_their_pointers() -> None:
    assert parse(b'\xef\xbb\xbf[{"name": "red"}, {"name": "blue"}]', "a.json").blocks == [
        Block(text="name: red", section="/0", kind="code"),
        Block(text="name: blue", section="/1", kind="code"),
    ]


def test_the_longest_list_is_read_as_records_and_the_rest_above_it() -> None:
    data = b'{"note": "n", "few": [{"a": 1}], "a/b~c": [{"x": 1}, {"x": 2}], "mixed": [{}, {}, 1]}'
    assert parse(data, "a.json").blocks == [
        Block(text="note: n\nfew[0].a: 1\nmixed[0]: {}\nmixed[1]: {}\nmixed[2]: 1", kind="code"),
        Block(text="x: 1", section="/a~1b~0c/0", kind="code"),
        Block(text="x: 2", section="/a~1b~0c/1", kind="code"),
    ]


def test_a_record_is_lines_of_paths_and_values() -> None:
    data = (
        b'[{"a": {"b": [1, 2.5, "x"], "c": null}, "d": [{"e": true}, [1]], "f": [], "g": ""}, {}]'
    )
    first, second = parse(data, "a.json").blocks
    assert first.text.split("\n") == [
        "a.b: 1, 2.5, x",
        "a.c: null",
        "d[0].e: true",
        "d[1]: 1",
        "f: []",
        "g: ",
    ]
    assert second.text == "{}"


def test_lines_of_json_have_their_numbers_and_stay_in_order() -> None:
    parsed = parse(b'{"a": 1}\n\n[1, 2]\r\n"word"\n', "a.jsonl")
    assert parsed.blocks == [
        Block(text="a: 1", line=1, kind="code"),
        Block(text="1, 2", line=3, kind="code"),
        Block(text="word", line=4, kind="code"),
    ]
    bad = parse('{"a": "Größe ß '.encode() + b'\xff"}\n{"a": 2}', "a.jsonl")
    assert bad.unread == {"replaced_bytes": 1}


@pytest.mark.parametrize(
    "data",
    [
        b'{"name": "x", "list": [1, 2]}',
        b'{"only": [{"a": 1}]}',
        b'{"a": 1}\n{"b": \n',
        b"[" * 5000 + b"]" * 5000,
        b"no json",
        b"7",
    ],
)
def test_a_file_without_records_is_read_as_code_with_its_lines(data: bytes) -> None:
    blocks = parse(data, "a.json").blocks
    assert "\n".join(block.text for block in blocks).strip() == data.decode().strip()
    assert (blocks[0].line, blocks[0].section) == (1, None)


def test_json_on_one_line_or_with_escapes_is_cut_by_its_paths() -> None:
    operation = {"summary": "Z\u00fcrich", "tags": ["a", "b"], **{f"x{n}": n for n in range(12)}}
    api = {"openapi": "3", "paths": {"/pets": {"get": operation, "put": {"summary": "one\ntwo"}}}}
    text = json.dumps(api)
    assert "\\u00fc" in text
    for layout in (text, json.dumps(api, indent=2)):
        parsed = parse(layout.encode(), "a.json")
        assert [(block.section, block.text.split("\n")[0]) for block in parsed.blocks] == [
            (None, "openapi: 3"),
            ("/paths/~1pets/get", "summary: Zürich"),
            ("/paths/~1pets", "put.summary: one"),
        ]
        assert parsed.metadata == {"language": "json"}
    assert parse(b'"gr\\u00fcn"', "a.json").blocks == [Block(text="grün", kind="code")]
    long_text = "x" * 600
    [block] = parse(json.dumps([long_text]).encode(), "a.json").blocks
    assert block.text == long_text


def test_json_in_lines_keeps_them_and_has_its_paths() -> None:
    scripts = {f"s{n}": f"run {n}" for n in range(14)}
    lines = json.dumps({"name": "a", "scripts": scripts}, indent=2).split("\n")
    blocks = parse("\n".join(lines).encode(), "a.json").blocks
    assert "\n".join(block.text for block in blocks) == "\n".join(lines)
    assert [(block.section, block.line) for block in blocks if "run 7" in block.text] == [
        ("/scripts/s7", 11)
    ]


def test_a_larger_file_is_read_by_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    data = b'[{"a": 1}, {"a": 2}]'
    monkeypatch.setattr(records, "MAX_BYTES", len(data))
    assert len(parse(data, "a.json").blocks) == 2
    monkeypatch.setattr(records, "MAX_BYTES", len(data) - 1)
    assert [block.text for block in parse(data, "a.json").blocks] == [data.decode()]


def test_bytes_that_are_no_text_are_refused() -> None:
    with pytest.raises(KbprocError) as caught:
        parse(bytes(range(16)) * 40, "a.json")
    assert caught.value.type == "input.unsupported_type"
    assert parse(b"", "a.json").blocks == []
