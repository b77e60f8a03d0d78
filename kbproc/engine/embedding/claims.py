"""Which pending chunks are being embedded, here or elsewhere.

Owns: what this store's threads have taken, and what was lent to workers of a cluster.
Refuses to know: how anything is embedded, and who the others are.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from kbproc.views.vectors.view import Vectors


class Others(Protocol):
    """The other nodes of a cluster."""

    def held(self, vectors: Vectors) -> Collection[int]:
        """Chunks that one of them is expected to embed."""

    def made(self, keys: Sequence[bytes]) -> None:
        """These are in the pack, made here just now."""


class Claims:
    """One chunk is taken by one thread, or lent, or free."""

    def __init__(self, refused: Callable[[], Collection[int]]) -> None:
        """`refused`: chunks that the model refuses for good."""
        self._refused = refused
        self.others: Others | None = None
        self._lock = threading.Lock()
        self._taken: set[int] = set()
        self._lent: set[int] = set()

    def take(self, vectors: Vectors | None, most: int) -> list[int]:
        """The newest that are free."""
        if vectors is None:
            return []
        held = self._held(vectors)
        with self._lock:
            ids = self._free(vectors, most, held, newest_first=True)
            self._taken.update(ids)
        return ids

    def done(self, ids: Collection[int]) -> None:
        with self._lock:
            self._taken.difference_update(ids)

    def lend(self, vectors: Vectors, most: int, keep: int) -> list[int]:
        """The oldest that are free, `keep` of the newest left aside, until `take_back`."""
        held = self._held(vectors)
        with self._lock:
            spare = vectors.pending_count - len(self._lent) - len(self._taken) - keep
            ids = self._free(vectors, min(most, spare), held, newest_first=False)
            self._lent.update(ids)
        return ids

    def take_back(self, ids: Collection[int]) -> None:
        with self._lock:
            self._lent.difference_update(ids)

    def _held(self, vectors: Vectors) -> Collection[int]:
        return () if self.others is None else self.others.held(vectors)

    def _free(
        self, vectors: Vectors, most: int, but: Collection[int], *, newest_first: bool
    ) -> list[int]:
        if most <= 0:
            return []
        not_free = {*but, *self._refused(), *self._taken, *self._lent}
        pending = vectors.pending(newest_first=newest_first, limit=most + len(not_free))
        return [id for id in pending if id not in not_free][:most]
