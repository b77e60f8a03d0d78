"""Holds the slots of the vector view, one for each searchable chunk, in arrays.

Snapshots share these arrays, so rows in use never change: arrays grow at their end, where no
snapshot reads yet; removed slots are marked as dead in a copy; `keep` makes new arrays without the
dead slots.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from kbproc.engine.models.exact import Codes, grown, member, units
from kbproc.engine.models.graph import Graph
from kbproc.engine.models.pack import VectorPack
from kbproc.engine.projections.vectors.manifest import SavedView
from kbproc.engine.projections.vectors.search import SLOT
from kbproc.engine.projections.vectors.waiting import VectorRow

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Slots:
    """The view's slots. The first `graph.size` are in the graph, the others in the flat tail."""

    def __init__(self, pack: VectorPack) -> None:
        self._pack = pack
        self._slots = np.zeros(0, SLOT)
        self._alive = np.zeros(0, np.bool_)
        self._tail = np.zeros((0, pack.dim), np.float32)
        self.codes = Codes(pack.dim)  # for the tail
        self.count = 0
        self.graph: Graph | None = None
        self.kb_codes: dict[str, int] = {}
        self._newest = 0  # no slot is of a document with a greater id

    @property
    def slots(self) -> NDArray[np.void]:
        return self._slots[: self.count]

    @property
    def alive(self) -> NDArray[np.bool_]:
        return self._alive[: self.count]

    @property
    def tail(self) -> NDArray[np.float32]:
        return self._tail[: self.count - self._in_graph]

    @property
    def _in_graph(self) -> int:
        return self.graph.size if self.graph else 0

    def add(self, rows: Sequence[VectorRow], packed: NDArray[np.int64]) -> None:
        """Adds a slot for each row. `packed`: the rows of their vectors in the pack."""
        first = self.count - self._in_graph
        self.append(rows, packed)
        if len(rows):
            self._tail = grown(self._tail, first + len(rows))
            self._tail[first : first + len(rows)] = units(self._pack, packed)

    def append(self, rows: Sequence[VectorRow], packed: NDArray[np.int64]) -> None:
        """Adds slots without their vectors, for which `keep` has to be called.

        So vectors that go into a graph are never in the tail, where they take twice the memory.
        """
        if not len(rows):
            return
        first, count = self.count, self.count + len(rows)
        self._slots = grown(self._slots, count)
        self._alive = grown(self._alive, count)
        new = self._slots[first:count]
        new["chunk"] = [row.chunk_id for row in rows]
        new["document"] = [row.document_id for row in rows]
        new["kb"] = [self._kb_code(row.kb) for row in rows]
        new["row"] = packed
        self._alive[first:count] = True
        self._newest = max(self._newest, int(new["document"].max()))
        self.count = count

    def _kb_code(self, kb: str) -> int:
        if kb not in self.kb_codes:
            self.kb_codes = {**self.kb_codes, kb: len(self.kb_codes)}
        return self.kb_codes[kb]

    def remove(self, documents: NDArray[np.int64]) -> None:
        """Marks the slots of these documents as dead; their ids ascend."""
        # A new document has none, so a write does not read all slots.
        documents = documents[: np.searchsorted(documents, self._newest, "right")]
        if not len(documents):
            return
        is_removed = member(self.slots["document"], documents)
        if is_removed.any():
            self._alive = self._alive.copy()
            self.alive[is_removed] = False

    def keep(self, retained_slots: NDArray[np.int64], graph: Graph | None) -> None:
        """Keeps only these slots, in this order; `graph` holds the first of them."""
        self._slots, self._alive = self._slots[retained_slots], self._alive[retained_slots]
        self.count, self.graph = len(retained_slots), graph
        self._tail = units(self._pack, self._slots["row"][self._in_graph :])
        self.codes = Codes(self._pack.dim)

    def restore(self, saved: SavedView, graph: Graph | None) -> bool:
        """Takes over saved slots; returns False, with no change, if they do not fit the pack."""
        slots = np.frombuffer(saved.slots, SLOT)
        bits = np.frombuffer(saved.alive, np.uint8)
        alive = np.unpackbits(bits, count=len(slots)).view(np.bool_)
        rows = slots["row"][alive]
        if not self._pack.usable(rows).all() or self._pack.keys_digest(rows) != saved.keys:
            return False
        self._slots, self._alive = slots, alive
        self._newest = int(slots["document"].max(initial=0))
        self.kb_codes = {kb: code for code, kb in enumerate(saved.kbs)}
        self.keep(np.arange(len(slots)), graph)
        return True
