"""The formulas, their rounding, and the order of equals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbproc.knowledge.search.fusion import (
    Contenders,
    Fused,
    Weights,
    blend,
    lean,
    ordered,
    rrf,
)

LAST_PLACE = 1e-6 + 1e-12
KNOWN = st.floats(-1, 1)
cosines = st.none() | KNOWN
scores = st.none() | st.floats(0, 100)


def test_rank_one_in_both_channels() -> None:
    assert rrf(1, 1) == Fused(0.032787, 0.016393, 0.016393)


def test_rrf_channels() -> None:
    assert rrf(None, 2) == Fused(0.016129, 0.016129, 0.0)
    assert rrf(None, 2, pending=True) == Fused(0.016129, 0.016129, None)
    assert rrf(2, None) == Fused(0.016129, 0.0, 0.016129)
    assert rrf(3, 1, "fts") == Fused(0.016393, 0.016393, None)
    assert rrf(3, 1, "vector") == Fused(0.015873, None, 0.015873)


def test_blend_channels() -> None:
    assert blend(0.5, 10.0, 20.0) == Fused(0.5, 0.3, 0.2)
    assert blend(None, 10.0, 20.0) == Fused(0.3, 0.3, None)
    assert blend(-0.5, None, 20.0) == Fused(0.0, 0.0, 0.0)
    assert blend(0.5, 10.0, 20.0, "fts") == Fused(0.5, 0.5, None)
    assert blend(0.5, 10.0, 20.0, "vector") == Fused(0.5, None, 0.5)
    assert blend(0.5, None, 0.0) == Fused(0.2, 0.0, 0.2)


def test_words_that_tell_little_lean_on_meaning(subtests: pytest.Subtests) -> None:
    cases: list[tuple[float, float, float]] = [
        (0.0, 0.0, 1.0),
        (0.1, 0.5, 1.0),
        (0.175, 0.0, 0.5),
        (0.0, 0.7, 0.5),
        (0.25, 0.0, 0.0),  # the text holds much of the query
        (0.1, 0.9, 0.0),  # a name, or a small part of a long question
    ]
    for share, words, expected in cases:
        with subtests.test(share=share, words=words, expected=expected):
            assert lean(share, words) == pytest.approx(expected)


def test_the_weights_of_a_query() -> None:
    assert Weights.of(1.0) == Weights(0.6, 0.4)
    assert Weights.of(1.0, 1.0) == Weights(0.1, 0.9)
    assert Weights.of(0.1, 0.0) == Weights(0.96, 0.04)


@given(cosines, scores, st.floats(0, 100), st.sampled_from(["hybrid", "fts", "vector"]))
def test_a_blend_lies_between_0_and_1_and_adds_up(cosine, bm25, bound, mode) -> None:
    fused = blend(cosine, bm25, bound, mode)
    assert 0 <= fused.score <= 1
    assert abs(fused.score - (fused.fts or 0) - (fused.vector or 0)) <= LAST_PLACE
    assert round(fused.score, 6) == fused.score


@given(st.integers(1, 10_000), st.integers(1, 10_000))
def test_rrf_adds_up(vector: int, fts: int) -> None:
    fused = rrf(vector, fts)
    assert abs(fused.score - (fused.fts or 0) - (fused.vector or 0)) <= LAST_PLACE
    assert fused.score == round(1 / (60 + vector) + 1 / (60 + fts), 6)


def test_a_perfect_match_scores_1() -> None:
    assert blend(1.0, 20.000001, 20.0) == Fused(1.0, 0.6, 0.4)


def test_equals_go_by_chunk_id() -> None:
    fused = {9: Fused(0.5, 0.5, None), 4: Fused(0.5, 0.5, None), 1: Fused(0.25, 0.25, None)}
    assert [chunk_id for chunk_id, _ in ordered(fused)] == [4, 9, 1]


def test_nothing_known_scores_nothing(subtests: pytest.Subtests) -> None:
    for mode in ("hybrid", "fts", "vector"):
        with subtests.test(f"{mode!r:.80}"):
            assert blend(None, None, 0.0, mode).score == 0


@st.composite
def searches(draw: st.DrawFn) -> dict[str, Any]:
    """A query's numbers: what words have found, what meaning has found, and what is not known yet.

    A chunk that words have not returned has at most the BM25 of the last one that they have.
    """
    bound = draw(st.floats(0.5, 50))
    words = draw(st.lists(st.floats(0, bound), min_size=1, max_size=12))
    most = min(words) if draw(st.booleans()) else 0.0
    near = draw(st.lists(st.tuples(KNOWN, st.floats(0, 1)), max_size=12))
    weights = Weights.of(draw(st.floats(0.01, 1)), draw(st.floats(0, 1)))
    return {
        "bound": bound,
        "words": dict(enumerate(words)),
        "of_words": {id: draw(KNOWN) for id in range(len(words))},
        "near": {100 + number: cosine for number, (cosine, _) in enumerate(near)},
        "hidden": {100 + number: share * most for number, (_, share) in enumerate(near)},
        "most": most,
        "weights": weights,
        "depth": draw(st.integers(1, 8)),
        "slack": draw(st.floats(0, 0.2)),
    }


@given(searches())
def test_the_best_by_blended_score_are_contenders(search: dict[str, Any]) -> None:
    """Any change of the formula that its bounds don't follow makes this fail."""
    bound, weights, depth = search["bound"], search["weights"], search["depth"]
    cosine_of = search["of_words"] | search["near"]
    bm25_of = search["words"] | search["hidden"]
    scores = {id: blend(cosine_of[id], bm25_of[id], bound, "hybrid", weights) for id in cosine_of}
    best = {id for id, fused in ordered(scores)[:depth] if fused.score > 0}
    contenders = Contenders(
        search["words"], most=search["most"], bound=bound, depth=depth, weights=weights
    )
    assert best <= set(contenders.within(cosine_of))
    exact = np.array([search["of_words"][id] for id in search["words"]])
    needed, floor = contenders.narrow(exact - search["slack"], exact + search["slack"])
    kept_words = {id for id, is_needed in zip(search["words"], needed, strict=True) if is_needed}
    kept_near = {id for id, cosine in search["near"].items() if cosine >= floor}
    assert best <= kept_words | kept_near
