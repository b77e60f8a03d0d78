"""Compares vectors one by one, exactly.

A cosine is computed in one way only: row by row in float64, from f16 values as the pack holds them.
Codes of 8 bits tell first which rows are worth that.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import simsimd
from msgspec import Struct

from kbproc.engine.models.calibration import UNSCALED, Scale

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from kbproc.engine.models.pack import VectorPack

# The widest id range for which a lookup table (one byte an id) beats bisection.
_WIDEST_TABLE = 1 << 24
_MANY = 1_000  # reading so many rows from memory takes less time than comparing their codes
_GATHERED = 8  # gathering rows costs some five times as much as scanning them
_IN_CACHE = 256  # rows that stay in the processor's cache


def dots(vectors: NDArray[np.float32], query: NDArray[np.float32]) -> NDArray[np.float32]:
    """Returns each row's dot product, shape (n,), with the query: rows (n, dim), query (dim,).

    It runs on this thread alone: `@` has a thread for every core, each of which spins until the
    others are done. Where a core is busy with something else, that takes ten times as long. With
    one thread `@` takes as long as this, because both wait for memory.
    """
    products: NDArray[np.float32] = np.vecdot(vectors, query)
    return products


def cosines(
    query: NDArray[np.float32], vectors: NDArray[np.float32], scale: Scale = UNSCALED
) -> NDArray[np.float64]:
    """Returns the cosine of the query, shape (dim,), with each vector, shape (n, dim), on the
    model's scale; shape (n,).

    nan for a zero query or vector. The cosine of a query and a vector is the same to the bit,
    whatever other vectors there are: the sum runs within one row only.
    """
    wide, rows = query.astype(np.float64), vectors.astype(np.float64)
    products = np.einsum("ij,j->i", rows, wide)
    norms = np.sqrt(np.einsum("ij,ij->i", rows, rows)) * np.sqrt(np.einsum("i,i", wide, wide))
    with np.errstate(invalid="ignore", divide="ignore"):
        return scaled(np.clip(products / norms, -1.0, 1.0), scale)


def scaled(values: NDArray[np.float64], scale: Scale) -> NDArray[np.float64]:
    """Returns cosines on the model's scale."""
    return values if scale == UNSCALED else np.clip((values - scale.low) / scale.span, -1.0, 1.0)


def slack(unit: NDArray[np.float32]) -> float:
    """Returns more than twice the error of two float32 dot products together.

    All vectors have length 1, as `unit` has. One product errs by at most dim × 2⁻²⁴ (Higham,
    Accuracy and Stability, §3.1).
    """
    return float(len(unit) * 2.0**-22)


def nearest(
    vectors: NDArray[np.float32],
    unit: NDArray[np.float32],
    k: int,
    allowed: NDArray[np.bool_],
    *,
    bounds: Bounds | None = None,
    least: float = -np.inf,
) -> NDArray[np.int64]:
    """Returns rows in their order that surely include the `k` best of those `allowed` whose dot
    product reaches `least`.

    `vectors`: of length 1. `bounds`: of the same rows; with them most rows need not be read.
    """
    rows = np.flatnonzero(allowed) if bounds is None else bounds.best(k, allowed, least)
    if len(rows) <= k:
        return rows
    few = len(rows) * _GATHERED < len(vectors)
    scores = dots(vectors[rows], unit) if few else dots(vectors, unit)[rows]
    return rows[scores >= max(least, _kth(scores, k)) - slack(unit)]


def _kth(scores: NDArray[Any], k: int) -> float:
    """Returns the k-th best score; −inf if there are fewer scores."""
    at = len(scores) - k
    return float(np.partition(scores, at)[at]) if at >= 0 else -np.inf


class Bounds(Struct, frozen=True):
    """The bounds of dot products: `scores`, shape (n,), err by at most
    errors · (1 + missed) + missed.

    `worst`: the greatest of the errors.
    """

    scores: NDArray[np.float32]
    errors: NDArray[np.float32]
    worst: float
    missed: float

    def of(self, rows: NDArray[np.int64], scale: Scale = UNSCALED) -> NDArray[np.float64]:
        """Returns lower and upper bounds of these rows as cosines on a scale; shape (2, n)."""
        scores = self.scores[rows].astype(np.float64)
        errors = self.errors[rows] * (1 + self.missed) + self.missed
        return scaled(np.stack((scores - errors, scores + errors)), scale)

    def best(self, k: int, allowed: NDArray[np.bool_], least: float) -> NDArray[np.int64]:
        """Returns rows that surely include the `k` best of those `allowed` that reach `least`."""
        widest = self.worst * (1 + self.missed) + self.missed
        rows: NDArray[np.int64] = np.flatnonzero(self.scores >= least - widest)
        rows = rows[allowed[rows]]
        if len(rows) > k:
            low, high = self.of(rows)
            rows = rows[high >= max(least, _kth(low, k))]
        return rows


