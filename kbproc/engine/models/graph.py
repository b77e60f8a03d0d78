"""The HNSW graph over many vectors of a pack: build, search, file.

Owns: every call of FAISS. A graph is immutable; its ids, the slots, are the places of
the pack's rows that it was built of.
Refuses to know: chunks, restrictions beyond a bitmap, and the final scores.
"""

from __future__ import annotations

import importlib
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kbproc.base.durable import create
from kbproc.models.exact import dots, slack
from kbproc.models.pack import VectorPack, widened

_LINKS = 32
# At 40, the library's default, one query in sixty is stranded in a far cluster.
_BUILD_DEPTH = 80
# What is found of the ten nearest with the default of ef_search: docs/search.md.
_IN_VIEW = 4
_MOST_FETCHED = 512
# An exact scan of so many takes some 5 ms and misses none. A graph asked for
# enough to survive a filter takes half as long, and may miss one in ten.
_SCAN_LIMIT = 50_000
_SAMPLE = 1024
_STARTS = 8
# About half a second of building: how long a cancel may wait.
_BATCH = 2048


@dataclass(frozen=True, kw_only=True)
class Graph:
    """An HNSW index over slots [0, size), never changed once made.

    `spread`: how far the stored f16 vectors' norms stray from 1.
    """

    index: Any
    size: int
    spread: float

    def nearest(
        self, unit: NDArray[np.float32], k: int, mask: NDArray[np.bool_], ef: int
    ) -> NDArray[np.int64]:
        """The `k` nearest of the slots in the mask, and others; in no order.

        `ef`: the larger, the fewer are missed; 0: none is. None is missed, too, where the mask
        leaves less than half of a graph's slots, unless they are many.
        """
        live = int(np.count_nonzero(mask))
        count = min(k, live)
        if count == 0:
            return np.empty(0, np.int64)
        # A filtered ranking is a prefix of the whole one with the others left
        # out, so the survivors of a wide enough fetch are the answer.
        fetch = count * self.size // live + 16
        wide = 2 * live >= self.size or live > _SCAN_LIMIT
        if wide and fetch <= _MOST_FETCHED and ef:
            found = self._walk(unit, fetch, ef)
            found = found[mask[found]]
            if len(found) >= count:
                return found
        return self.scan(unit, count, mask)

    def _walk(self, query: NDArray[np.float32], count: int, ef: int) -> NDArray[np.int64]:
        """About the `count` nearest slots, unfiltered; shape (≤ count,).

        The search walks from slot to slot and keeps the best that it has seen in view: `count`,
        and _IN_VIEW more for each of `ef`. The wider the view, the fewer it passes by.
        """
        faiss = _faiss()
        starts, closeness = self._starts(query)
        params = faiss.SearchParametersHNSW(efSearch=count + _IN_VIEW * ef)
        slots, scores = np.empty(count, np.int64), np.empty(count, np.float32)
        read = (faiss.swig_ptr(array) for array in (starts, closeness))
        written = (faiss.swig_ptr(array) for array in (scores, slots))
        together = 2  # as FAISS calls it: one walk from all the starts
        self.index.search_level_0(
            1, faiss.swig_ptr(query), count, *read, *written, len(starts), together, params
        )
        return slots[slots >= 0]

    def _starts(self, query: NDArray[np.float32]) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """Where a search begins, and how close that is: the nearest of a sample.

        From the graph's one entry point, one query in thirty ends in a wrong cluster and stays
        there, where clusters are large and far apart.
        """
        slots, vectors = self._sample
        closeness = dots(vectors, query)
        best = np.argsort(-closeness)[:_STARTS]
        return slots[best], closeness[best]

    def vectors(self, slots: NDArray[np.int64]) -> NDArray[np.float32]:
        """As the graph holds them, shape (len(slots), dim)."""
        return widened(self._halves[slots])

    @cached_property
    def _halves(self) -> NDArray[np.float16]:
        """The stored f16 values where FAISS keeps them, shape (size, dim)."""
        faiss = _faiss()
        codes = faiss.downcast_index(self.index.storage).codes
        halves: NDArray[np.float16] = faiss.rev_swig_ptr(codes.data(), codes.size()).view("<f2")
        return halves.reshape(self.size, -1)

    @cached_property
    def _sample(self) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """Slots spread over the order of arrival, and their vectors."""
        slots = np.unique(np.linspace(0, self.size - 1, _SAMPLE).astype(np.int32))
        return slots, self.vectors(slots.astype(np.int64))

    def scan(
        self, unit: NDArray[np.float32], count: int, mask: NDArray[np.bool_]
    ) -> NDArray[np.int64]:
        """A set of slots that surely holds the `count` best of those in the mask.

        Fetches more until the last one fetched is out of reach of the count-th
        by more than rounding could explain.
        """
        faiss = _faiss()
        storage = faiss.downcast_index(self.index.storage)
        bits = np.packbits(mask, bitorder="little")
        params = faiss.SearchParameters(sel=faiss.IDSelectorBitmap(bits))
        live = int(np.count_nonzero(mask))
        fetch = min(live, count + 32)
        slip = slack(unit) + 2 * self.spread
        while True:
            scores, slots = storage.search(unit[None], fetch, params=params)
            if fetch == live or scores[0, -1] < scores[0, count - 1] - slip:
                found: NDArray[np.int64] = slots[0]
                return found
            fetch = min(live, 4 * fetch)


