"""One immutable state of the vector view, and the search over it.

Owns: candidates from graph and flat tail, and restriction masks. Every score that leaves this
file is recomputed from f16 values (models/exact.py), which graph and pack hold alike, so that it
does not depend on which structure found the chunk or on what was found beside it.
Refuses to know: the log, the catalog, and how the state came about.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from kbproc.log.record import Position
from kbproc.models.exact import Codes, cosines, member, nearest
from kbproc.models.graph import Graph, stored
from kbproc.models.pack import VectorPack
from kbproc.views.restriction import Restriction

SLOT = np.dtype([("chunk", "<i8"), ("document", "<i8"), ("kb", "<i8"), ("row", "<i8")])
Float64s = NDArray[np.float64]
# Told between which cosines each of the others lies (nan: it has none): which of them are of
# interest, and which cosine of what is found is at least.
Reach = Callable[[Float64s, Float64s], tuple[NDArray[np.bool_], float]]


@dataclass(frozen=True, kw_only=True)
class VectorSnapshot:
    """What was searchable at `position`. Many threads may search it at once.

    slots: shape (n,), dtype SLOT, in order of arrival; alive: shape (n,); tail: unit vectors of the
    slots [graph.size, n), shape (n − graph.size, dim); codes: of the tail. vector_seq: everything
    up to this seq is embedded. pending_count: chunks that still wait for their vector.
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

    def __len__(self) -> int:
        """Searchable chunks."""
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
        """The k nearest live chunks: (chunk ids, cosines), best first, ties by id.

        query: shape (dim,); zero or not finite finds nothing. Exact where there is no graph, where
        the restriction leaves less than half of it, or with `exact`; otherwise a larger ef_search
        misses less. Fewer than k come back only where fewer are left.
        """
        ids, scores, _ = self.compared(
            query, k, (), restriction=restriction, ef_search=ef_search, exact=exact
        )
        return ids, scores

    def compared(
        self,
        query: NDArray[np.float32],
        k: int,
        others: Sequence[int],
        *,
        restriction: Restriction | None = None,
        ef_search: int = 64,
        exact: bool = False,
        reach: Reach | None = None,
    ) -> tuple[NDArray[np.int64], Float64s, Float64s]:
        """What `search` finds, and if it may find any, what `cosines` tells of the `others`.

        `reach`: what is of no interest may be missing, and nan.
        """
        norm, told = float(np.linalg.norm(query)), np.full(len(others), np.nan)
        if not 0.0 < norm < np.inf or k < 1:
            return np.empty(0, np.int64), np.empty(0, np.float64), told
        unit = np.ascontiguousarray(query / norm, np.float32)
        mask, first = self._mask(restriction), len(self.slots) - len(self.tail)
        known, more = self._slots_of(others)
        bounds, least = self.codes.bounds(unit, self.tail, mask[first:]), -np.inf
        if reach and bounds and not first:
            both, scale = np.full((2, len(known)), np.nan), self.pack.scale
            both[:, known] = bounds.of(more, scale)
            needed, floor = reach(*both)
            known, more, least = known & needed, more[needed[known]], scale.unscaled(floor)
        slots = nearest(self.tail, unit, k, mask[first:], bounds=bounds, least=least) + first
        if self.graph is not None:
            view = 0 if exact else ef_search
            slots = np.append(self.graph.nearest(unit, k, mask[:first], view), slots)
        scores = self._cosines(query, np.concatenate([slots, more]))
        told[known] = scores[len(slots) :]
        ids, scores = self.slots["chunk"][slots], scores[: len(slots)]
        order = np.lexsort((ids, -scores))
        order = order[np.isfinite(scores[order])][:k]
        return ids[order], scores[order], told

    def cosines(
        self, query: NDArray[np.float32], chunk_ids: NDArray[np.int64] | Sequence[int]
    ) -> NDArray[np.float64]:
        """Cosine with each chunk, shape (len(chunk_ids),); nan where it is pending or unknown."""
        known, slots = self._slots_of(chunk_ids)
        result = np.full(len(known), np.nan)
        result[known] = self._cosines(query, slots)
        return result

    def _slots_of(
        self, chunk_ids: NDArray[np.int64] | Sequence[int]
    ) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
        """Which of the chunks have a vector, and the slots of those."""
        wanted = np.asarray(chunk_ids, np.int64)
        ids, slots = self._by_chunk if len(wanted) else (wanted, wanted)
        if not len(ids):
            return np.zeros(len(wanted), np.bool_), ids
        at = np.minimum(np.searchsorted(ids, wanted), len(ids) - 1)
        known = ids[at] == wanted
        return known, slots[at[known]]

    @cached_property
    def _by_chunk(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Live chunks, sorted by id, and their slots."""
        live = np.flatnonzero(self.alive)
        ids: NDArray[np.int64] = self.slots["chunk"][live]
        order = np.argsort(ids, kind="stable")
        return ids[order], live[order]

    def _cosines(self, query: NDArray[np.float32], slots: NDArray[np.int64]) -> NDArray[np.float64]:
        return cosines(
            query, stored(self.graph, self.pack, slots, self.slots["row"]), self.pack.scale
        )

    def _mask(self, restriction: Restriction | None) -> NDArray[np.bool_]:
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
