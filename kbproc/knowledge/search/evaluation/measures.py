"""Computes measures of rankings, their confidence intervals, and thresholds of scores."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

Gains = Mapping[str, float]

_RESAMPLES = 1000
_SEED = 1
_BINS = 10
_KEPT = 0.95  # the share of answered questions above the threshold, without unanswered ones


def ndcg(ranked: Sequence[str], gains: Gains, depth: int = 10) -> float:
    """Returns nDCG (Järvelin and Kekäläinen 2002), with linear gains."""
    gained = _discounted([gains.get(id, 0) for id in ranked[:depth]])
    ideal = _discounted(sorted(gains.values(), reverse=True)[:depth])
    return gained / ideal if ideal else 0.0


def _discounted(gains: Sequence[float]) -> float:
    return math.fsum(gain / math.log2(place + 2) for place, gain in enumerate(gains))


def recall(ranked: Sequence[str], gains: Gains, depth: int) -> float:
    answers = {id for id, gain in gains.items() if gain > 0}
    return len(answers.intersection(ranked[:depth])) / len(answers) if answers else 0.0


def hit(ranked: Sequence[str], gains: Gains, depth: int) -> float:
    """Returns R@depth: 1 if one of the first hits answers, else 0."""
    return float(any(gains.get(id, 0) > 0 for id in ranked[:depth]))


def reciprocal_rank(ranked: Sequence[str], gains: Gains) -> float:
    places = (place for place, id in enumerate(ranked, 1) if gains.get(id, 0) > 0)
    return 1 / place if (place := next(places, 0)) else 0.0


MEASURES: Mapping[str, Callable[[Sequence[str], Gains], float]] = {
    "ndcg_at_10": ndcg,
    "r_at_1": lambda ranked, gains: hit(ranked, gains, 1),
    "r_at_5": lambda ranked, gains: hit(ranked, gains, 5),
    "r_at_10": lambda ranked, gains: hit(ranked, gains, 10),
    "recall_at_10": lambda ranked, gains: recall(ranked, gains, 10),
    "recall_at_100": lambda ranked, gains: recall(ranked, gains, 100),
    "mrr": reciprocal_rank,
}


class Mean(NamedTuple):
    """A mean, with the interval that holds nineteen of twenty means of resampled questions."""

    mean: float
    low: float
    high: float


def mean_of(values: Sequence[float]) -> Mean:
    """Returns the mean with its interval, by bootstrap (Efron, 1979).

    The same values always give the same interval.
    """
    if not values:
        return Mean(0.0, 0.0, 0.0)
    pick = random.Random(_SEED)  # noqa: S311  no secret
    count = len(values)
    means = sorted(math.fsum(pick.choices(values, k=count)) / count for _ in range(_RESAMPLES))
    low, high = means[_RESAMPLES // 40], means[-(_RESAMPLES // 40) - 1]
    return Mean(round(math.fsum(values) / count, 4), round(low, 4), round(high, 4))


def histogram(values: Sequence[float]) -> list[int]:
    """Returns how many values lie in each tenth of [0, 1]."""
    counts = [0] * _BINS
    for value in values:
        counts[min(_BINS - 1, max(0, int(value * _BINS)))] += 1
    return counts


class Threshold(NamedTuple):
    """The best score from which on an answer is likely.

    `kept`: the share of answered questions that reach it. `refused`: the share of unanswered
    questions that do not; None without unanswered questions.
    """

    at: float
    kept: float
    refused: float | None


def threshold(answered: Sequence[float], unanswered: Sequence[float]) -> Threshold | None:
    """Returns the threshold that separates answered and unanswered questions best.

    Each kind counts half. Without unanswered questions it is the score that nineteen of twenty
    reach. Returns None without answered questions.
    """
    if not answered:
        return None
    if not unanswered:
        at = sorted(answered)[int(len(answered) * (1 - _KEPT))]
        return Threshold(_floor(at), round(_share_from(at, answered), 3), None)
    candidates = sorted({_floor(value) for value in (*answered, *unanswered)})
    at = max(candidates, key=lambda at: _share_from(at, answered) - _share_from(at, unanswered))
    return Threshold(
        at, round(_share_from(at, answered), 3), round(1 - _share_from(at, unanswered), 3)
    )


def _floor(value: float) -> float:
    """Rounds down to three places, so that a threshold keeps the value that it was made from."""
    return math.floor(value * 1000) / 1000


def _share_from(at: float, values: Sequence[float]) -> float:
    return sum(value >= at for value in values) / len(values)
