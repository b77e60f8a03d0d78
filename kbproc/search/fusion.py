"""Fusing the two channels: one score out of a cosine and a BM25, or out of two ranks.

Owns: the formulas, how they round, and the order of equals. Refuses to know: where
the numbers come from.

Rounding: each channel's number is rounded to 6 places, and a blended score is exactly
their sum. A score of reciprocal ranks is the sum of the unrounded numbers, rounded
once: rank 1 in both channels is 2/61 = 0.032787, whose halves show as 0.016393 each,
so there the numbers as shown add up within 0.000001.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

Mode = Literal["hybrid", "fts", "vector"]

VECTOR_WEIGHT = 0.4
FULLTEXT_WEIGHT = 0.6
# The vector's weight where words tell nothing.
LEANING_WEIGHT = 0.9
# The share of a query's greatest BM25 that the best text reaches, and how many words' worth that
# is: below the first numbers words tell nothing, from the second ones on they tell as usual. Both
# must be low: long questions have low shares, and a name alone is one word.
_LITTLE_SHARE = (0.1, 0.25)
_FEW_WORDS = (0.5, 0.9)
RRF_K = 60
PLACES = 6


class Weights(NamedTuple):
    """What each channel weighs in a blend; they add up to 1.

    The less the model knows of a query's language, the less its vector weighs, and the more
    the words do. The less of the query any text holds, the more the vector weighs.
    """

    fts: float = FULLTEXT_WEIGHT
    vector: float = VECTOR_WEIGHT

    @classmethod
    def of(cls, known: float, lean: float = 0.0) -> Weights:
        """`known`: how much a vector of the query tells, from 0 to 1; `lean`: see `lean`."""
        weight = VECTOR_WEIGHT + (LEANING_WEIGHT - VECTOR_WEIGHT) * lean
        vector = round(weight * known, PLACES)
        return cls(round(1 - vector, PLACES), vector)


def lean(share: float, words: float) -> float:
    """Returns how little the words of a query tell, from 0 to 1.

    `share`: of the greatest BM25, what the best text reaches; `words`: the same BM25, in words of
    which no other text holds one.
    """
    return _falling(share, *_LITTLE_SHARE) * _falling(words, *_FEW_WORDS)


def _falling(number: float, one_until: float, zero_from: float) -> float:
    return min(1.0, max(0.0, (zero_from - number) / (zero_from - one_until)))


_EVEN = Weights()
# Where one channel is searched alone.
ALONE: Mapping[Mode, Weights] = {"fts": Weights(1, 0), "vector": Weights(0, 1)}


class Fused(NamedTuple):
    """A score, and what each channel gave to it: None where it took no part."""

    score: float
    fts: float | None
    vector: float | None

    def times(self, factor: float) -> Fused:
        fts = None if self.fts is None else round(self.fts * factor, PLACES)
        vector = None if self.vector is None else round(self.vector * factor, PLACES)
        return Fused(round((fts or 0.0) + (vector or 0.0), PLACES), fts, vector)


def blend(
    cosine: float | None,
    bm25: float | None,
    bound: float,
    mode: Mode = "hybrid",
    weights: Weights = _EVEN,
) -> Fused:
    """0.4·max(0, cosine) + 0.6·BM25/U, in [0, 1]; a single channel weighs 1.

    `cosine` None: the vector is pending, counted 0. `bm25` None: the words do not
    match, 0. `weights`: others than 0.4 and 0.6. `bound` is U, which no text's BM25
    exceeds for this query: both terms are absolute, so scores of different queries compare.
    """
    share = min(1.0, (bm25 or 0.0) / bound) if bound > 0 else 0.0  # 32-bit sums may graze U
    if mode == "fts":
        fts = round(share, PLACES)
        return Fused(fts, fts, None)
    likeness = None if cosine is None else min(1.0, max(0.0, cosine))
    if mode == "vector":
        vector = None if likeness is None else round(likeness, PLACES)
        return Fused(vector or 0.0, None, vector)
    fts = round(weights.fts * share, PLACES)
    if likeness is None:
        return Fused(fts, fts, None)
    vector = round(weights.vector * likeness, PLACES)
    return Fused(round(fts + vector, PLACES), fts, vector)


def rrf(
    vector_rank: int | None, fts_rank: int | None, mode: Mode = "hybrid", *, pending: bool = False
) -> Fused:
    """Σ 1/(60 + rank), ranks from 1 (Cormack, Clarke and Büttcher, SIGIR 2009).

    A rank is None, counted 0, where the channel did not find the candidate; `pending`
    says that this is so because its vector is not there yet.
    """
    fts = 1 / (RRF_K + fts_rank) if fts_rank else 0.0
    vector = 1 / (RRF_K + vector_rank) if vector_rank else None if pending else 0.0
    return _fused(None if mode == "vector" else fts, None if mode == "fts" else vector)


def ordered(fused: Mapping[int, Fused]) -> list[tuple[int, Fused]]:
    """(chunk id, score) by score as shown, equals by chunk id."""
    return sorted(fused.items(), key=lambda item: (-item[1].score, item[0]))


def _short(number: float | None) -> float | None:
    return None if number is None else round(number, PLACES)


def _fused(fts: float | None, vector: float | None) -> Fused:
    score = round((fts or 0.0) + (vector or 0.0), PLACES)
    return Fused(score, _short(fts), _short(vector))
