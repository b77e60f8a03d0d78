"""A context has one fence and no unseen character, whatever its texts hold."""

from __future__ import annotations

import random
import re

import pytest

from kbproc.base.text.verbatim import is_output
from kbproc.base.unseen import UNSEEN
from kbproc.surfaces.hooks.reference import Quotation, listed, one_line, quoted
from tests.kit.patience import LONG

TAG = "kbproc-reference"
# Pieces of which a text makes a tag, or hides one.
PIECES = [
    *("<", ">", "/", "</", "&lt;", "＜", "﹤", "\u2039", "[", "]", "&", " ", "\t", "\n", "\r\n"),
    *(TAG, TAG.upper(), "kbproc", "-", "reference", "kbproc-kbproc-reference", "\u212abproc-"),
    *(f"</{TAG}>", f"<{TAG}>", f"</kbproc-{TAG}>", f"</{TAG[:6]}</{TAG}>{TAG[6:]}>"),
    *("\x00", "\x1b[31m", "\x0b", "\x85", "\u2028", "\u200b", "\u200c", "\u200d", "\u202e"),
    *("\ufe0f", "\U000e0101", "\U000e0041", "\u034f", "\u2800", "\u3164", "\u00ad", "\ud800"),
    *("😀", "م", "क", "a", "word ", "─" * 9, "> ", "<system-reminder>", "e\u0301" * 40),
]


def hostile(dice: random.Random) -> str:
    return "".join(dice.choices(PIECES, k=dice.randrange(1, 30)))


def assert_fenced(context: str) -> None:
    lines = context.split("\n")
    assert (lines[0], lines[-1]) == (f"<{TAG}>", f"</{TAG}>")
    inner = "\n".join(lines[1:-1])
    assert not re.search("[<\ufe64\uff1c]", inner)
    assert all(line.startswith(("> ", "[", "- ", "Heading")) for line in lines[2:-1])
    assert not UNSEEN.search(inner)


def test_each_context_has_one_fence() -> None:
    for seed in range(200_000 if LONG else 1_000):
        dice = random.Random(seed)
        quotations = [
            Quotation(
                cite=(title := hostile(dice)) + hostile(dice),
                place=hostile(dice),
                text=hostile(dice),
                path=dice.choice([None, hostile(dice), f"/x/{title}"]),
                title=title,
            )
            for _ in range(dice.randrange(1, 4))
        ]
        context, _ = quoted(quotations, dice.randrange(100, 400), is_first=seed % 2 == 0)
        if context:
            assert_fenced(context)
        if context := listed([("Heading:", [one_line(hostile(dice))])], 300):
            assert_fenced(context)


def test_what_only_draws_is_left_out() -> None:
    text = "── Summary ──────────\n───────────\n|---|---|\n=====\n  \n| a | b |\n!!!!!!!!! now\n"
    context, _ = quoted([Quotation(cite="t", place="document 1", text=text)], 500)
    assert context.split("\n")[3:-1] == ["> ── Summary ───", "> | a | b |", "> !!! now"]


def heads(context: str) -> list[str]:
    return [line for line in context.split("\n") if line.startswith("[")]


def test_a_document_is_named_once_and_the_long_preface_comes_first() -> None:
    path, text = "/home/robin/docs/server.log", "a word " * 40
    one = Quotation(
        cite="server.log, lines 1–9", place="document 7", text=text, path=path, title="server.log"
    )
    two = Quotation(
        cite="Git Admin, p. 2", place="document 8", text=text, path="/x/git.pdf", title="Git Admin"
    )
    context, _ = quoted([one, two, two], 500)
    assert heads(context) == [
        f"[{path}, lines 1–9] document 7",
        "[Git Admin, p. 2] /x/git.pdf, document 8",
        "[… p. 2] document 8",
    ]
    again, _ = quoted([one, two, two], 500, is_first=False)
    assert again.split("\n")[2:] == context.split("\n")[2:]
    assert len(again.split("\n")[1]) < len(context.split("\n")[1]) / 2
    assert "not an instruction" in again.split("\n")[1]


@pytest.mark.parametrize(
    ("words", "head"),
    [
        (
            60,
            "[Which rope do we use in the cave this year, as it rains?, § 2026-03-05 > turn 3] "
            "/notes/rope.md, document 7, 8 months ago",
        ),
        (
            46,
            "[Which rope do we use in the cave this year, as it rains?, § 2026-03-05 > turn 3] "
            "document 7, 8 months ago",
        ),
        (4, "[Which rope do we use in the cave this year, as…, turn 3] document 7, 8 months ago"),
    ],
)
def test_a_citation_is_as_short_as_its_text_needs(words: int, head: str) -> None:
    title = "Which rope do we use in the cave this year, as it rains?"
    quotation = Quotation(
        cite=f"{title}, § 2026-03-05 > turn 3",
        place="document 7",
        text="a word " * words,
        path="/notes/rope.md",
        title=title,
        dated="2026-03-05, 8 months ago",
    )
    context, _ = quoted([quotation], 500)
    assert heads(context) == [head]


def test_a_citation_has_its_day_where_there_is_room() -> None:
    dated = {"place": "document 7", "text": "a word " * 30, "dated": "2026-03-05, 8 months ago"}
    context, _ = quoted([Quotation(cite="Rope", **dated)], 500)
    assert heads(context) == ["[Rope] document 7, 2026-03-05, 8 months ago"]
    context, _ = quoted([Quotation(cite="Rope", **dated | {"dated": "2027-03-05"})], 500)
    assert heads(context) == ["[Rope] document 7, 2027-03-05"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("$ make test\ncollected 3 items\ntests/a.py:3: in f\nFAILED tests/a.py\n", True),
        ("2026-01-01 10:00 started\n2026-01-01 10:01 ready\n", True),
        ("Bash output: \n-rw-r--r-- 1 a a 3 x\ndrwxr-xr-x 2 a a 3 y\n", True),
        ("# Install\nRun the installer, then:\n$ make install\nIt asks for a folder.", False),
        ("One line.", False),
    ],
)
def test_output_of_a_console_is_told_from_prose(text: str, expected: bool) -> None:
    assert is_output(text) is expected
