"""The bounds from codes of vectors are correct and do not change the hits of a search."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from kbproc.engine.models import exact
from kbproc.engine.models.exact import Codes, nearest

DIM, MANY = 48, 1_500
Floats = NDArray[np.float32]
random = np.random.default_rng(3)


def unit(rows: NDArray[np.float64]) -> Floats:
    """Scales rows to length 1; leaves rows of zeros as they are."""
    lengths = np.linalg.norm(rows, axis=-1, keepdims=True)
    return np.divide(rows, lengths, out=np.zeros_like(rows), where=lengths > 0).astype(np.float32)


def even() -> Floats:
    return unit(random.standard_normal((MANY, DIM)))


def spiky() -> Floats:
    """Rows with one great value and many small ones, which a code represents badly."""
    rows = random.standard_normal((MANY, DIM)) * 1e-3
    rows[np.arange(MANY), random.integers(0, DIM, MANY)] = random.choice([-1, 1], MANY)
    return unit(rows)


def sparse() -> Floats:
    """Sparse rows, some of them all zeros."""
    return unit(random.integers(-1, 2, (MANY, DIM)) * (random.random((MANY, DIM)) < 0.05) * 1.0)


def alike() -> Floats:
    return unit(np.ones((MANY, DIM)) + random.standard_normal((MANY, DIM)) * 1e-4)


KINDS: list[Callable[[], Floats]] = [even, spiky, sparse, alike]


@pytest.fixture(params=KINDS, ids=lambda kind: kind.__name__)
def vectors(request: pytest.FixtureRequest) -> Floats:
    rows: Floats = request.param()
    return rows


def bounds_of(codes: Codes, query: Floats, vectors: Floats) -> exact.Bounds:
    """Returns the bounds; asks twice, because codes are built at the second request."""
    every = np.ones(len(vectors), np.bool_)
    bounds = codes.bounds(query, vectors, every) or codes.bounds(query, vectors, every)
    assert bounds is not None
    return bounds


def queries(vectors: Floats) -> list[Floats]:
    near = unit(vectors[7] + random.standard_normal(DIM) * 0.05)
    return [vectors[3], near, *even()[:3], *spiky()[:3], *(-vectors[:2])]


def test_every_dot_product_lies_between_its_bounds(vectors: Floats) -> None:
    codes = Codes(DIM)
    for query in queries(vectors):
        low, high = bounds_of(codes, query, vectors).of(np.arange(MANY))
        true = vectors.astype(np.float64) @ query.astype(np.float64)
        assert (low <= true).all() and (true <= high).all()
        assert (high - low).max() < 0.2


def test_with_codes_the_nearest_are_among_what_is_found(
    vectors: Floats, subtests: pytest.Subtests
) -> None:
    for least in (-np.inf, 0.0, 0.3, 0.999, 2.0):
        for k in (1, 10, 100, 2 * MANY):
            with subtests.test(least=least, k=k):
                codes, allowed = Codes(DIM), random.random(MANY) < 0.7
                for query in queries(vectors):
                    true = vectors.astype(np.float64) @ query.astype(np.float64)
                    ranked = [row for row in np.argsort(-true, kind="stable") if allowed[row]]
                    expected = {int(row) for row in ranked[:k] if true[row] >= least}
                    bounds = bounds_of(codes, query, vectors)
                    rows = nearest(vectors, query, k, allowed, bounds=bounds, least=least)
                    assert expected <= set(rows.tolist())
                    assert allowed[rows].all()
                    assert rows.tolist() == sorted(set(rows.tolist()))
                    without_codes = nearest(vectors, query, k, allowed, least=least)
                    assert expected <= set(without_codes.tolist())


def test_codes_spare_nearly_all_of_the_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    vectors, read = even(), list[int]()
    bounds = bounds_of(Codes(DIM), vectors[3], vectors)

    def counted(rows: Floats, query: Floats) -> Floats:
        read.append(len(rows))
        return np.vecdot(rows, query)

    monkeypatch.setattr(exact, "dots", counted)
    every = np.ones(MANY, np.bool_)
    assert nearest(vectors, vectors[3], 1, every, bounds=bounds).tolist() == [3]
    nearest(vectors, vectors[3], 10, every, bounds=bounds)
    assert sum(read) < MANY // 20


def test_codes_are_made_for_those_that_come_and_when_they_are_asked_for_again() -> None:
    vectors, codes = even(), Codes(DIM)
    query, most = vectors[0], MANY - 300
    assert codes.bounds(query, vectors[:most], np.ones(most, np.bool_)) is None
    first = bounds_of(codes, query, vectors[:most])
    later, fresh = bounds_of(codes, query, vectors), bounds_of(Codes(DIM), query, vectors)
    np.testing.assert_array_equal(later.scores, fresh.scores)
    np.testing.assert_array_equal(later.errors, fresh.errors)
    assert later.worst == fresh.worst
    np.testing.assert_array_equal(first.scores, fresh.scores[:most])
    again = bounds_of(codes, query, vectors[:most])  # for an earlier state
    np.testing.assert_array_equal(again.scores, first.scores)


def test_few_are_read_as_they_are() -> None:
    vectors, codes = even(), Codes(DIM)
    few = np.arange(MANY) < MANY // 20
    for _ in range(3):
        assert codes.bounds(vectors[0], vectors[:999], np.ones(999, np.bool_)) is None
        assert codes.bounds(vectors[0], vectors, few) is None
