"""Code, rows and log lines are quoted whole or not at all."""

from __future__ import annotations

from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbproc.base.text.verbatim import CodeBlock, Piece, html_blocks, markdown_blocks, pieces
from tests.kit.growth import MOST_GROWTH, least_growth

GUIDE = """# Install

Run the installer. It asks for a token.

```sh
curl -O https://example.org/install.sh

sh install.sh --token TOKEN   # it asks. Then it ends.
```

    tool --check
    tool --verify

Then restart."""
PLAIN = """# Install

Run the installer. It asks for a token.

curl -O https://example.org/install.sh

sh install.sh --token TOKEN   # it asks. Then it ends.

tool --check
tool --verify

Then restart."""


def test_a_block_is_quoted_in_its_fence() -> None:
    quotes = list(pieces(PLAIN, blocks=markdown_blocks(GUIDE)))
    assert [piece.text for piece in quotes] == [
        "# Install",
        "Run the installer.",
        "It asks for a token.",
        "```sh\ncurl -O https://example.org/install.sh\n\n"
        "sh install.sh --token TOKEN   # it asks. Then it ends.\n```",
        "```\ntool --check\ntool --verify\n```",
        "Then restart.",
    ]


@pytest.mark.parametrize(
    ("begin", "end"),
    [
        ("sh install.sh", None),  # after the first line of the block
        ("--token TOKEN", None),  # within a line of it
        (None, "\n\nsh install.sh"),  # before its last line
        ("sh install.sh", "\n\ntool --check"),  # only the block's last line
        ("TOKEN   # it", " Then it ends."),  # a part of one line
    ],
)
def test_a_part_of_a_block_is_not_quoted(begin: str | None, end: str | None) -> None:
    cut = PLAIN[PLAIN.index(begin) if begin else 0 : PLAIN.index(end) if end else None]
    answer = " ".join(piece.text for piece in pieces(cut, blocks=markdown_blocks(GUIDE)))
    assert "curl" not in answer
    assert "TOKEN" not in answer


def test_blocks_of_markdown() -> None:
    source = """- a step:

  ~~~python title="x"
  def f():
      return `1`
  ~~~

- another

      indented within a list

> ```
> quoted
> ```

````md
```
inner
```
````

\tby a tab

```
without an end"""
    assert markdown_blocks(source) == [
        CodeBlock("python", ("def f():", "    return `1`")),
        CodeBlock("", ("quoted",)),
        CodeBlock("md", ("```", "inner", "```")),
        CodeBlock("", ("by a tab",)),
        CodeBlock("", ("without an end",)),
    ]


def test_blocks_of_a_page() -> None:
    source = (
        '<p>Do:</p><pre><code class="language-js">if (a &lt; b) {<br>  run();\n}</code></pre>'
        '<PRE class="x">plain</PRE><pre></pre>'
    )
    assert html_blocks(source) == [
        CodeBlock("js", ("if (a < b) {", "  run();", "}")),
        CodeBlock("", ("plain",)),
    ]


def test_a_fence_is_longer_than_those_within() -> None:
    assert CodeBlock("md", ("````", "x")).fenced() == "`````md\n````\nx\n`````"


def test_source_code_is_one_piece() -> None:
    assert list(pieces("def f():\n    return 1\n", "code", language="python")) == [
        Piece("code", "```python\ndef f():\n    return 1\n```")
    ]


def test_rows_have_their_head() -> None:
    csv = 'region,revenue\nNorth,"1,284,500. Est."\nSouth,12'
    assert list(pieces(csv, "table")) == [
        Piece("row", 'North,"1,284,500. Est."', "region,revenue"),
        Piece("row", "South,12", "region,revenue"),
    ]
    table = "Flags. All of them:\n\n| flag | meaning |\n| --- | :-: |\n| -q | quiet. No words. |"
    assert list(pieces(table)) == [
        Piece("sentence", "Flags."),
        Piece("sentence", "All of them:"),
        Piece("row", "| -q | quiet. No words. |", "| flag | meaning |\n| --- | :-: |"),
    ]
    assert list(pieces("only,a,head", "table")) == [Piece("row", "only,a,head")]


@pytest.mark.parametrize(
    "lines",
    [
        ["2026-11-03 12:00:01 INFO up. And well.", "2026-11-03 12:00:09 ERROR no. Not now."],
        ["Nov  3 12:00:01 host sshd[1]: Failed. Bye.", "Nov  3 12:00:02 host cron: ok. Done."],
        ['{"at": 1, "text": "One. Two."}', '{"at": 2, "text": "Three. Four."}'],
        ["10.0.0.1 - - GET /a. b", "10.0.0.2 - - GET /c. d"],
        ["[12:00:01] a: Hi. Are you there?", "[12:00:09] b: Yes. I am."],
        ["ERROR: a. b", "Traceback: c. d", "WARN e. f"],
    ],
)
def test_lines_of_a_log_are_whole(lines: list[str]) -> None:
    assert [piece.text for piece in pieces("\n".join(lines))] == lines


def test_prose_is_no_log_and_no_table() -> None:
    text = "On 2026-11-03 we met. We agreed | so to speak. Then\nwe left. 2026-11-04 was a holiday."
    assert {piece.kind for piece in pieces(text)} == {"sentence"}


line = st.text(st.sampled_from("ab .=(`"), min_size=1, max_size=12).filter(str.strip)
lines = st.lists(line, min_size=1, max_size=4)


@given(before=lines, code=lines, after=lines, start=st.integers(0), stop=st.integers(0))
def test_code_comes_whole(
    before: list[str], code: list[str], after: list[str], start: int, stop: int
) -> None:
    """Each piece of code in a passage is a whole block of the source."""
    plain = "\n".join([*before, "", *code, "", *after])
    first, last = sorted((start % (len(plain) + 1), stop % (len(plain) + 1)))
    block = CodeBlock("x", tuple(code))
    for piece in pieces(plain[first:last], blocks=[block]):
        if piece.kind == "code":
            assert piece.text == block.fenced()


HOSTILE = ("<pre>", "<pre ", "<", "~", "`", "> ", " ", "```\nx\n```\n", "```\nx\n")


def test_a_hostile_source_is_read_in_linear_time(subtests: pytest.Subtests) -> None:
    """Sources are read in the process that answers, which a slow pattern would block."""

    def read_all(source: str) -> None:
        passage = "\n".join(["x", *source[:2000].split("\n")[:20]])
        for read in (markdown_blocks, html_blocks):
            list(pieces(passage, blocks=read(source)))

    def source_of(part: str, size: int) -> str:
        return part * (size // len(part)) + ("`" if part == "~" else "")

    for part in HOSTILE:
        with subtests.test(repr(part)):
            assert least_growth(read_all, partial(source_of, part), size=20_000) <= MOST_GROWTH