class Codes:
    """Vectors of length 1 in 8 bits a value: a quarter of the memory that a scan has to wait for.

    The distance of each vector from its code is known, so that codes tell for sure which vectors
    are not near a query. Threads may share them.
    """

    def __init__(self, dim: int) -> None:
        self._values = np.zeros((0, dim), np.int8)
        self._steps = np.zeros(0, np.float32)
        self._errors = np.zeros(0, np.float32)
        self._worst = 0.0  # error
        self._count = 0
        self._is_used = False
        self._lock = threading.Lock()

    def _make(self, vectors: NDArray[np.float32]) -> None:
        with self._lock:
            self._values = grown(self._values, len(vectors))
            self._steps = grown(self._steps, len(vectors))
            self._errors = grown(self._errors, len(vectors))
            for first in range(self._count, len(vectors), _IN_CACHE):
                block = slice(first, min(first + _IN_CACHE, len(vectors)))
                values, steps, errors = coded(vectors[block])
                self._values[block], self._steps[block], self._errors[block] = values, steps, errors
                self._worst = max(self._worst, float(np.nanmax(errors)))
                self._count = block.stop

    def bounds(
        self, unit: NDArray[np.float32], vectors: NDArray[np.float32], allowed: NDArray[np.bool_]
    ) -> Bounds | None:
        """Returns bounds of the dot products of these `vectors` with `unit`; None if reading the
        vectors takes no longer.

        Codes are made at the second call, some 0.5 µs for each: a process that searches once has no
        use for them.

        x·q − x̂·q̂ = (x − x̂)·q + x̂·(q − q̂), and by Cauchy and Schwarz neither product exceeds
        that of the lengths.
        """
        count, live = len(vectors), int(np.count_nonzero(allowed))
        if live < _MANY or live * _GATHERED < count:
            return None
        was_used, self._is_used = self._is_used, True
        if not was_used:
            return None
        if self._count < count:
            self._make(vectors)
        value, (step,), (missed,) = coded(unit[None])
        products = simsimd.cdist(self._values[:count], value, metric="dot", out_dtype="float32")
        scores = np.asarray(products)[:, 0]
        scores *= self._steps[:count]
        scores *= step
        return Bounds(scores, self._errors[:count], self._worst, float(missed) + slack(unit))


def coded(
    vectors: NDArray[np.float32],
) -> tuple[NDArray[np.int8], NDArray[np.float32], NDArray[np.float32]]:
    """Returns each vector as whole numbers, shape (n, dim), times a step, shape (n,); and the
    distance between both, shape (n,).
    """
    steps = np.abs(vectors).max(axis=1) / np.float32(127)
    steps[steps == 0] = 1
    scaled = vectors / steps[:, None]
    values = np.rint(scaled)
    scaled -= values
    return values.astype(np.int8), steps, np.sqrt(np.vecdot(scaled, scaled)) * steps


def member(values: NDArray[np.int64], ids: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Returns which of `values` are among `ids` (sorted); shape of `values`."""
    if not len(ids):
        return np.zeros(len(values), np.bool_)
    if ids[-1] - ids[0] < _WIDEST_TABLE:
        return np.isin(values, ids, kind="table")
    places = np.minimum(np.searchsorted(ids, values), len(ids) - 1)
    result: NDArray[np.bool_] = ids[places] == values
    return result


def units(pack: VectorPack, rows: NDArray[np.int64]) -> NDArray[np.float32]:
    """Returns the vectors of these rows of the pack, each of length 1."""
    result = np.empty((len(rows), pack.dim), np.float32)
    for first in range(0, len(rows), _IN_CACHE):
        vectors = pack.vectors(rows[first : first + _IN_CACHE])
        norms = np.sqrt(np.vecdot(vectors, vectors))
        norms[norms == 0] = 1
        np.divide(vectors, norms[:, None], out=result[first : first + _IN_CACHE])
    return result


def grown(array: NDArray[Any], count: int) -> NDArray[Any]:
    """Returns the array with room for `count` rows; its size doubles where it must be copied."""
    if count <= len(array):
        return array
    larger = np.zeros((max(count, 2 * len(array), 64), *array.shape[1:]), array.dtype)
    larger[: len(array)] = array
    return larger
