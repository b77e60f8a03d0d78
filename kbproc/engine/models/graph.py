"""Builds, searches, writes and reads the HNSW graph over many vectors of a pack, by FAISS.

A graph is immutable. Its ids, the slots, are places in the list of pack rows it was built from.
"""

from __future__ import annotations

import importlib
import zlib
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct

from kbproc.base.durable import create
from kbproc.engine.models.exact import dots, slack
from kbproc.engine.models.pack import VectorPack, widened

if TYPE_CHECKING:
    from numpy.typing import NDArray

_LINKS = 32
# At 40, the library's default, one query in sixty is stranded in a far cluster.
_BUILD_DEPTH = 80
# Slots in view for each of `ef`. docs/search.md has the recall with the default of ef_search.
_IN_VIEW = 4
_MOST_FETCHED = 512
# An exact scan of so many takes some 5 ms and misses none. A graph search that fetches enough for
# a filter takes half as long, and may miss one in ten.
_SCAN_LIMIT = 50_000
_SAMPLE = 1024
_STARTS = 8
# About half a second of building, which is how long a cancel may wait.
_BATCH = 2048


class Graph(Struct, frozen=True, kw_only=True, dict=True, eq=False):
    """An immutable HNSW index over slots [0, size).

    `spread`: how far the stored f16 vectors' norms stray from 1.
    """

    index: Any
    size: int
    spread: float

    def nearest(
        self, unit: NDArray[np.float32], k: int, mask: NDArray[np.bool_], ef: int
    ) -> NDArray[np.int64]:
        """Returns the `k` nearest of the slots in the mask, and others; in no order.

        `ef`: the larger it is, the fewer slots are missed; 0: none. None is missed, too, where the
        mask has less than half of the graph's slots, unless they are many.
        """
        live = int(np.count_nonzero(mask))
        count = min(k, live)
        if count == 0:
            return np.empty(0, np.int64)
        # A filtered ranking is the whole ranking without the other slots, so the slots of a large
        # enough fetch that pass the filter are the answer.
        fetch = count * self.size // live + 16
        wide = 2 * live >= self.size or live > _SCAN_LIMIT
        if wide and fetch <= _MOST_FETCHED and ef:
            slots = self._walk(unit, fetch, ef)
            slots = slots[mask[slots]]
            if len(slots) >= count:
                return slots
        return self.scan(unit, count, mask)

    def _walk(self, query: NDArray[np.float32], count: int, ef: int) -> NDArray[np.int64]:
        """Returns about the `count` nearest slots, unfiltered; shape (≤ count,).

        The search walks from slot to slot and keeps the best in view: `count`, and _IN_VIEW more
        for each of `ef`. The wider the view, the fewer slots it misses.
        """
        faiss = _faiss()
        starts, closeness = self._starts(query)
        params = faiss.SearchParametersHNSW(efSearch=count + _IN_VIEW * ef)
        slots, scores = np.empty(count, np.int64), np.empty(count, np.float32)
        read = (faiss.swig_ptr(array) for array in (starts, closeness))
        written = (faiss.swig_ptr(array) for array in (scores, slots))
        together = 2  # FAISS's search type for one walk from all the starts
        self.index.search_level_0(
            1, faiss.swig_ptr(query), count, *read, *written, len(starts), together, params
        )
        return slots[slots >= 0]

    def _starts(self, query: NDArray[np.float32]) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """Returns the slots where a search begins, the nearest of a sample, and their closeness.

        A search from the graph's one entry point ends in a wrong cluster for one query in thirty,
        where clusters are large and far apart.
        """
        slots, vectors = self._sample
        closeness = dots(vectors, query)
        best = np.argsort(-closeness)[:_STARTS]
        return slots[best], closeness[best]

    def vectors(self, slots: NDArray[np.int64]) -> NDArray[np.float32]:
        """Returns the graph's vectors of these slots, shape (len(slots), dim)."""
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
        """Returns slots that surely include the `count` best of those in the mask.

        It fetches more until the last score is lower than the count-th by more than the error of
        rounding.
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
                best: NDArray[np.int64] = slots[0]
                return best
            fetch = min(live, 4 * fetch)


def stored(
    graph: Graph | None, pack: VectorPack, slots: NDArray[np.int64], rows: NDArray[np.int64]
) -> NDArray[np.float32]:
    """Returns the pack's vectors of these slots, to the bit; shape (len(slots), dim).

    `rows`: the pack's row of every slot. Vectors in the graph are read there, because the search
    has just read them, and then no page of the pack has to be read. nan for erased vectors.
    """
    slot_rows = rows[slots]
    if graph is None:
        return pack.vectors(slot_rows)
    beyond = slots >= graph.size
    vectors = graph.vectors(np.where(beyond, 0, slots))
    if beyond.any():
        vectors[beyond] = pack.vectors(slot_rows[beyond])
    vectors[~pack.usable(slot_rows)] = np.nan  # because the graph still has erased vectors
    return vectors


def build_graph(
    pack: VectorPack, rows: NDArray[np.int64], *, threads: int, cancelled: Callable[[], bool]
) -> Graph | None:
    """Builds a graph over these pack rows, in order; returns None if it was cancelled.

    It takes a second for about 5,000 vectors on two threads.
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
    """Writes the graph into a new file; returns its crc32. Raises OSError."""
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
    """Returns the graph in a file, mapped into memory; None if there is no graph.

    The caller must know that the file is whole, because FAISS follows damaged links blindly.
    """
    faiss = _faiss()
    try:
        index = faiss.read_index(str(path), faiss.IO_FLAG_MMAP_IFC)
    except RuntimeError:
        return None
    return Graph(index=index, size=size, spread=spread)


def _faiss() -> Any:
    """Returns FAISS, loaded when first needed; Any, because its stubs lack its wrappers."""
    return importlib.import_module("faiss")
