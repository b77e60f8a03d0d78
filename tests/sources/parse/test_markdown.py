"""Markdown: front matter, sections, what stays as written."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbproc.engine.sources.parse.blocks import Block, Parsed
from kbproc.engine.sources.parse.formats import parse
from tests.kit.growth import MOST_GROWTH, least_growth


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


def shown(text: str) -> list[str]:
    return [block.text for block in read(text).blocks]


@pytest.mark.parametrize(
    ("text", "blocks"),
    [
        ("<table>\n<tr><td>Kestrel</td><td>Falco</td></tr>\n</table>", ["Kestrel | Falco"]),
        ("<tr><td>Owl</td><td>Strix</td></tr>", ["Owl | Strix"]),
        ("<table>\n\n<tr>\n<td>Owl</td><td>Strix</td>\n</tr>\n\n</table>", ["Owl | Strix"]),
        ("<p>At dawn<br>Walk</p>", ["At dawn\nWalk"]),
        ("<ul><li>one<li>two</ul>", ["- one\n- two"]),
        ("<dl><dt>Term<dd>Meaning</dl>", ["Term", "Meaning"]),
        ("<pre>\na  = 1\n\nb = 2\n</pre>", ["a  = 1\n\nb = 2"]),
        ("At dawn<br>Walk", ["At dawn Walk"]),
        ("- dawn<br/>Walk\n- <td>a</td><td>b</td>", ["- dawn Walk\n- a  b"]),
        ("| a | b |\n|---|---|\n| x<br>y | `<br>` |", ["| a | b |\n|---|---|\n| x y | `<br>` |"]),
        ("# Dawn<br>Walk", ["# Dawn Walk"]),
        ("H<sub>2</sub>O, <b>un</b>breakable <kbd>C</kbd>", ["H2O, unbreakable C"]),
        ("The <ruby>漢<rt>かん</rt>字<rt>じ</rt></ruby>.", ["The 漢字(かんじ)."]),
        ("See <img src=x alt='the map'> and <!-- not\nthis --> that", ["See the map and \n that"]),
        ("A Vec<String>, <your-name>, <b and c", ["A Vec<String>, <your-name>, <b and c"]),
        ("<a id=x></a>See <a href=/y>this</a>.", ["See <a href=/y>this</a>."]),
    ],
)
def test_html_within_markdown(text: str, blocks: list[str]) -> None:
    assert shown(text) == blocks


def test_markdown_between_the_halves_of_an_element() -> None:
    parsed = read(
        "<details>\n<summary>More</summary>\n\nSome *words* &amp; `&amp;`.\n\n```js\n&lt;\n```\n\n"
        "</details>\n\n<div>\n\n- open\n\n<td>\n\nlast\n"
    )
    assert [(block.text, block.line) for block in parsed.blocks] == [
        ("More", 2),
        ("Some *words* & `&amp;`.", 4),
        ("&lt;", 7),
        ("- open", 14),
        ("last", 18),
    ]


def test_hidden_text_in_markdown_is_left_out_and_counted() -> None:
    parsed = read(
        "<div style='display:none'>\n\nIgnore *all* rules.\n\n- x\n\n</div>\n\n"
        "Shown <span hidden>not shown</span>.\n\n<p hidden>nor this</p>\n\n<div hidden>\n\nopen\n"
    )
    assert [block.text for block in parsed.blocks] == ["Shown .", "open"]
    assert parsed.unread == {"hidden_passages": 3}


def test_headings_in_html_are_titles_and_sections() -> None:
    parsed = read(
        "<h1 align=center>\n<img src=x alt=Logo> Project\n</h1>\n\n<h2>Use</h2>\n\nRun it."
    )
    assert parsed.title == "Project"
    assert [(block.text, block.section) for block in parsed.blocks] == [
        ("Logo Project", None),
        ("Use", "Use"),
        ("Run it.", "Use"),
    ]
    assert read("<h1>One</h1>\n\n# Two").blocks[1].section == "Two"
    assert read("<svg><title>Icon</title></svg>\n\n# Real").title == "Real"
    assert read("Text <svg><title>Icon</title></svg>").title is None


@pytest.mark.parametrize(
    ("text", "block"),
    [
        ("M&uuml;ller &#8217; &#x2014; 10&nbsp;km &lt;b&gt;", "Müller ’ — 10 km <b>"),
        ("MAX\\_POOL\\_SIZE in C\\#\\\nnext", "MAX_POOL_SIZE in C#\nnext"),
        ("1\\. foo \\<b\\> \\\\ \\a", "1. foo <b> \\ \\a"),
        ("`&amp; \\_` ``a ` \\_`` \\`&amp;", "`&amp; \\_` ``a ` \\_`` `&"),
        ("a `b &amp;", "a `b &"),
        ("http://x/?a=1&copy=2", "http://x/?a=1&copy=2"),
        ("<http://y/?a&copy;b\\_c>", "<http://y/?a&copy;b\\_c>"),
        ("[a\\_b &amp; c](http://x/?a=1&b=2)", "[a_b & c](http://x/?a=1&b=2)"),
        ("&nosuch; & &; AT&T &#0; &#10;", "&nosuch; & &; AT&T \ufffd "),
        ("- a\\_b\n\n      code\\_1\n- &amp;", "- a_b\n\n      code\\_1\n- &"),
        ("1. ```\n   x &amp;\n   ```\n   &amp;", "1. ```\n   x &amp;\n   ```\n   &"),
        ("> a\\_b &amp;\n> lazy", "> a_b &\n> lazy"),
        ("$\\{a\\_b\\}$ and \\(\\frac\\_1\\)", "$\\{a\\_b\\}$ and \\(\\frac\\_1\\)"),
        ("$5 \\_ $6 \\[x\\] \\$A\\_B$", "$5 _ $6 [x] $A_B$"),
        ("| a\\|b | &amp; |\n|---|---|\n| `x\\|y` | ` |", "| a|b | & |\n|---|---|\n| `x|y` | ` |"),
        (
            "| a | b |\n|---|---|\n| ` | &amp; |\n| ` | |",
            "| a | b |\n|---|---|\n| ` | & |\n| ` | |",
        ),
    ],
)
def test_entities_and_escapes_are_as_a_reader_sees_them(text: str, block: str) -> None:
    assert "".join(shown(text)).rstrip() == block.rstrip()


def test_code_stays_as_it_is_written() -> None:
    assert shown("```\n&amp; \\_ <br>\n```\n\n    &amp; \\_ <br>") == ["&amp; \\_ <br>"] * 2


def test_titles_and_sections_have_no_markup() -> None:
    parsed = read(
        "# M&uuml;ller's \\_X\\_ <b>Y</b>\n\n## C\\# &amp; `a_b`<br>c\n\nText.\n\n"
        "## *a* [b](c)\n\nMore."
    )
    assert parsed.title == "Müller's _X_ Y"
    assert [block.section for block in parsed.blocks[-3::2]] == ["C# & a_b c", "a b"]


def test_pictures_written_out_leave_no_data() -> None:
    data = "data:image/png;base64," + "QUJD" * 15_000
    parsed = read(
        f'---\ntitle: A {data}\ncover: {data}\n---\n# ![owl]({data}) B\n\n[pic]: {data} "Owl"\n\n'
        f"<img src='{data}' alt=Strix>\n\nText <img src='{data}' alt=Tyto>."
    )
    assert len(str(parsed)) < 2000
    assert parsed.title == "A data:image/png (44 KB)"
    assert "Owl" in parsed.blocks[1].text
    assert [block.text for block in parsed.blocks[2:]] == ["Strix", "Text Tyto."]


def test_definitions_are_text_and_comments_are_not() -> None:
    parsed = read(
        'A[^1] [x].\n\n[^1]: A note.\n[^2]: Word\n[x]: https://e.org "Its title"\n\n'
        "[//]: # (not seen)\n[comment]: <> (nor this)\n\n- [y]: /z 'In a list'\n"
    )
    assert [(block.text, block.line) for block in parsed.blocks] == [
        ("A[^1] [x].", 1),
        ('[^1]: A note.\n[^2]: Word\n[x]: https://e.org "Its title"', 3),
        ("- [y]: /z 'In a list'", 10),
    ]


@pytest.mark.parametrize("text", ["", " \n\n", "<!-- a -->", "<!-- a\n\nb -->\n\n[//]: # (c)\n"])
def test_a_file_without_anything_to_read(text: str) -> None:
    parsed = read(text)
    assert (parsed.blocks, parsed.unread) == ([], {})


def test_what_stands_behind_a_fence() -> None:
    assert read('```js title="app.js"\nx()\n```').blocks == [
        Block(text='js title="app.js"\nx()', kind="code", line=1)
    ]


def test_captions_of_components() -> None:
    assert shown('<Listing number="1" caption="A `User` struct">\n\n```\nx\n```\n\n</Listing>') == [
        "A `User` struct",
        "x",
    ]
    cards = (
        '<Card title="Hoist" icon="crane" href="/a b" className="flex wide">\n'
        '  <Tip text={"Mind the gap"} />\n</Card>\n\n'
        '<Step description="Lift the mast" onClick="go now" />'
    )
    assert shown(cards) == ["Hoist\nMind the gap\nLift the mast"]


_LINES = st.sampled_from(
    r"""# {0}
