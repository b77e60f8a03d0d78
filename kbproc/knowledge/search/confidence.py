"""Computes the chance that the best hit answers, the level of confidence, and a hit's support.

The formulas are logistic regressions over questions that a collection answers and questions for
other collections, each collection with the same weight. The best of many cosines is higher than the
best of few, so the formulas with a cosine include the number of chunks. docs/search.md says how
often the levels are right.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from kbproc.base.text.analysis import words
from kbproc.base.text.names import names
from kbproc.base.text.query import Query
from kbproc.base.text.stems import head, stems
from kbproc.knowledge.search.fusion import PLACES

if TYPE_CHECKING:
    from kbproc.engine.projections.fulltext.search import FullTextSnapshot

Confidence = Literal["none", "related", "likely"]

# The least chances of the levels "related" and "likely".
RELATED, LIKELY = 0.3, 0.9
# The least score of a hit: smaller ones would be shown as 0.000.
LEAST_SCORE = 0.0005
# The smallest and the largest store that the formulas were tried with.
_FEWEST_CHUNKS, _MOST_CHUNKS = 32, 10_000
# The share of the greatest BM25 that a text of middling length reaches with each word once.
_EACH_WORD_ONCE = 0.45


class Evidence(Struct, frozen=True, kw_only=True):
    """The evidence that a hit answers.

    All numbers but `chunks` lie in [0, 1]; None has no part in the chance.

    `words`: the share of the greatest BM25. `cosine`: None also if the model lacks the query's
    language. `together`: the share of the query in one passage; None if the chance was high without
    it. `chunks`: the number of chunks in the store; None if hidden.
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
        """Returns the evidence for a hit with a passage that holds this share of the query.

        The passage counts like a short text, because BM25 lowers the score of a row in a table or
        a line in a log for the text around it.
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
    """Returns the evidence for a hit; without words and cosine the chance is near 0.

    `is_foreign`: the query is in another language than English. Its words reach smaller shares,
    because their forms weigh more in the greatest BM25 than in that of a text.
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


# --------------------------------------------------------------------- support


# A score says whether the store knows the topic. A question on the topic that no text answers has
# nearly as good a score, but no passage of some two sentences is about all of the question. So
# support gives meaning more weight than a score does, and adds the share of the question's words,
# each weighed by how rare it is, that stand together in the best passage.
_SCORE, _COSINE, _TOGETHER = 0.3, 0.5, 0.2
# Below ANSWERED no hit is presented as an answer; below SURE an answer is doubted.
# `python -m bench.eval_answers` prints the effect of both.
ANSWERED, SURE = 0.42, 0.5
# The share of the question that counts as the whole question.
_WHOLE_QUESTION = 0.9
_HALF = 0.5  # the least weight of a word's form that counts


class Support(Struct, frozen=True, kw_only=True):
    """The support for the best hit. All numbers are in [0, 1].

    `together`: the share of the question's words that the best passage holds. `value`: how well the
    passage seems to answer.
    """

    score: float
    cosine: float
    together: float
    value: float

    @property
    def is_answer(self) -> bool:
        """True if the passage seems to answer; one that holds the whole question does."""
        return self.value >= ANSWERED or self.together >= _WHOLE_QUESTION


def support(
    fulltext: FullTextSnapshot, query: Query, *, score: float, cosine: float, passage: str
) -> Support:
    """Returns the support for a hit in mode hybrid.

    `passage`: the part of its text that holds most of the query's words, or "".
    """
    likeness = min(1.0, max(0.0, cosine))
    share = together(fulltext, query, passage)
    value = _SCORE * score + _COSINE * likeness + _TOGETHER * share
    return Support(
        score=score,
        cosine=round(likeness, PLACES),
        together=round(share, PLACES),
        value=round(value, PLACES),
    )


def together(fulltext: FullTextSnapshot, query: Query, passage: str) -> float:
    """Returns the share of the query that a passage holds; 0 for an empty passage.

    Each word counts by its weight, in its form that weighs most.
    """
    if not passage:
        return 0.0
    tokens = words(passage)
    forms = {
        "stem": frozenset(stems([*tokens, *names(passage)])),
        "head": frozenset(map(head, tokens)),
    }
    clauses = fulltext.clauses
    terms = [term for term in clauses.terms(query) if term.field in forms and term.most >= _HALF]
    worth = [term.most * clauses.idf(term) for term in terms]
    present = (w for w, term in zip(worth, terms, strict=True) if term.word in forms[term.field])
    return sum(present) / total if (total := sum(worth)) else 0.0
