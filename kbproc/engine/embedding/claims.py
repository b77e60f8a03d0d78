"""Hands each pending chunk to one embedder at a time: a thread of this store or a worker."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from kbproc.engine.projections.vectors.view import Vectors


class OtherNodes(Protocol):
    """The other nodes of a cluster."""

    def expected(self, vectors: Vectors) -> Collection[int]:
        """Returns the chunks that another node is expected to embed."""

    def announce(self, keys: Sequence[bytes]) -> None:
        """Notes that this node has just put the vectors of these keys into its pack."""


class Claims:
    """The pending chunks of a store: each is taken by one thread, lent to a worker, or free."""

    def __init__(self, refused: Callable[[], Collection[int]]) -> None:
        """`refused`: chunks that the model refuses for good."""
        self._refused = refused
        self.other_nodes: OtherNodes | None = None
        self._lock = threading.Lock()
        self._taken: set[int] = set()
        self._lent: set[int] = set()

    def take(self, vectors: Vectors | None, most: int) -> list[int]:
        """Takes the newest free chunks, at most so many, until `done`."""
        if vectors is None:
            return []
        before, expected_ids = vectors.position, self._expected(vectors)
        with self._lock:
            ids = self._free(vectors, most, expected_ids, newest_first=True)
            if vectors.position != before:  # another node may embed the chunks that have just come
                return []
            self._taken.update(ids)
        return ids

    def free_count(self, vectors: Vectors | None) -> int:
        """Returns how many pending chunks neither a thread nor a worker has."""
        if vectors is None:
            return 0
        with self._lock:
            return max(0, vectors.pending_count - len(self._taken) - len(self._lent))

    def done(self, ids: Collection[int]) -> None:
        with self._lock:
            self._taken.difference_update(ids)

    def lend(self, vectors: Vectors, most: int, keep: int) -> list[int]:
        """Lends the oldest free chunks until `take_back`, and keeps `keep` of the newest here."""
        before, expected_ids = vectors.position, self._expected(vectors)
        with self._lock:
            spare = vectors.pending_count - len(self._lent) - len(self._taken) - keep
            ids = self._free(vectors, min(most, spare), expected_ids, newest_first=False)
            if vectors.position != before:
                return []
            self._lent.update(ids)
        return ids

    def take_back(self, ids: Collection[int]) -> None:
        with self._lock:
            self._lent.difference_update(ids)

    def _expected(self, vectors: Vectors) -> Collection[int]:
        return () if self.other_nodes is None else self.other_nodes.expected(vectors)

    def _free(
        self, vectors: Vectors, most: int, expected_ids: Collection[int], *, newest_first: bool
    ) -> list[int]:
        if most <= 0:
            return []
        not_free = {*expected_ids, *self._refused(), *self._taken, *self._lent}
        pending = vectors.pending(newest_first=newest_first, limit=most + len(not_free))
        return [id for id in pending if id not in not_free][:most]
