"""The slots of the vector view: one for each chunk that can be searched.

Owns: the arrays that a snapshot shows, and changing them so that none in use changes.
Refuses to know: chunks that still wait, threads and files.

Arrays only grow, and rows beyond those that a snapshot reaches are free to write.
What is removed is marked dead in a copy; `keep` drops the dead.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from kbproc.models.exact import Codes, grown, member, units
from kbproc.models.graph import Graph
from kbproc.models.pack import VectorPack
from kbproc.views.vectors.manifest import Saved
from kbproc.views.vectors.search import SLOT
from kbproc.views.vectors.waiting import VectorRow


class Slots:
    """The first `graph.size` are in the graph, the others in the flat tail."""

    def __init__(self, pack: VectorPack) -> None:
        self._pack = pack
        self._slots = np.zeros(0, SLOT)
        self._alive = np.zeros(0, np.bool_)
        self._tail = np.zeros((0, pack.dim), np.float32)
        self.codes = Codes(pack.dim)  # of the tail
        self.count = 0
        self.graph: Graph | None = None
        self.kb_codes: dict[str, int] = {}

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
        """`packed`: where each row's vector lies in the pack."""
        if not len(rows):
            return
        first, count = self.count, self.count + len(rows)
        self._slots = grown(self._slots, count)
        self._alive = grown(self._alive, count)
        self._tail = grown(self._tail, count - self._in_graph)
        new = self._slots[first:count]
        new["chunk"] = [row.chunk_id for row in rows]
        new["document"] = [row.document_id for row in rows]
        new["kb"] = [self._kb_code(row.kb) for row in rows]
        new["row"] = packed
        self._tail[first - self._in_graph : count - self._in_graph] = units(self._pack, packed)
        self._alive[first:count] = True
        self.count = count

    def _kb_code(self, kb: str) -> int:
        if kb not in self.kb_codes:
            self.kb_codes = {**self.kb_codes, kb: len(self.kb_codes)}
        return self.kb_codes[kb]

    def remove(self, documents: NDArray[np.int64]) -> None:
        gone = member(self.slots["document"], documents)
        if gone.any():
            self._alive = self._alive.copy()
            self.alive[gone] = False

    def keep(self, which: NDArray[np.int64], graph: Graph | None) -> None:
        """Only these, in this order; `graph` holds the first of them."""
        self._slots, self._alive = self._slots[which], self._alive[which]
        self.count, self.graph = len(which), graph
        self._tail = units(self._pack, self._slots["row"][self._in_graph :])
        self.codes = Codes(self._pack.dim)

    def restore(self, saved: Saved, graph: Graph | None) -> bool:
        """From what was saved; False, and nothing has changed, if it does not fit the pack."""
        found = np.frombuffer(saved.slots, SLOT)
        bits = np.frombuffer(saved.alive, np.uint8)
        lives = np.unpackbits(bits, count=len(found)).view(np.bool_)
        rows = found["row"][lives]
        if not self._pack.usable(rows).all() or self._pack.keys_digest(rows) != saved.keys:
            return False
        self._slots, self._alive = found, lives
        self.kb_codes = {kb: code for code, kb in enumerate(saved.kbs)}
        self.keep(np.arange(len(found)), graph)
        return True
