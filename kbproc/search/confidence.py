"""The chance that the best hit answers, and the level of confidence that follows from it.

Owns: the formula of the chance in each mode, the three levels, and which hits are none.
Refuses to know: how the search finds hits, and what hints say.

The formulas are logistic regressions over questions that a collection answers and questions that
belong to others, each collection with the same weight. The best of many cosines is higher than the
best of few, so the cosine is judged by how many chunks there are. docs/search.md tells how often
the levels are right.
"""

from __future__ import annotations

import math
from typing import Literal

from msgspec import Struct

from kbproc.search.fusion import PLACES

Confidence = Literal["none", "related", "likely"]

# Chances from which a hit is related, and most likely an answer.
RELATED, LIKELY = 0.3, 0.9
# Hits of less would be shown as 0.000.
LEAST_SCORE = 0.0005
# The smallest and the largest store that the formulas were tried with.
_FEWEST_CHUNKS, _MOST_CHUNKS = 32, 10_000
# The share of the greatest BM25 that a text of middling length reaches with each word once.
_EACH_WORD_ONCE = 0.45


class Evidence(Struct, frozen=True, kw_only=True):
    """The numbers that speak for a hit.

    All but `chunks` lie in [0, 1]; None has no part in the chance.

    `words`: its share of the greatest BM25. `cosine`: None where the model lacks the query's
    language, too. `together`: the share of the query that stands in one passage; None where the
    chance was high without it. `chunks`: how many the store holds; None is hidden.
    """

    chance: float
    words: float | None
    cosine: float | None
    chunks: int | None
    together: float | None = None

    @property
    def level(self) -> Confidence:
        if self.chance < RELATED:
            return "none"
        return "related" if self.chance < LIKELY else "likely"

    def with_passage(self, together: float) -> Evidence:
        """The evidence, if one passage holds the given share of the query.

        A row of a table or a line of a log stands among others, for which BM25 takes much away: it
        counts as a short text would.
        """
        chance = _of_words(_EACH_WORD_ONCE * together**3)
        return Evidence(
            chance=max(self.chance, chance),
            words=self.words,
            cosine=self.cosine,
            chunks=self.chunks,
            together=round(together, PLACES),
        )


def evidence(
    words: float | None, cosine: float | None, chunks: int, *, is_foreign: bool = False
) -> Evidence:
    """Returns what speaks for a hit; see Evidence. Without words and cosine nothing does.

    `is_foreign`: the query is in another language than English, whose words reach smaller shares:
    their forms weigh more in the greatest BM25 than in that of a text.
    """
    size = math.log10(min(_MOST_CHUNKS, max(_FEWEST_CHUNKS, chunks)))
    if cosine is None:
        share = words or 0.0
        chance = _of_foreign_words(share) if is_foreign else _of_words(share)
    elif words is None:
        chance = _logistic(26.5 * cosine - 2.3 * size - 3.2)
    else:
        chance = _logistic(8.5 * words + 24 * cosine - 2.8 * size - 1.9)
    return Evidence(chance=chance, words=words, cosine=cosine, chunks=chunks)


def _of_words(share: float) -> float:
    return _logistic(27 * share - 7.3)


def _of_foreign_words(share: float) -> float:
    return _logistic(34 * share - 6.8)


def _logistic(number: float) -> float:
    return round(1 / (1 + math.exp(-number)), 3)