def stored(
    graph: Graph | None, pack: VectorPack, slots: NDArray[np.int64], rows: NDArray[np.int64]
) -> NDArray[np.float32]:
    """What the pack holds of these slots, to the bit; shape (len(slots), dim).

    `rows`: of every slot, the pack's. What the graph has is read there: the search has just been
    there, and no page of the pack need come into memory, too. nan for what was erased.
    """
    wanted = rows[slots]
    if graph is None:
        return pack.vectors(wanted)
    beyond = slots >= graph.size
    vectors = graph.vectors(np.where(beyond, 0, slots))
    if beyond.any():
        vectors[beyond] = pack.vectors(wanted[beyond])
    vectors[~pack.usable(wanted)] = np.nan  # the graph still has what was just erased
    return vectors


def build_graph(
    pack: VectorPack, rows: NDArray[np.int64], *, threads: int, cancelled: Callable[[], bool]
) -> Graph | None:
    """A graph over these pack rows, in order; None where it was cancelled.

    About 5,000 vectors a second on two threads.
    """
    faiss = _faiss()
    faiss.omp_set_num_threads(threads)
    index = faiss.IndexHNSWSQ(
        pack.dim, faiss.ScalarQuantizer.QT_fp16, _LINKS, faiss.METRIC_INNER_PRODUCT
    )
    index.hnsw.efConstruction = _BUILD_DEPTH
    spread = 0.0
    for first in range(0, len(rows), _BATCH):
        if cancelled():
            return None
        vectors = pack.vectors(rows[first : first + _BATCH])
        spread = max(spread, float(np.abs(np.linalg.norm(vectors, axis=1) - 1).max()))
        index.add(vectors)
    return Graph(index=index, size=len(rows), spread=spread)


def write_graph(path: Path, graph: Graph) -> int:
    """Write the graph into a new file; its crc32. Raises OSError."""
    faiss = _faiss()
    crc = 0
    with create(path) as stream:

        def write(data: bytes) -> None:
            nonlocal crc
            crc = zlib.crc32(data, crc)
            stream.write(data)

        faiss.write_index(graph.index, faiss.PyCallbackIOWriter(write))
    return crc


def read_graph(path: Path, *, size: int, spread: float) -> Graph | None:
    """The graph, mapped rather than read; None where there is none.

    FAISS follows damaged links blindly: whoever calls this knows that the file is whole.
    """
    faiss = _faiss()
    try:
        index = faiss.read_index(str(path), faiss.IO_FLAG_MMAP_IFC)
    except RuntimeError:
        return None
    return Graph(index=index, size=size, spread=spread)


def _faiss() -> Any:
    """FAISS, loaded when first needed; its own stubs do not describe its wrappers."""
    return importlib.import_module("faiss")
