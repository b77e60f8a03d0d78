"""Markdown: front matter, sections, what stays as written."""

from __future__ import annotations

import pytest

from kbproc.sources.parse.blocks import Block, Parsed
from kbproc.sources.parse.formats import parse


def read(text: str) -> Parsed:
    return parse(text.encode(), "markdown", "a.md")


def test_headings_become_sections_and_the_only_h1_the_title() -> None:
    parsed = read(
        "# Guide\n\nIntro.\n\n## Install `it`\n\nFirst.\n\n### Linux\n\nThen.\n\nUse\n---\nEnd."
    )
    assert parsed.title == "Guide"
    assert [(block.section, block.text) for block in parsed.blocks] == [
        (None, "# Guide"),
        (None, "Intro."),
        ("Install it", "## Install `it`"),
        ("Install it", "First."),
        ("Install it > Linux", "### Linux"),
        ("Install it > Linux", "Then."),
        ("Use", "## Use"),
        ("Use", "End."),
    ]


def test_several_h1_are_sections_each() -> None:
    parsed = read("# One\n\na\n\n# Two\n\nb")
    assert parsed.title == "One"
    assert [block.section for block in parsed.blocks] == ["One", "One", "Two", "Two"]


def test_code_tables_lists_and_quotes() -> None:
    parsed = read(
        "- a\n- b\n  - c\n\n```python\nx = 1\n\ny = 2\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n"
        "> quote\n\n---\n\n    indented\n"
    )
    assert parsed.blocks == [
        Block(text="- a\n- b\n  - c", line=1),
        Block(text="x = 1\n\ny = 2", kind="code", line=6),
        Block(text="| a | b |\n|---|---|\n| 1 | 2 |", kind="table", line=11),
        Block(text="> quote", line=15),
        Block(text="indented", kind="code", line=19),
    ]


def test_html_is_shown_without_its_tags() -> None:
    parsed = read("<!-- hidden -->\n\n<div align=center>\nShown &amp; kept\n</div>\n")
    assert [block.text for block in parsed.blocks] == ["Shown & kept"]


def test_front_matter() -> None:
    parsed = read(
        "---\ntitle: The title\ntags: [Git, admin, 3]\nauthor: Ann\ndate: 2024-05-06\nn: 4\n"
        "draft: true\nnested: {a: 1}\n---\n# Heading\n\nText."
    )
    assert parsed.title == "The title"
    assert parsed.tags == ["Git", "admin", "3"]
    assert parsed.metadata == {"author": "Ann", "date": "2024-05-06", "n": 4, "draft": True}
    assert [block.text for block in parsed.blocks] == ["# Heading", "Text."]


def test_front_matter_in_toml() -> None:
    parsed = read('+++\ntitle = "T"\ntags = ["a"]\nweight = 2\n+++\nText.')
    assert (parsed.title, parsed.tags, parsed.metadata) == ("T", ["a"], {"weight": 2})


def test_tags_in_one_string() -> None:
    assert read("---\ntags: git, '#admin'; two words\n---\n").tags == [
        "git",
        "'#admin'",
        "two words",
    ]


@pytest.mark.parametrize(
    "header",
    ["---\na: [1\n---\n", "---\njust words\n---\n", "---\n!!python/object:os.system x\n---\n"],
)
def test_a_header_that_is_none_is_text(header: str) -> None:
    parsed = read(header + "\nText.")
    assert parsed.metadata == {}
    assert parsed.blocks[-1].text == "Text."


def test_many_aliases_in_a_header_are_not_expanded() -> None:
    lines = ["a0: &a0 [x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 40)]
    header = "\n".join(lines)
    assert read(f"---\n{header}\n---\nText.").blocks == [Block(text="Text.", line=43)]


def test_deep_nesting_is_no_danger() -> None:
    assert read(">" * 5000 + " deep").blocks
    assert read("[" * 5000 + "](x)").blocks
