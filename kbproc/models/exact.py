"""Vectors compared one by one, exactly.

Owns: the one way a cosine is computed: row by row in float64, from f16 values as the pack holds
them; which rows are worth that; and arrays of rows that grow.
Refuses to know: what the rows stand for, and where they were read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from kbproc.models.calibration import AS_IT_IS, Scale

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from kbproc.models.pack import VectorPack

# The widest id range for which a lookup table (one byte an id) beats bisection.
_WIDEST_TABLE = 1 << 24
_IN_CACHE = 256  # rows that a processor keeps while it goes over them again and again


def dots(vectors: NDArray[np.float32], query: NDArray[np.float32]) -> NDArray[np.float32]:
    """The dot product of each row, shape (n, dim), with the query, shape (dim,); shape (n,).

    On this thread alone: `@` has a thread for every core, each of which spins until the others are
    done. Where a core is busy with something else, that takes ten times as long. With one thread
    it takes as long as this: both wait for memory.
    """
    found: NDArray[np.float32] = np.vecdot(vectors, query)
    return found


def cosines(
    query: NDArray[np.float32], vectors: NDArray[np.float32], scale: Scale = AS_IT_IS
) -> NDArray[np.float64]:
    """Cosine of the query, shape (dim,), with each vector, shape (n, dim), on the model's scale;
    shape (n,).

    nan for a zero query or vector. Bit for bit the same for the same query and
    vector in any company: the sum runs within one row only.
    """
    wide, rows = query.astype(np.float64), vectors.astype(np.float64)
    products = np.einsum("ij,j->i", rows, wide)
    norms = np.sqrt(np.einsum("ij,ij->i", rows, rows)) * np.sqrt(np.einsum("i,i", wide, wide))
    with np.errstate(invalid="ignore", divide="ignore"):
        result: NDArray[np.float64] = np.clip(products / norms, -1.0, 1.0)
    if scale == AS_IT_IS:
        return result
    return np.clip((result - scale.low) / scale.span, -1.0, 1.0)


def slack(unit: NDArray[np.float32]) -> float:
    """Two float32 dot products of vectors of length 1, as this one is, err by less than half as
    much: the bound is dim × 2⁻²⁴ (Higham, Accuracy and Stability, §3.1).
    """
    return float(len(unit) * 2.0**-22)


def nearest(
    vectors: NDArray[np.float32],
    unit: NDArray[np.float32],
    k: int,
    allowed: NDArray[np.bool_],
) -> NDArray[np.int64]:
    """Rows of length 1, in their order, that surely hold the `k` best of those `allowed`."""
    rows = np.flatnonzero(allowed)
    if len(rows) * 16 < len(vectors):  # gathering rows costs some ten times what scanning them does
        scores = dots(vectors[rows], unit)
    else:
        scores = dots(vectors, unit)
        scores = scores if len(rows) == len(vectors) else scores[rows]
    if k < len(scores):
        worst = np.partition(scores, len(scores) - k)[len(scores) - k]
        rows = rows[scores >= worst - slack(unit)]
    return rows


def member(values: NDArray[np.int64], ids: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which of `values` are among `ids` (sorted); shape of `values`."""
    if not len(ids):
        return np.zeros(len(values), np.bool_)
    if ids[-1] - ids[0] < _WIDEST_TABLE:
        return np.isin(values, ids, kind="table")
    found = np.minimum(np.searchsorted(ids, values), len(ids) - 1)
    result: NDArray[np.bool_] = ids[found] == values
    return result


def units(pack: VectorPack, rows: NDArray[np.int64]) -> NDArray[np.float32]:
    """The vectors of these rows of the pack, each of length 1."""
    found = np.empty((len(rows), pack.dim), np.float32)
    for first in range(0, len(rows), _IN_CACHE):
        vectors = pack.vectors(rows[first : first + _IN_CACHE])
        norms = np.sqrt(np.vecdot(vectors, vectors))
        norms[norms == 0] = 1
        np.divide(vectors, norms[:, None], out=found[first : first + _IN_CACHE])
    return found


def grown(array: NDArray[Any], count: int) -> NDArray[Any]:
    """The array with room for `count` rows, doubled where it must be copied."""
    if count <= len(array):
        return array
    larger = np.zeros((max(count, 2 * len(array), 64), *array.shape[1:]), array.dtype)
    larger[: len(array)] = array
    return larger
