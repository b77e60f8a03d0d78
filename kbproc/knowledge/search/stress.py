"""A long query in which one sentence asks, and the others are polite.

Owns: whether there is such a sentence, and which; what it weighs.
Refuses to know: how candidates are found and fused.

Each sentence is worth the score that it would find. In a mail one sentence finds much, and
greetings and thanks find little; in an abstract all find about as much: there each counts alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from kbproc.search.fusion import Weights
from kbproc.text.query import Query, parse_query
from kbproc.text.sentences import sentences
from kbproc.views.restriction import Restriction

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from kbproc.views.fulltext.search import FullTextSnapshot
    from kbproc.views.vectors.search import VectorSnapshot

    Vector = NDArray[np.float32]

# The middle sentence of a mail is worth a quarter to a half of the best one, that of an abstract
# seven tenths and more.
_ALIKE = 0.6
_FEWEST_WORDS = 3  # of a sentence that asks
_MOST_SENTENCES = 24


class Stress(Struct, frozen=True, kw_only=True):
    """`sentence` counts half. `worth`: the score that it finds; `others`: the middle one's."""

    sentence: str
    worth: float
    others: float


class Parts:
    """What a long query's sentences find, as far as they may be searched."""

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
        """The sentence that asks; None where the text is of one piece."""
        found = [(self._worth(said, one), said, one) for said, one in self._sentences(text)]
        asking = [entry for entry in found if len(entry[2].terms) >= _FEWEST_WORDS]
        if len(found) < _FEWEST_WORDS or not asking:
            return None
        worth, sentence, _ = max(asking, key=lambda entry: entry[0])
        from statistics import median  # which few queries are long enough to need

        others = median(entry[0] for entry in found)
        if others >= _ALIKE * worth:
            return None
        return Stress(sentence=sentence, worth=round(worth, 6), others=round(others, 6))

    def _sentences(self, text: str) -> Iterator[tuple[str, Query]]:
        for one in list(filter(str.strip, sentences(text)))[:_MOST_SENTENCES]:
            query = replace(parse_query(one), phrases=(), excluded=())
            if query.terms:
                yield " ".join(one.split()), query

    def _worth(self, text: str, query: Query) -> float:
        """About the best score: both channels' best, of whatever chunks."""
        hits = self._fulltext.search(query, 1, restriction=self._restriction)
        share = hits.raw_scores[0] / self._fulltext.bound(query) if hits.raw_scores else 0.0
        vector = self._embed(text) if self._vectors is not None else None
        if vector is None or self._vectors is None:
            return share
        _, cosines = self._vectors.search(vector, 1, restriction=self._restriction)
        cosine = float(cosines[0]) if len(cosines) else 0.0
        return self._weights.fts * share + self._weights.vector * max(0.0, cosine)


def between(whole: Vector, sentence: Vector | None) -> Vector:
    """A vector as near to both."""
    return whole if sentence is None else ((whole + sentence) / 2).astype(whole.dtype)


def stressed(fulltext: FullTextSnapshot, query: Query, stress: Stress) -> Query:
    """The query whose share of BM25 is the mean of its own and the sentence's."""
    asking = replace(parse_query(stress.sentence), phrases=(), excluded=())
    least = fulltext.bound(asking)
    if not least:
        return query
    more = 1 + fulltext.bound(query) / least
    within = frozenset(asking.terms)
    return replace(query, stress=tuple(more if term in within else 1.0 for term in query.terms))
