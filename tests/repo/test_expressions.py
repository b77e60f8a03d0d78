"""Each expression takes time in proportion to the text that it meets, whatever the text."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from random import Random

from kbproc.engine.sources.parse.chats import claude_code
from kbproc.engine.sources.parse.nesting import tree_of
from kbproc.engine.sources.pattern import NamePattern
from tests.conftest import Report
from tests.kit.expressions import (
    Expression,
    attacks,
    expressions,
    random_attacks,
    slowed_by,
)
from tests.kit.growth import MOST_GROWTH, least_growth
from tests.kit.patience import LONG

_VARIANTS, _RANDOM = (6, 400) if LONG else (2, 0)
_SIZE = 20_000  # characters, from which on a tree's depth is limited
_LEAST = 350  # expressions that the search finds


def slow_ones(all_of_them: list[Expression]) -> list[str]:
    random = Random(1)
    lines = []
    for each in all_of_them:
        texts = [*attacks(each, _VARIANTS), *random_attacks(each, random, _RANDOM)]
        if slowed := slowed_by(each, texts):
            attack, growth = slowed
            lines.append(f"{each.place}: {growth:.1f} times as long for twice {attack!r}")
    return lines


def test_no_text_slows_an_expression_down(none: Report) -> None:
    """Twice the text takes at most MOST_GROWTH times as long, by the processor's clock."""
    every_one = expressions()
    assert len(every_one) >= _LEAST
    none(slow_ones(every_one))


SLOW: list[tuple[str | bytes, str]] = [
    ("<private>.*?</private>", "sub"),
    (r"<(added|ide)>.*?</\1>", "sub"),
    (r"[ \t]+$", "search"),
    (r"\s*:?\s*=", "match"),
    (r"\w*\d\w*", "fullmatch"),
    (r"(?:\w+\s?)+:", "match"),
    (rb"From [^\n]*\d{4}[^\n]*\n", "match"),
]


def test_the_texts_find_slow_expressions() -> None:
    """Texts of 2,000 characters will do: each of these expressions takes squares from the start."""
    missed = []
    for pattern, way in SLOW:
        slow = Expression("here", pattern, re.DOTALL, frozenset({way}))
        if slowed_by(slow, attacks(slow, 2), measurements=1, size=2000) is None:
            missed.append(pattern)
    assert missed == []


RUNS: list[tuple[Callable[[str], object], str]] = [
    (partial(claude_code.written, is_answered=True), "<system-reminder>"),
    (partial(claude_code.written, is_answered=True), "<command-name></command-message>"),
    (NamePattern, "[a"),
    (tree_of, "<div>"),
    (tree_of, "<b><ul><li>"),
]


def _repeated(piece: str, size: int) -> str:
    return piece * (size // len(piece))


def test_no_text_slows_a_search_of_several_steps() -> None:
    growths = {
        piece: least_growth(run, partial(_repeated, piece), size=_SIZE) for run, piece in RUNS
    }
    assert {piece: times for piece, times in growths.items() if times > MOST_GROWTH} == {}