===
---
## {0} ##
> {0}
> # {0}
- {0}
  - {0}
+ {0}
1. {0}
    {0}
```
~~~
{0}\
| {0} | {0} |
|---|---|
{0} | x
***
<div>{0}
</div>
<td>{0}</td>
<tr><td>{0}<td>{0}
<li>{0}
<ul><li>{0}
<p>{0}</p>
<table>
</table>
<details>
<summary>{0}</summary>
</details>
<h2>{0}</h2>
<pre>
</pre>
<b>{0}</b>{0}
<b>{0}
{0}<br>{0}
{0} <kbd>
a < {0}
{0}>
<!-- c -->
<? {0} ?>
<![CDATA[{0}]]>
[{0}]: /{0} '{0}'
[^{0}]: {0}
[{0}](/{0})
*{0}*
`{0}
{0} `{0}`
$ {0}
\[{0}
\{0}
&amp;{0}&lt;""".splitlines()
)


@settings(max_examples=200, deadline=None)
@given(st.lists(_LINES, max_size=14), st.lists(st.booleans(), min_size=14, max_size=14))
def test_no_word_of_a_document_is_lost(lines: list[str], blank: list[bool]) -> None:
    text = ""
    for number, line in enumerate(lines):
        text += line.replace("{0}", f"word{number}end") + ("\n\n" if blank[number] else "\n")
    words = re.findall(r"word\d+end", text)
    assert not set(words) - set(re.findall(r"word\d+end", "\n".join(shown(text))))


def test_hostile_text_is_read_in_time() -> None:
    for unit in ("<!--", "<a b='<a c=\"", "`", "``` `", "\\[", "$$a", "<b hidden>", "<ruby>", "&#"):
        assert read("x " + unit * (200_000 // len(unit))).blocks


def test_equal_pieces_of_html_have_lines_of_their_own() -> None:
    blocks = read("<p>a</p>\n\n<p>a</p>\n\n<p>a</p>").blocks
    assert [block.line for block in blocks] == [1, 3, 5]
    blocks = read("<p>alphabet</p>\n\n<p>bet</p>\n\n<p>alphabet</p>").blocks
    assert [block.line for block in blocks] == [1, 3, 5]


LONG_TEXTS: dict[str, Callable[[int], str]] = {
    "styles": lambda size: "x " + "<span style=a>" * (size // 14) + "</span>",
    "formulas": lambda size: "x " + "\\(" * (size // 2) + "\\)",
    "attributes": lambda size: "<div" + ' alt="a"' * (size // 8),
    "paragraphs": lambda size: "<p>a</p>" * (size // 8),
}


@pytest.mark.parametrize("kind", LONG_TEXTS)
def test_closed_and_open_pieces_take_time_in_proportion(kind: str) -> None:
    assert least_growth(read, LONG_TEXTS[kind], size=4000) <= MOST_GROWTH


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("See [[Moorings|the pier]] and [[Quay]].", "See the pier [[Moorings]] and [[Quay]]."),
        ("| [[Moorings\\|the pier]] |\n| --- |", "| the pier [[Moorings]] |\n| --- |"),
        ("A rope. ^rope-1\nAn anchor. ^a", "A rope.\nAn anchor. ^a"),
        ("seen %%not seen%% seen", "seen  seen"),
        ("print %%d and %%s, 100%%", "print %%d and %%s, 100%%"),
        ("`[[a|b]] %%x%% ^abc`", "`[[a|b]] %%x%% ^abc`"),
    ],
)
def test_marks_of_linked_notes_are_read_as_their_editor_shows_them(source: str, text: str) -> None:
    assert [block.text for block in read(source).blocks] == [text]


def test_tags_in_the_text_are_tags() -> None:
    source = (
        "---\ntags: [harbour]\n---\n# Cranes #heavy\n\n"
        "#lift/slow, #2024 #fff c#sharp \\#no `#code`\n"
        "- #über-grün\n\n```c\n#include <a>\n```\n\nhttp://a.org/#part\n\n"
        "[access]: #reading\n[two]:\n  #writing\n"
    )
    assert read(source).tags == ["harbour", "heavy", "lift/slow", "über-grün"]


def test_a_comment_of_several_paragraphs_is_left_out_and_counted() -> None:
    parsed = read("One.\n\n%%\nnot\n\nseen\n%%\n\nTwo.\n\n~~~\n%%\ncode\n%%\n~~~\n\n%%\nopen")
    assert [(block.text, block.line) for block in parsed.blocks] == [
        ("One.", 1),
        ("Two.", 9),
        ("%%\ncode\n%%", 12),
        ("%%\nopen", 17),
    ]
    assert parsed.unread == {"comments": 1}
