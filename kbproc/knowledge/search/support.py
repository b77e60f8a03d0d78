"""Computes how well the best hit supports an answer, for `chat`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from kbproc.base.text.analysis import words
from kbproc.base.text.names import names
from kbproc.base.text.query import Query
from kbproc.base.text.stems import head, stems
from kbproc.knowledge.search.fusion import PLACES

if TYPE_CHECKING:
    from kbproc.engine.projections.fulltext.search import FullTextSnapshot

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
