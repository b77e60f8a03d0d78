"""Each expression takes time in proportion to the text that it meets, whatever the text."""

from __future__ import annotations

import re
from collections.abc import Callable
from random import Random

import pytest

from kbproc.engine.sources.parse.chats import claude_code
from kbproc.engine.sources.pattern import NamePattern
from tests.kit.expressions import (
    MOST_GROWTH,
    Expression,
    attacks,
    expressions,
    growth,
    random_attacks,
    slowed_by,
)
from tests.kit.patience import LONG

_VARIANTS, _RANDOM = (6, 400) if LONG else (2, 0)
_SECRETS = "kbproc.base.text.secrets"
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


@pytest.mark.parametrize("part", ["secrets", "the others"])
def test_no_text_slows_an_expression_down(part: str) -> None:
    """Twice the text takes at most MOST_GROWTH times as long, by the processor's clock."""
    found = expressions()
    assert len(found) >= _LEAST
    chosen = [each for each in found if each.place.startswith(_SECRETS) == (part == "secrets")]
    assert slow_ones(chosen) == [], f"no more than {MOST_GROWTH} times"


@pytest.mark.parametrize(
    ("pattern", "way"),
    [
        ("<private>.*?</private>", "sub"),
        (r"<(added|ide)>.*?</\1>", "sub"),
        (r"[ \t]+$", "search"),
        (r"\s*:?\s*=", "match"),
        (r"\w*\d\w*", "fullmatch"),
        (r"(?:\w+\s?)+:", "match"),
        (rb"From [^\n]*\d{4}[^\n]*\n", "match"),
    ],
)
def test_the_texts_find_slow_expressions(pattern: str | bytes, way: str) -> None:
    slow = Expression("here", pattern, re.DOTALL, frozenset({way}))
    assert slowed_by(slow, attacks(slow, 2)) is not None


@pytest.mark.parametrize(
    ("run", "piece"),
    [
        (claude_code.written, "<system-reminder>"),
        (claude_code.written, "<command-name></command-message>"),
        (NamePattern, "[a"),
    ],
)
def test_no_text_slows_a_search_of_several_steps(run: Callable[[str], object], piece: str) -> None:
    assert growth(run, lambda size: piece * (size // len(piece))) <= MOST_GROWTH
