"""Places chunks in a plane, along the first two principal components of their vectors."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kbproc.engine.projections.restriction import Restriction
from kbproc.engine.projections.vectors.search import VectorSnapshot

_FARTHEST = 1.2  # a coordinate of a query, which may lie beyond the chunks


@dataclass(frozen=True, kw_only=True)
class Plane:
    """Chunks and their places in [−1, 1]². `total`: the number of chunks before the sample.

    chunks, documents: shape (n,); labels: (n,), codes of `kb_codes`; places: (n, 2); query: (2,).
    """

    total: int
    chunks: NDArray[np.int64]
    documents: NDArray[np.int64]
    labels: NDArray[np.int64]
    places: NDArray[np.float64]
    query: NDArray[np.float64] | None


def plane(
    snapshot: VectorSnapshot,
    most: int,
    *,
    restriction: Restriction | None = None,
    query: NDArray[np.float32] | None = None,
) -> Plane:
    """Returns the places of at most `most` chunks, an even sample by id."""
    live = np.flatnonzero(snapshot.mask(restriction))
    # The ids give the order, because the order of arrival would betray hidden chunks.
    live = live[np.argsort(snapshot.slots["chunk"][live])]
    step = np.linspace(0, max(0, len(live) - 1), min(most, len(live)))
    slots = snapshot.slots[live[step.round().astype(np.int64)]]
    vectors = snapshot.pack.vectors(slots["row"]).astype(np.float64)
    centre = vectors.mean(axis=0) if len(vectors) else np.zeros(vectors.shape[1])
    axes = _axes(vectors - centre)
    places = (vectors - centre) @ axes
    spread = float(np.abs(places).max(initial=0.0)) or 1.0
    place = None
    if query is not None:
        norm = float(np.linalg.norm(query)) or 1.0
        place = np.clip((query / norm - centre) @ axes / spread, -_FARTHEST, _FARTHEST)
    return Plane(
        total=len(live),
        chunks=slots["chunk"],
        documents=slots["document"],
        labels=slots["kb"],
        places=places / spread,
        query=place,
    )


def _axes(centred: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns the two directions of the greatest variance, shape (dim, 2).

    The greatest component of each is positive, so that the map does not turn over between runs.
    """
    _, vectors = np.linalg.eigh(centred.T @ centred)
    axes: NDArray[np.float64] = vectors[:, [-1, -2]]
    greatest = axes[np.abs(axes).argmax(axis=0), [0, 1]]
    return axes * np.where(greatest < 0, -1.0, 1.0)
