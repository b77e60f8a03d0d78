"""Source code is cut where its definitions begin, and each block names those around it."""

from __future__ import annotations

import pytest

from kbproc.base.errors import KbprocError
from kbproc.engine.sources.parse.blocks import Block
from kbproc.engine.sources.parse.code import parse


def code(text: str, line: int, section: str | None = None) -> Block:
    return Block(text=text, section=section, kind="code", line=line)


def sections(source: str, name: str) -> list[str | None]:
    return [block.section for block in parse(source.encode(), name).blocks]


def test_definitions_are_sections_and_what_leads_to_one_belongs_to_it() -> None:
    source = """import os

# A crane.
@machine
class Crane:
    rope = 1

    def lift(self):
        def inner():
            pass

print(1)
"""
    parsed = parse(source.encode(), "a.py")
    assert parsed.blocks == [
        code("import os", 1),
        code("# A crane.\n@machine\nclass Crane:\n    rope = 1", 3, "class Crane"),
        code(
            "    def lift(self):\n        def inner():\n            pass",
            8,
            "class Crane > def lift",
        ),
        code("print(1)", 12),
    ]
    assert parsed.metadata == {"language": "python"}


@pytest.mark.parametrize(
    ("name", "source", "section"),
    [
        ("a.go", "func (c *Crane) Lift() {\n\treturn\n}", "func (c *Crane) Lift"),
        ("a.rs", "pub(crate) async fn lift<T>() {}", "fn lift"),
        ("a.rb", "def lift?\n  1\nend", "def lift?"),
        ("a.ts", "export default class Crane<T> {\n}", "class Crane"),
        ("a.c", "static int lift(struct crane *c)\n{\n}", "lift()"),
        ("a.cpp", "std::vector<std::pair<int, int>> Crane::loads(int a,", "Crane::loads()"),
        ("a.ex", "defmodule Crane.Hook do\nend", "defmodule Crane.Hook"),
        ("a.js", "return function lift() {}", None),
        ("a.c", "lift(1);", None),
        ("a.py", "def " + "x" * 400 + "():", None),
    ],
)
def test_a_definition_is_known_by_its_keyword_or_its_shape(
    name: str, source: str, section: str | None
) -> None:
    assert set(sections(source, name)) == {section}


def test_data_has_no_definitions() -> None:
    assert sections("class A\n  def b\n", "a.yaml") == [None]
    assert sections("class A\n  def b\n", "a.rb") == ["class A", "class A > def b"]


@pytest.mark.parametrize(
    ("name", "first", "language"),
    [
        ("Dockerfile", "FROM x", "dockerfile"),
        ("A.PY", "x", "python"),
        ("run", "#!/usr/bin/env python3.11", "python"),
        ("run", "#!/bin/sh -e", "shell"),
        ("run", "#!/usr/bin/node", "javascript"),
        ("run", "# python", None),
        ("a.unknown", "x", None),
    ],
)
def test_the_language_is_that_of_the_name_or_of_the_first_line(
    name: str, first: str, language: str | None
) -> None:
    assert parse(first.encode(), name).metadata.get("language") == language


def test_codes_of_a_terminal_are_taken_out() -> None:
    parsed = parse(b"\x1b]0;Window title\x07\x1b[31mred\x1b[0m N\bN_\ba\n", "a.sh")
    assert parsed.blocks == [code("red Na", 1)]
    assert parsed.unread == {"replaced_bytes": 0, "terminal_codes": 1}


def test_bytes_that_are_no_text_are_refused_and_a_bad_one_is_counted() -> None:
    with pytest.raises(KbprocError) as caught:
        parse(bytes(range(16)) * 40, "a.py")
    assert caught.value.type == "input.unsupported_type"
    parsed = parse("größe = 1  # ß ".encode() + b"\xff", "a.py")
    assert parsed.blocks == [code("größe = 1  # ß \ufffd", 1)]
    assert parsed.unread["replaced_bytes"] == 1
    assert parse(b"", "a.py").blocks == []
