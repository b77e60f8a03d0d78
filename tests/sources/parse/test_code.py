"""Source code: definitions as sections, in any language."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbproc.engine.sources.parse.blocks import Parsed
from kbproc.engine.sources.parse.formats import parse


def read(source: str, name: str = "a.py") -> Parsed:
    return parse(source.encode(), "code", name)


def sections(source: str, name: str = "a.py") -> list[str | None]:
    paths = [block.section for block in read(source, name).blocks]
    return [s for i, s in enumerate(paths) if not i or paths[i - 1] != s]


PYTHON = '''import os

X = 1

# About Foo.
@decorated
class Foo(Base):
    """Doc."""

    def bar(self) -> int:
        def inner():
            return 1

        return inner()

    async def baz(
        self,
    ) -> None:
        pass


def main():
    pass

main()
'''


def test_python() -> None:
    parsed = read(PYTHON)
    assert parsed.metadata == {"language": "python"}
    assert sections(PYTHON) == [
        None,
        "class Foo",
        "class Foo > def bar",
        "class Foo > def baz",
        "def main",
        None,
    ]
    assert parsed.blocks[2].text.startswith("# About Foo.\n@decorated\nclass Foo")
    assert {block.kind for block in parsed.blocks} == {"code"}


@pytest.mark.parametrize(
    ("name", "source", "expected"),
    [
        (
            "a.rs",
            "use x;\n\n/// Doc\n#[derive(Debug)]\npub struct A {\n    x: i32,\n}\n\n"
            "impl A {\n    pub fn new() -> Self {\n        A { x: 1 }\n    }\n}\n",
            [None, "struct A", "impl A", "impl A > fn new"],
        ),
        (
            "a.go",
            "package main\n\nfunc (s *Server) Run() error {\n\treturn nil\n}\n\nfunc main() {\n}\n",
            ["package main", "func (s *Server) Run", "func main"],
        ),
        (
            "a.c",
            "#include <x.h>\n\nstatic int add(int a, int b)\n{\n    return a + b;\n}\n\n"
            "int main(void) {\n    return add(1, 2);\n}\n",
            [None, "add()", "main()"],
        ),
        (
            "a.ts",
            "export class A extends B {\n  run(): void {\n    go();\n  }\n}\n\n"
            "export async function f() {\n  return 1;\n}\n",
            ["class A", "class A > run()", "function f"],
        ),
        (
            "A.java",
            "public class A {\n    int x;\n\n    public int get() {\n        return x;\n    }\n}\n",
            ["class A", "class A > get()"],
        ),
        (
            "a.rb",
            "module M\n  class A\n    def go?\n      1\n    end\n  end\nend\n",
            [
                "module M",
                "module M > class A",
                "module M > class A > def go?",
            ],
        ),
        ("a.json", '{"class a": 1}', [None]),
    ],
)
def test_languages(name: str, source: str, expected: list[str | None]) -> None:
    assert sections(source, name) == expected


def test_language_by_name_or_first_line() -> None:
    assert read("all:\n\tcc", "Makefile").metadata == {"language": "make"}
    assert read("#!/usr/bin/env python3\n", "tool").metadata == {"language": "python"}
    assert read("#!/bin/bash\n", "tool").metadata == {"language": "shell"}
    assert read("words", "tool").metadata == {}


@pytest.mark.parametrize("line", ["a<b> " * 70, "x " * 190 + "<", "(" * 390, "a*&[ " * 70 + ")"])
def test_no_line_takes_long(line: str) -> None:
    assert len(read(f"{line}\n" * 200, "a.cpp").blocks) == 1


def test_encodings_form_feeds_and_colours() -> None:
    source = "x = 1\n\x0c\ndef größe():\n    pass\n"
    for data in (source.encode(), source.encode("utf-16"), source.encode() + b"# \xff\xfe\x80"):
        blocks = parse(data, "code", "a.py").blocks
        assert [(block.line, block.section) for block in blocks][:2] == [
            (1, None),
            (3, "def größe"),
        ]
    cut = parse(source.encode() + "# ü".encode()[:-1], "code", "a.py")
    assert cut.unread == {"replaced_bytes": 1}
    assert read("\x1b[32mdef\x1b[0m f():\n    pass\n").blocks[0].text == "def f():\n    pass"
    assert sections("int x;\n\n\x0cint main(void) {\n  f();\n}\n", "a.c") == [None, "main()"]


def test_a_minified_line_is_one_block() -> None:
    assert len(read("function a(){}" * 50_000, "a.min.js").blocks) == 1


@given(st.text(st.sampled_from("def class fn(){}[];:\n\t @#/\"'x=*&<>,"), max_size=400))
def test_no_line_is_lost(source: str) -> None:
    blocks = read(source).blocks
    assert "".join("".join(b.text.split()) for b in blocks) == "".join(source.split())
