"""Measures of a ranking, and how sure they are.

Owns: nDCG, recall, the first hit and its rank; intervals by bootstrap; thresholds.
Refuses to know: what was searched, and how.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

Gains = Mapping[str, float]

_RESAMPLES = 1000
_SEED = 1
_BINS = 10
_KEPT = 0.95  # of the questions that are answered, where no others are known


def ndcg(ranked: Sequence[str], gains: Gains, depth: int = 10) -> float:
    """Järvelin and Kekäläinen 2002, with linear gains."""
    got = _discounted([gains.get(id, 0) for id in ranked[:depth]])
    ideal = _discounted(sorted(gains.values(), reverse=True)[:depth])
    return got / ideal if ideal else 0.0


def _discounted(gains: Sequence[float]) -> float:
    return sum(gain / math.log2(place + 2) for place, gain in enumerate(gains))


def recall(ranked: Sequence[str], gains: Gains, depth: int) -> float:
    wanted = {id for id, gain in gains.items() if gain > 0}
    return len(wanted.intersection(ranked[:depth])) / len(wanted) if wanted else 0.0


def first(ranked: Sequence[str], gains: Gains) -> float:
    """R@1: whether the first hit answers."""
    return float(bool(ranked) and gains.get(ranked[0], 0) > 0)


def reciprocal_rank(ranked: Sequence[str], gains: Gains) -> float:
    places = (place for place, id in enumerate(ranked, 1) if gains.get(id, 0) > 0)
    return 1 / place if (place := next(places, 0)) else 0.0


MEASURES: Mapping[str, Callable[[Sequence[str], Gains], float]] = {
    "ndcg_at_10": ndcg,
    "r_at_1": first,
    "recall_at_10": lambda ranked, gains: recall(ranked, gains, 10),
    "recall_at_100": lambda ranked, gains: recall(ranked, gains, 100),
    "mrr": reciprocal_rank,
}


class Mean(NamedTuple):
    """With the interval that holds nineteen of twenty means of resampled questions."""

    mean: float
    low: float
    high: float


def mean_of(values: Sequence[float]) -> Mean:
    """By bootstrap (Efron, 1979); the same values give the same interval."""
    if not values:
        return Mean(0.0, 0.0, 0.0)
    pick = random.Random(_SEED)  # noqa: S311  no secret
    count = len(values)
    means = sorted(sum(pick.choices(values, k=count)) / count for _ in range(_RESAMPLES))
    low, high = means[_RESAMPLES // 40], means[-(_RESAMPLES // 40) - 1]
    return Mean(round(sum(values) / count, 4), round(low, 4), round(high, 4))


def histogram(values: Sequence[float]) -> list[int]:
    """How many lie in each tenth of [0, 1]."""
    counts = [0] * _BINS
    for value in values:
        counts[min(_BINS - 1, max(0, int(value * _BINS)))] += 1
    return counts


class Threshold(NamedTuple):
    """From which best score on an answer is likely. `kept`: of the questions that are answered;
    `refused`: of those that are not, None where there are none.
    """

    at: float
    kept: float
    refused: float | None


def threshold(answered: Sequence[float], others: Sequence[float]) -> Threshold | None:
    """The one that tells most apart, each kind counting half; without `others`, the one that
    nineteen of twenty questions reach. None without questions.
    """
    if not answered:
        return None
    if not others:
        at = sorted(answered)[int(len(answered) * (1 - _KEPT))]
        return Threshold(_floor(at), round(_from(at, answered), 3), None)
    candidates = sorted({_floor(value) for value in (*answered, *others)})
    at = max(candidates, key=lambda at: _from(at, answered) - _from(at, others))
    return Threshold(at, round(_from(at, answered), 3), round(1 - _from(at, others), 3))


def _floor(value: float) -> float:
    """To three places, and never above the value: a threshold keeps what it was made of."""
    return math.floor(value * 1000) / 1000


def _from(at: float, values: Sequence[float]) -> float:
    return sum(value >= at for value in values) / len(values)
