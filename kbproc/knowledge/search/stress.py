"""Finds the sentence that asks in a long query, such as a mail, and gives it half of the weight.

Each sentence is worth the best score that it would find. In a mail one sentence finds a high score,
greetings and thanks find low ones; in an abstract all sentences find similar scores, so that none
is stressed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from kbproc.base.text.analysis import sentences
from kbproc.base.text.query import Query, parse_query
from kbproc.engine.projections.restriction import Restriction
from kbproc.knowledge.search.fusion import Weights

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from kbproc.engine.projections.fulltext.search import FullTextSnapshot
    from kbproc.engine.projections.vectors.search import VectorSnapshot

    Vector = NDArray[np.float32]

# The middle sentence of a mail is worth a quarter to a half of the best one, that of an abstract
# seven tenths and more.
_ALIKE = 0.6
_FEWEST_WORDS = 3  # minimum for a sentence that asks; also the minimum of sentences
_MOST_SENTENCES = 24


class Stress(Struct, frozen=True, kw_only=True):
    """The sentence that counts half. `worth`: the score that it finds; `others`: the median score
    of all sentences.
    """

    sentence: str
    worth: float
    others: float


class Parts:
    """The channels and the restriction by which the sentences of a long query are rated."""

    def __init__(
        self,
        *,
        fulltext: FullTextSnapshot,
        vectors: VectorSnapshot | None,
        embed: Callable[[str], Vector | None],
        weights: Weights,
        restriction: Restriction,
    ) -> None:
        """`vectors` None: only words are searched."""
        self._fulltext = fulltext
        self._vectors = vectors
        self._embed = embed
        self._weights = weights
        self._restriction = restriction

    def best(self, text: str) -> Stress | None:
        """Returns the sentence that asks; None if no sentence stands out."""
        ranked = [
            (self._worth(candidate, query), candidate, query)
            for candidate, query in self._sentences(text)
        ]
        asking = [entry for entry in ranked if len(entry[2].terms) >= _FEWEST_WORDS]
        if len(ranked) < _FEWEST_WORDS or not asking:
            return None
        worth, sentence, _ = max(asking, key=lambda entry: entry[0])
        from statistics import median  # here, because few queries are long enough to need it

        others = median(entry[0] for entry in ranked)
        if others >= _ALIKE * worth:
            return None
        return Stress(sentence=sentence, worth=round(worth, 6), others=round(others, 6))

    def _sentences(self, text: str) -> Iterator[tuple[str, Query]]:
        for sentence in list(filter(str.strip, sentences(text)))[:_MOST_SENTENCES]:
            query = replace(parse_query(sentence), phrases=(), excluded=())
            if query.terms:
                yield " ".join(sentence.split()), query

    def _worth(self, text: str, query: Query) -> float:
        """Returns an estimate of the best score: both channels' best, even of different chunks."""
        hits = self._fulltext.search(query, 1, restriction=self._restriction)
        share = hits.raw_scores[0] / self._fulltext.bound(query) if hits.raw_scores else 0.0
        vector = self._embed(text) if self._vectors is not None else None
        if vector is None or self._vectors is None:
            return share
        _, cosines = self._vectors.search(vector, 1, restriction=self._restriction)
        cosine = float(cosines[0]) if len(cosines) else 0.0
        return self._weights.fts * share + self._weights.vector * max(0.0, cosine)


def between(query: Vector, sentence: Vector | None) -> Vector:
    """Returns a vector in the middle of both."""
    return query if sentence is None else ((query + sentence) / 2).astype(query.dtype)


def stressed(fulltext: FullTextSnapshot, query: Query, stress: Stress) -> Query:
    """Returns the query with weights that give the sentence half of the share of BM25."""
    sentence_query = replace(parse_query(stress.sentence), phrases=(), excluded=())
    least = fulltext.bound(sentence_query)
    if not least:
        return query
    factor = 1 + fulltext.bound(query) / least
    sentence_terms = frozenset(sentence_query.terms)
    return replace(
        query, stress=tuple(factor if term in sentence_terms else 1.0 for term in query.terms)
    )
