"""Whether the best passage answers the question, rather than being about its topic.

Owns: the number that tells them apart best, and from where on an answer is held likely.
Refuses to know: how passages are found, and who answers.

A score says whether the store knows of a topic. A question that is on the topic and not answered
has nearly as good a score; what it lacks is one passage of some two sentences that is about all of
it. So support weighs the meaning more than a score does, and adds the share of the question's
words, each by how rare it is, that stand together in the best passage.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from kbproc.search.fusion import PLACES
from kbproc.text.analysis import words
from kbproc.text.names import names
from kbproc.text.query import Query
from kbproc.text.stems import head, stems

if TYPE_CHECKING:
    from kbproc.views.fulltext.search import FullTextSnapshot

_SCORE, _COSINE, _TOGETHER = 0.3, 0.5, 0.2
# Below the first nothing that was found is told as an answer; below the second it is doubted.
# `python -m bench.eval_answers` prints what they cost and bring.
ANSWERED, SURE = 0.45, 0.5
# The share of the question that counts as all of it.
_WHOLE = 0.9
_HALF = 0.5  # of a word's forms, those of less weight add nothing


class Support(Struct, frozen=True, kw_only=True):
    """`together`: of the question's words, the share that the best passage holds.

    `value`: how well the passage seems to answer. All are in [0, 1].
    """

    score: float
    cosine: float
    together: float
    value: float

    @property
    def is_answer(self) -> bool:
        """True if the passage seems to answer; one that holds the whole question does."""
        return self.value >= ANSWERED or self.together >= _WHOLE


def support(
    fulltext: FullTextSnapshot, query: Query, *, score: float, cosine: float, passage: str
) -> Support:
    """Of a hit in mode hybrid. `passage`: where most of the query's words stand in it, or ""."""
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
    """Returns the share of the query that a passage holds: each word in its form that counts most,
    by its weight; 0 for no passage.
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
