"""How well a model's tokenizer knows a text: whether it reads words, or letters.

Owns: counting a text's tokens by its letters, and the factor that follows.
Refuses to know: vectors, and what the factor is used for.

A model that has learnt a language has whole words for it, or long pieces. A text in which it
finds letters only, or nothing that it knows, has a vector, but one that means little.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from msgspec import Struct

# Tokens per five letters up to which a text is known, and at which a tenth is left. The default
# model has .9 for English, 1.1 for questions of medicine, 1.6 for German and 2.1 for Turkish.
KNOWN, UNKNOWN = 1.2, 2.0
MOST_UNKNOWN = 0.2  # of all tokens
# Of Hindi, Arabic, Thai and Chinese a tenth made searches worse than words alone; so little does
# not, and finds still what shares no word.
LEAST = 0.02
_FALLS_TO = 0.1
# The most that is left where a model of English meets another language. With .4 nDCG@10 of XQuAD
# is .954 in German and .966 in Spanish, with the tokens' own factor .952 and .962.
MOST_FOREIGN = 0.4
_FIVE = 5
# Enough to tell, and no long text takes long.
LOOKED_AT = 600

_WORD = re.compile(r"[A-Za-z]+|[^\W\d_]+")


class Limits(NamedTuple):
    """Tokens per five letters up to which a text is known, and at which a tenth is left.

    `foreign_from`: from so many on, a text in another language than English is hardly known.
    """

    known_until: float
    unknown_from: float
    foreign_from: float


# Of a tokenizer with words of one script, or of many: there five letters of Chinese are
# three words.
OF_FEW, OF_MANY = Limits(KNOWN, UNKNOWN, 1.0), Limits(4.0, 6.0, 4.0)


class Fluency(Struct, frozen=True, kw_only=True):
    """`tokens`: per five letters. `unknown`: the share of them that the tokenizer lacks.

    `factor`: how much a vector of such a text tells, from LEAST to 1.
    """

    tokens: float = 1.0
    unknown: float = 0.0
    factor: float = 1.0


FLUENT = Fluency()


def fluency(
    text: str,
    spans: Sequence[tuple[int, int]],
    unknown: Sequence[bool],
    limits: Limits = OF_FEW,
    *,
    is_foreign: bool = False,
) -> Fluency:
    """`spans`: where in the text each token stands; `unknown`: whether the tokenizer lacks it.

    `is_foreign`: the text is known to be in another language than English.
    """
    known_until, unknown_from, foreign_from = limits
    told = [
        lacking
        for (start, end), lacking in zip(spans, unknown, strict=True)
        if lacking or any(char.isalpha() for char in text[start:end])
    ]
    fives = sum(_fives(word) for word in _WORD.findall(text))
    if not told or not (fives or any(told)):
        return FLUENT
    per_five = len(told) / fives if fives else unknown_from
    share = sum(told) / len(told)
    slope = (per_five - known_until) / (unknown_from - known_until)
    knowledge = 1 - (1 - _FALLS_TO) * max(0.0, slope)
    if is_foreign and per_five >= foreign_from:
        knowledge = min(knowledge, MOST_FOREIGN)
    factor = LEAST if share > MOST_UNKNOWN else max(LEAST, knowledge)
    return Fluency(tokens=round(per_five, 3), unknown=round(share, 3), factor=round(factor, 3))


def _fives(word: str) -> float:
    """A short English word is one token, too: it counts as five letters."""
    return max(1.0, len(word) / _FIVE) if word.isascii() else len(word) / _FIVE
