"""Fuses the two channels: computes one score from a cosine and a BM25, or from two ranks.

Rounding: each channel's number is rounded to 6 places, and a blended score is exactly their sum. A
score of reciprocal ranks is the sum of the unrounded numbers, rounded once: rank 1 in both channels
is 2/61 = 0.032787, whose halves are shown as 0.016393 each, so there the shown numbers add up
within 0.000001.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Mode = Literal["hybrid", "fts", "vector"]

VECTOR_WEIGHT = 0.4
FULLTEXT_WEIGHT = 0.6
# The vector's weight if words say nothing.
LEANING_WEIGHT = 0.9
# Bounds for the share of a query's greatest BM25 that the best text reaches, and for the number of
# words that this BM25 is worth. Below the first of each pair words say nothing, from the second on
# they count as usual. `lean` needs both to be low, because long questions have low shares, and a
# name alone is one word.
_LITTLE_SHARE = (0.1, 0.25)
_FEW_WORDS = (0.5, 0.9)
RRF_K = 60
PLACES = 6
# Two scores that are equal once rounded differed by less than this before.
_ROUNDING = 1e-5


class Weights(Struct, frozen=True):
    """The weights of the channels in a blend; they add up to 1.

    The less of a query's language the model knows, the less the vector weighs. The less of the
    query any text holds, the more the vector weighs.
    """

    fts: float = FULLTEXT_WEIGHT
    vector: float = VECTOR_WEIGHT

    @classmethod
    def of(cls, fluency: float, lean: float = 0.0) -> Weights:
        """Returns the weights for a query. `fluency`: how well the model knows its language, from
        0 to 1; `lean`: see `lean`.
        """
        weight = VECTOR_WEIGHT + (LEANING_WEIGHT - VECTOR_WEIGHT) * lean
        vector = round(weight * fluency, PLACES)
        return cls(round(1 - vector, PLACES), vector)


def lean(share: float, words: float) -> float:
    """Returns how little the words of a query say, from 0 to 1.

    `share`: the best text's share of the greatest BM25; `words`: the same BM25, divided by that of
    a word that no other text holds.
    """
    return _falling(share, *_LITTLE_SHARE) * _falling(words, *_FEW_WORDS)


def _falling(number: float, one_until: float, zero_from: float) -> float:
    return min(1.0, max(0.0, (zero_from - number) / (zero_from - one_until)))


_EVEN = Weights()
# The weights of modes with a single channel.
ALONE: Mapping[Mode, Weights] = {"fts": Weights(1, 0), "vector": Weights(0, 1)}


class Fused(Struct, frozen=True):
    """A score, and the part of each channel in it; None if the channel took no part."""

    score: float
    fts: float | None
    vector: float | None

    def times(self, factor: float) -> Fused:
        fts = None if self.fts is None else round(self.fts * factor, PLACES)
        vector = None if self.vector is None else round(self.vector * factor, PLACES)
        return Fused(round((fts or 0.0) + (vector or 0.0), PLACES), fts, vector)


Ranked = list[tuple[int, Fused]]


def blend(
    cosine: float | None,
    bm25: float | None,
    bound: float,
    mode: Mode = "hybrid",
    weights: Weights = _EVEN,
) -> Fused:
    """Returns 0.4·max(0, cosine) + 0.6·BM25/U, in [0, 1]; a single channel weighs 1.

    A `cosine` of None is a pending vector and counts 0; a `bm25` of None means that no word matches
    and counts 0. `weights`: other weights than 0.4 and 0.6. `bound` is U, which no text's BM25
    exceeds for this query: both terms are absolute, so scores of different queries are comparable.
    """
    if mode != "hybrid":
        weights = ALONE[mode]
    fts = None if mode == "vector" else round(word_part(bm25 or 0.0, bound, weights), PLACES)
    pending = cosine is None or mode == "fts"
    vector = None if pending else round(vector_part(cosine or 0.0, weights), PLACES)
    return Fused(round((fts or 0.0) + (vector or 0.0), PLACES), fts, vector)


def word_part(bm25: float, bound: float, weights: Weights) -> float:
    """Returns what a BM25 adds to a blended score; it never falls as the BM25 grows."""
    # The sum of 32-bit numbers may exceed the bound by a little.
    return weights.fts * min(1.0, bm25 / bound) if bound > 0 else 0.0


def vector_part(cosine: float, weights: Weights) -> float:
    """Returns what a cosine adds to a blended score; it never falls as the cosine grows."""
    return weights.vector * min(1.0, max(0.0, cosine))


class Contenders:
    """The candidates that may be among the `depth` best by blended score once every BM25 is known.

    A missing BM25 lies between 0 and `most`. Querying it is the most expensive part of a search, so
    it is queried for contenders only. The bounds hold because a blended score is the sum of
    `word_part` and `vector_part`, and neither falls as its number grows.
    """

    def __init__(
        self, words: dict[int, float], *, most: float, bound: float, depth: int, weights: Weights
    ) -> None:
        """`words`: chunk id → BM25, for the hits of the word channel."""
        self._word_parts = {id: word_part(bm25, bound, weights) for id, bm25 in words.items()}
        self._contending = self._word_parts  # the hits by words that may be among the best
        self._most = word_part(most, bound, weights)
        self._depth = depth
        self._weights = weights

    def narrow(
        self, low: NDArray[np.float64], high: NDArray[np.float64]
    ) -> tuple[NDArray[np.bool_], float]:
        """Drops hits of the word channel that can't be among the best.

        `low`, `high`: bounds of their cosines, nan where a vector is pending. Returns what
        vectors.search.Shortlist does: which cosines are needed, and the least cosine at which a
        chunk that words have not found is a contender.
        """
        import numpy as np  # here, because the import takes longer than most searches

        # `vector_part` of arrays; fmax makes nan 0.
        weight = self._weights.vector
        parts = np.fromiter(self._word_parts.values(), np.float64)
        least = self._last((parts + weight * np.minimum(np.fmax(low, 0), 1)).tolist())
        needed = parts + weight * np.minimum(np.fmax(high, 0), 1) >= least
        self._contending = dict(itertools.compress(self._word_parts.items(), needed.tolist()))
        floor = (least - self._most) / weight
        # A cosine below 0 adds as little as one of 0.
        return needed, floor if floor > 0 else -1.0

    def within(self, cosines: dict[int, float]) -> list[int]:
        """Returns the ids of contenders. `cosines`: all that are known, chunk id → cosine."""
        by_words = {
            id: part + vector_part(cosines.get(id, 0.0), self._weights)
            for id, part in self._contending.items()
        }
        by_meaning = {
            id: vector_part(cosine, self._weights)
            for id, cosine in cosines.items()
            if id not in by_words
        }
        least_known = self._last([*by_words.values(), *by_meaning.values()])
        least = least_known - self._most
        return [
            *[id for id, score in by_words.items() if score >= least_known],
            *[id for id, score in by_meaning.items() if score >= least],
        ]

    def _last(self, scores: list[float]) -> float:
        """Returns the least score that may be among the best."""
        if len(scores) < self._depth:
            return 0.0
        return sorted(scores, reverse=True)[self._depth - 1] - _ROUNDING


def rrf(
    vector_rank: int | None, fts_rank: int | None, mode: Mode = "hybrid", *, pending: bool = False
) -> Fused:
    """Returns Σ 1/(60 + rank), ranks from 1 (Cormack, Clarke and Büttcher, SIGIR 2009).

    A rank is None, counted 0, if the channel did not find the candidate. `pending`: the candidate
    has no vector yet, so the vector channel takes no part.
    """
    fts = 1 / (RRF_K + fts_rank) if fts_rank else 0.0
    vector = 1 / (RRF_K + vector_rank) if vector_rank else None if pending else 0.0
    return _fused(None if mode == "vector" else fts, None if mode == "fts" else vector)


def ordered(fused: Mapping[int, Fused]) -> list[tuple[int, Fused]]:
    """Returns pairs of chunk id and score, by the rounded score, then by chunk id."""
    return sorted(fused.items(), key=lambda item: (-item[1].score, item[0]))


def _short(number: float | None) -> float | None:
    return None if number is None else round(number, PLACES)


def _fused(fts: float | None, vector: float | None) -> Fused:
    score = round((fts or 0.0) + (vector or 0.0), PLACES)
    return Fused(score, _short(fts), _short(vector))
