"""Searches one immutable state of the vector view.

Candidates come from the graph and the flat tail. Every returned score is recomputed from f16 values
(engine/models/exact.py), which are the same in graph and pack, so that a score does not depend on
the structure that found the chunk or on the other chunks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import simsimd
from msgspec import Struct

from kbproc.engine.log.record import Position
from kbproc.engine.models.exact import Codes, cosines, member, nearest, scaled
from kbproc.engine.models.graph import Graph, stored
from kbproc.engine.models.pack import VectorPack
from kbproc.engine.projections.restriction import Restriction

if TYPE_CHECKING:
    from numpy.typing import NDArray

SLOT = np.dtype([("chunk", "<i8"), ("document", "<i8"), ("kb", "<i8"), ("row", "<i8")])
Float64s: TypeAlias = "NDArray[np.float64]"
# Takes lower and upper bounds of the cosines of some chunks, nan for a chunk without a vector.
# Returns a mask of the chunks whose exact cosines are needed, and the least cosine that is of
# interest among the nearest chunks.
Shortlist: TypeAlias = "Callable[[Float64s, Float64s], tuple[NDArray[np.bool_], float]]"


_BLOCK = 256


class NearPairs(Struct, frozen=True):
    """Pairs of requested chunks, each by its place in the request, with their cosine.

    `embedded`: the places of the chunks that have a vector.
    """

    pairs: list[tuple[int, int, float]]
    embedded: set[int]


class VectorSnapshot(Struct, frozen=True, kw_only=True, dict=True, eq=False):
    """The searchable chunks at `position`. Many threads may search a snapshot at once.

    slots: shape (n,), dtype SLOT, in order of arrival; alive: shape (n,); tail: unit vectors of the
    slots [graph.size, n), shape (n − graph.size, dim); codes: those of the tail's vectors.
    vector_seq: everything up to this seq is embedded. pending_count: chunks without their vector.
    planes: what plane.py keeps.
    """

    pack: VectorPack
    position: Position
    slots: NDArray[np.void]
    alive: NDArray[np.bool_]
    live: int
    tail: NDArray[np.float32]
    codes: Codes
    graph: Graph | None
    kb_codes: dict[str, int]
    pending_count: int
    vector_seq: int
    planes: dict[Any, Any] = {}

    def __len__(self) -> int:
        """Returns the number of searchable chunks."""
        return self.live

    def search(
        self,
        query: NDArray[np.float32],
        k: int,
        *,
        restriction: Restriction | None = None,
        ef_search: int = 64,
        exact: bool = False,
    ) -> tuple[NDArray[np.int64], Float64s]:
        """Returns the k nearest live chunks: (chunk ids, cosines), best first, ties by id.

        query: shape (dim,); one that is zero or not finite finds nothing. The search is exact with
        `exact`, without a graph, and where the restriction leaves less than half of the graph;
        otherwise a larger ef_search misses less. Fewer than k chunks are returned only if the
        restriction leaves fewer.
        """
        ids, scores, _ = self.search_with_cosines(
            query, k, (), restriction=restriction, ef_search=ef_search, exact=exact
        )
        return ids, scores

    def search_with_cosines(
        self,
        query: NDArray[np.float32],
        k: int,
        others: Sequence[int],
        *,
        restriction: Restriction | None = None,
        ef_search: int = 64,
        exact: bool = False,
        shortlist: Shortlist | None = None,
    ) -> tuple[NDArray[np.int64], Float64s, Float64s]:
        """Returns what `search` does, and the cosines of `others`, shape (len(others),).

        A cosine is nan as in `cosines`, and for all of them if the query or k allows no hits.
        `shortlist`: chunks that it does not need may be missing, and their cosines nan.
        """
        norm, other_cosines = float(np.linalg.norm(query)), np.full(len(others), np.nan)
        if not 0.0 < norm < np.inf or k < 1:
            return np.empty(0, np.int64), np.empty(0, np.float64), other_cosines
        unit = np.ascontiguousarray(query / norm, np.float32)
        mask, tail_start = self.mask(restriction), len(self.slots) - len(self.tail)
        has_vector, other_slots = self._slots_of(others)
        bounds, least = self.codes.bounds(unit, self.tail, mask[tail_start:]), -np.inf
        if shortlist and bounds and not tail_start:
            between, scale = np.full((2, len(has_vector)), np.nan), self.pack.scale
            between[:, has_vector] = bounds.of(other_slots, scale)
            needed, floor = shortlist(*between)
            other_slots = other_slots[needed[has_vector]]
            has_vector, least = has_vector & needed, scale.unscaled(floor)
        in_tail = nearest(self.tail, unit, k, mask[tail_start:], bounds=bounds, least=least)
        slots = in_tail + tail_start
        if self.graph is not None:
            breadth = 0 if exact else ef_search
            slots = np.append(self.graph.nearest(unit, k, mask[:tail_start], breadth), slots)
        scores = self._cosines(query, np.concatenate([slots, other_slots]))
        other_cosines[has_vector] = scores[len(slots) :]
        ids, scores = self.slots["chunk"][slots], scores[: len(slots)]
        order = np.lexsort((ids, -scores))
        order = order[np.isfinite(scores[order])][:k]
        return ids[order], scores[order], other_cosines

    def cosines(
        self, query: NDArray[np.float32], chunk_ids: NDArray[np.int64] | Sequence[int]
    ) -> NDArray[np.float64]:
        """Returns the cosine of each chunk, shape (len(chunk_ids),).

        It is nan for a pending or unknown chunk.
        """
        has_vector, slots = self._slots_of(chunk_ids)
        result = np.full(len(has_vector), np.nan)
        result[has_vector] = self._cosines(query, slots)
        return result

    def pairs(
        self,
        chunk_ids: Sequence[int],
        least: float,
        *,
        most: int,
        check: Callable[[], None],
    ) -> NearPairs:
        """Returns the pairs of these chunks with at least that cosine.

        `most`: how many later chunks one chunk is paired with, the nearest. `check` may raise
        between two blocks. 5,000 chunks take a second, on this thread alone.
        """
        has_vector, slots = self._slots_of(chunk_ids)
        vectors = stored(self.graph, self.pack, slots, self.slots["row"])
        norms = np.sqrt(np.vecdot(vectors, vectors))
        is_usable = np.isfinite(norms) & (norms > 0)
        places = np.flatnonzero(has_vector)[is_usable]
        units = np.ascontiguousarray(vectors[is_usable] / norms[is_usable, None], np.float32)
        pairs: list[tuple[int, int, float]] = []
        for first in range(0, len(units), _BLOCK):
            check()
            block = units[first : first + _BLOCK]
            products = simsimd.cdist(block, units[first:], metric="dot", out_dtype="float32")
            values = scaled(np.asarray(products, np.float64), self.pack.scale)
            for row, line in enumerate(values):
                line[: row + 1] = -np.inf
                near = np.flatnonzero(line >= least)
                if len(near) > most:
                    near = near[np.argsort(-line[near], kind="stable")[:most]]
                one = int(places[first + row])
                pairs += [(one, int(places[first + at]), float(line[at])) for at in near]
        return NearPairs(pairs, set(places.tolist()))

    def _slots_of(
        self, chunk_ids: NDArray[np.int64] | Sequence[int]
    ) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
        """Returns a mask of the chunks that have a vector, and the slots of these."""
        requested_ids = np.asarray(chunk_ids, np.int64)
        ids, slots = self._by_chunk if len(requested_ids) else (requested_ids, requested_ids)
        if not len(ids):
            return np.zeros(len(requested_ids), np.bool_), ids
        at = np.minimum(np.searchsorted(ids, requested_ids), len(ids) - 1)
        has_vector = ids[at] == requested_ids
        return has_vector, slots[at[has_vector]]

    @cached_property
    def _by_chunk(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The live chunks, sorted by id, and their slots."""
        live = np.flatnonzero(self.alive)
        ids: NDArray[np.int64] = self.slots["chunk"][live]
        order = np.argsort(ids, kind="stable")
        return ids[order], live[order]

    def _cosines(self, query: NDArray[np.float32], slots: NDArray[np.int64]) -> NDArray[np.float64]:
        return cosines(
            query, stored(self.graph, self.pack, slots, self.slots["row"]), self.pack.scale
        )

    def mask(self, restriction: Restriction | None) -> NDArray[np.bool_]:
        """Returns a mask of the slots whose chunks live and are allowed, shape (n,)."""
        mask = self.alive
        if restriction is None:
            return mask
        if restriction.kbs is not None:
            codes = [self.kb_codes[kb] for kb in restriction.kbs if kb in self.kb_codes]
            mask = mask & member(self.slots["kb"], np.array(sorted(codes), np.int64))
        if codes := [self.kb_codes[kb] for kb in restriction.without if kb in self.kb_codes]:
            mask = mask & ~member(self.slots["kb"], np.array(sorted(codes), np.int64))
        if restriction.documents is not None:
            mask = mask & member(self.slots["document"], restriction.documents)
        if restriction.exclude is not None:
            mask = mask & ~member(self.slots["document"], restriction.exclude)
        return mask
