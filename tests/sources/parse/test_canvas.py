"""Cards of a canvas are Markdown, and groups, files and lines between cards have names."""

from __future__ import annotations

import json

from kbproc.engine.sources.parse.formats import detect, parse


def test_a_canvas_is_read_as_its_cards() -> None:
    nodes = [
        {"id": "1", "type": "text", "text": "# Plan\n\nMoor [[Quay|the ship]]. #soon", "x": 0},
        {"id": "2", "type": "file", "file": "notes/Tides.md"},
        {"id": "3", "type": "link", "url": "https://port.example"},
        {"id": "4", "type": "group", "label": "Harbour works"},
        {"id": "5", "type": "text", "text": ""},
    ]
    edges = [{"id": "e", "fromNode": "1", "toNode": "2", "label": "depends on"}, {"id": "f"}]
    data = json.dumps({"nodes": nodes, "edges": edges}).encode()
    type = detect("a.canvas", data)
    assert type is not None
    parsed = parse(data, type, "a.canvas")
    assert [(block.section, block.text) for block in parsed.blocks] == [
        ("card 1", "# Plan"),
        ("card 1", "Moor the ship [[Quay]]. #soon"),
        ("card 2", "notes/Tides.md"),
        ("card 3", "https://port.example"),
        ("card 4", "Harbour works"),
        ("lines between cards", "depends on"),
    ]
    assert parsed.tags == ["soon"]
    for other in (b'{"nodes": 5}', b"[]", b'"words"', b"no json"):
        assert parse(other, type, "a.canvas").blocks
