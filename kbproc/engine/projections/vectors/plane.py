"""Places chunks in a plane, along the first two principal components of their vectors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from kbproc.engine.projections.restriction import Restriction
from kbproc.engine.projections.vectors.search import VectorSnapshot

if TYPE_CHECKING:
    from numpy.typing import NDArray

_FARTHEST = 1.2  # a coordinate of a query, which may lie beyond the chunks


class Plane(Struct, frozen=True, kw_only=True, eq=False):
    """Chunks and their places in [−1, 1]². `total`: the number of chunks before the sample.

    chunks, documents: shape (n,); labels: (n,), codes of `kb_codes`; places: (n, 2).
    centre: (dim,); axes: (dim, 2), scaled to the places.
    """

    total: int
    chunks: NDArray[np.int64]
    documents: NDArray[np.int64]
    labels: NDArray[np.int64]
    places: NDArray[np.float64]
    centre: NDArray[np.float64]
    axes: NDArray[np.float64]

    def place(self, query: NDArray[np.float32]) -> NDArray[np.float64]:
        """Returns the place of a query's vector, shape (2,)."""
        norm = float(np.linalg.norm(query)) or 1.0
        place: NDArray[np.float64] = (query / norm - self.centre) @ self.axes
        return np.clip(place, -_FARTHEST, _FARTHEST)


def plane(snapshot: VectorSnapshot, most: int, restriction: Restriction) -> Plane:
    """Returns the places of at most `most` chunks, an even sample by id.

    The snapshot keeps the last one, because a map is drawn again for each query on it.
    """
    if restriction.documents is not None or restriction.exclude is not None:
        return _plane(snapshot, most, restriction)
    key = (most, restriction.kbs, restriction.without)
    last = snapshot.planes.get(key)
    if last is None:
        last = _plane(snapshot, most, restriction)
        snapshot.planes.clear()
        snapshot.planes[key] = last
    return last


def _plane(snapshot: VectorSnapshot, most: int, restriction: Restriction) -> Plane:
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
    return Plane(
        total=len(live),
        chunks=slots["chunk"],
        documents=slots["document"],
        labels=slots["kb"],
        places=places / spread,
        centre=centre,
        axes=axes / spread,
    )


def _axes(centred: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns the two directions of the greatest variance, shape (dim, 2).

    The greatest component of each is positive, so that the map does not turn over between runs.
    """
    _, vectors = np.linalg.eigh(centred.T @ centred)
    axes: NDArray[np.float64] = vectors[:, [-1, -2]]
    greatest = axes[np.abs(axes).argmax(axis=0), [0, 1]]
    return axes * np.where(greatest < 0, -1.0, 1.0)
