"""One immutable state of the vector view, and the search over it.

Owns: candidates from graph and flat tail, and restriction masks. Every score that leaves this
file is recomputed from f16 values (models/exact.py), which graph and pack hold alike, so that it
does not depend on which structure found the chunk or on what was found beside it.
Refuses to know: the log, the catalog, and how the state came about.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from kbproc.log.record import Position
from kbproc.models.exact import cosines, member
from kbproc.models.graph import Graph, stored
from kbproc.models.pack import VectorPack, dots
from kbproc.views.restriction import Restriction

SLOT = np.dtype([("chunk", "<i8"), ("document", "<i8"), ("kb", "<i8"), ("row", "<i8")])

_MOST_FROM_GRAPH = 512
# An exact scan of so many takes some 5 ms and misses none. A graph asked for
# enough to survive a filter takes half as long, and may miss one in ten.
_SCAN_LIMIT = 50_000


@dataclass(frozen=True, kw_only=True)
class VectorSnapshot:
    """What was searchable at `position`. Many threads may search it at once.

    slots: shape (n,), dtype SLOT, in order of arrival; alive: shape (n,);
    tail: unit vectors of slots [graph.size, n), shape (n − graph.size, dim).
    vector_seq: everything up to this seq is embedded. pending_count: chunks
    that still wait for their vector.
    """

    pack: VectorPack
    position: Position
    slots: NDArray[np.void]
    alive: NDArray[np.bool_]
    live: int
    tail: NDArray[np.float32]
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
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """The k nearest live chunks: (chunk ids, cosines), best first, ties by id.

        query: shape (dim,); zero or not finite finds nothing. Exact where there
        is no graph, where the restriction leaves less than half of it, or with
        `exact`; otherwise a larger ef_search misses less. Fewer than k come
        back only where fewer are left.
        """
        norm = float(np.linalg.norm(query))
        if not 0.0 < norm < np.inf or k < 1:
            return np.empty(0, np.int64), np.empty(0, np.float64)
        unit = np.ascontiguousarray(query / norm, np.float32)
        mask = self._mask(restriction)
        graph = self._from_graph(unit, k, mask, ef_search, exact)
        slots = np.concatenate([graph, self._from_tail(unit, k, mask)])
        ids: NDArray[np.int64] = self.slots["chunk"][slots]
        scores = self._cosines(query, slots)
        order = np.lexsort((ids, -scores))
        order = order[np.isfinite(scores[order])][:k]
        return ids[order], scores[order]

    def cosines(
        self, query: NDArray[np.float32], chunk_ids: NDArray[np.int64] | Sequence[int]
    ) -> NDArray[np.float64]:
        """Cosine with each chunk, shape (len(chunk_ids),); nan where it is
        pending or unknown."""
        wanted = np.asarray(chunk_ids, np.int64)
        result = np.full(len(wanted), np.nan)
        ids, slots = self._by_chunk
        if len(ids):
            at = np.minimum(np.searchsorted(ids, wanted), len(ids) - 1)
            known = ids[at] == wanted
            result[known] = self._cosines(query, slots[at[known]])
        return result

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

    def _from_graph(
        self, unit: NDArray[np.float32], k: int, mask: NDArray[np.bool_], ef: int, exact: bool
    ) -> NDArray[np.int64]:
        if self.graph is None:
            return np.empty(0, np.int64)
        mask = mask[: self.graph.size]
        live = int(np.count_nonzero(mask))
        count = min(k, live)
        if count == 0:
            return np.empty(0, np.int64)
        # A filtered ranking is a prefix of the whole one with the others left
        # out, so the survivors of a wide enough fetch are the answer.
        fetch = count * self.graph.size // live + 16
        wide = 2 * live >= self.graph.size or live > _SCAN_LIMIT
        if wide and fetch <= _MOST_FROM_GRAPH and not exact:
            found = self.graph.nearest(unit, fetch, ef)
            found = found[mask[found]]
            if len(found) >= count:
                return found
        return self.graph.scan(unit, count, mask, self._slack)

    def _from_tail(
        self, unit: NDArray[np.float32], k: int, mask: NDArray[np.bool_]
    ) -> NDArray[np.int64]:
        first = len(self.slots) - len(self.tail)
        allowed = np.flatnonzero(mask[first:])
        if not len(allowed):
            return allowed
        # Gathering rows costs some ten times what scanning them does.
        few = len(allowed) * 16 < len(self.tail)
        scores = dots(self.tail[allowed], unit) if few else dots(self.tail, unit)[allowed]
        if k < len(scores):
            worst = np.partition(scores, len(scores) - k)[len(scores) - k]
            allowed = allowed[scores >= worst - self._slack]
        return allowed + first

    @property
    def _slack(self) -> float:
        """No float32 dot product of two unit vectors errs by half as much:
        the bound is dim × 2⁻²⁴ (Higham, Accuracy and Stability, §3.1)."""
        return float(self.pack.dim * 2.0**-22)
