"""The HNSW graph that serves above the flat limit: build, search, file.

Owns: every call of FAISS. A graph is immutable; its ids are the numbers of the
first slots of a snapshot.
Refuses to know: chunks, restrictions beyond a bitmap, and the final scores.
"""

from __future__ import annotations

import importlib
import mmap
import os
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kbproc.base.durable import create
from kbproc.models.pack import VectorPack
from kbproc.views.vectors.manifest import GraphFile

_LINKS = 32
# At 40, the library's default, one query in sixty is stranded in a far cluster.
_BUILD_DEPTH = 80
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

    def nearest(self, query: NDArray[np.float32], count: int, ef: int) -> NDArray[np.int64]:
        """About the `count` nearest slots, unfiltered."""
        faiss = _faiss()
        params = faiss.SearchParametersHNSW(efSearch=max(ef, 2 * count))
        slots: NDArray[np.int64] = self.index.search(query[None], count, params=params)[1][0]
        return slots[slots >= 0]

    def scan(
        self, query: NDArray[np.float32], count: int, mask: NDArray[np.bool_], slack: float
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
        while True:
            scores, slots = storage.search(query[None], fetch, params=params)
            if fetch == live or scores[0, -1] < scores[0, count - 1] - slack - 2 * self.spread:
                found: NDArray[np.int64] = slots[0]
                return found
            fetch = min(live, 4 * fetch)


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


def write_graph(folder: Path, graph: Graph) -> GraphFile:
    """Write the graph under a name of its own; raises OSError."""
    faiss = _faiss()
    name = f"vectors-{os.urandom(4).hex()}.faiss"
    crc = 0
    with create(folder / name) as stream:

        def write(data: bytes) -> None:
            nonlocal crc
            crc = zlib.crc32(data, crc)
            stream.write(data)

        faiss.write_index(graph.index, faiss.PyCallbackIOWriter(write))
    return GraphFile(name=name, crc=crc, size=graph.size, spread=graph.spread)


def read_graph(folder: Path, file: GraphFile) -> Graph | None:
    """The graph, mapped rather than read; None where the file is not as written.

    The checksum comes first, because FAISS follows damaged links blindly.
    """
    faiss = _faiss()
    path = folder / file.name
    try:
        with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as m:
            if zlib.crc32(m) != file.crc:
                return None
        index = faiss.read_index(str(path), faiss.IO_FLAG_MMAP_IFC)
    except (OSError, ValueError, RuntimeError):
        return None
    return Graph(index=index, size=file.size, spread=file.spread)


def _faiss() -> Any:
    """FAISS, loaded when first needed; its own stubs do not describe its wrappers."""
    return importlib.import_module("faiss")
