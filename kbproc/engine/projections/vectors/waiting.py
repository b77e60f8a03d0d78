"""Finds pending chunks by id, document and key, and the one that has been pending longest."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterable, Iterator

from msgspec import Struct

from kbproc.engine.projections.catalog.rows import IndexRow


class VectorRow(Struct, frozen=True, array_like=True):
    """A chunk and the key of its vector. `seq`: the log record that added it."""

    chunk_id: int
    document_id: int
    kb: str
    key: bytes
    seq: int = 0


def keyed(rows: Iterable[IndexRow], key: Callable[[IndexRow], bytes]) -> list[VectorRow]:
    return [VectorRow(row.chunk_id, row.document_id, row.label, key(row)) for row in rows]


class PendingRows:
    """The rows of pending chunks in order of arrival. One thread at a time may change it."""

    def __init__(self) -> None:
        self._rows: dict[int, VectorRow] = {}
        # A key has one chunk as a rule, and a set for each would be a third of the memory.
        self._by_key: dict[bytes, int | set[int]] = {}
        self._by_document: dict[int, set[int]] = {}
        self._oldest: list[tuple[int, int]] = []

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[VectorRow]:
        return iter(self._rows.values())

    @property
    def keys(self) -> list[bytes]:
        return list(self._by_key)

    def add(self, row: VectorRow) -> None:
        self._rows[row.chunk_id] = row
        chunks = self._by_key.setdefault(row.key, row.chunk_id)
        if isinstance(chunks, set):
            chunks.add(row.chunk_id)
        elif chunks != row.chunk_id:
            self._by_key[row.key] = {chunks, row.chunk_id}
        self._by_document.setdefault(row.document_id, set()).add(row.chunk_id)
        heapq.heappush(self._oldest, (row.seq, row.chunk_id))

    def take(self, key: bytes) -> list[VectorRow]:
        """Removes the rows under this key and returns them by chunk."""
        chunks = self._by_key.get(key, set())
        return [self._remove(c) for c in (sorted(chunks) if isinstance(chunks, set) else [chunks])]

    def forget(self, documents: Iterable[int]) -> None:
        for document in documents:
            for chunk in list(self._by_document.get(document, ())):
                self._remove(chunk)

    def _remove(self, chunk: int) -> VectorRow:
        row = self._rows.pop(chunk)
        document_chunks, key_chunks = self._by_document[row.document_id], self._by_key[row.key]
        document_chunks.discard(chunk)
        if not document_chunks:
            del self._by_document[row.document_id]
        if isinstance(key_chunks, set) and len(key_chunks) > 1:
            key_chunks.discard(chunk)
        else:
            del self._by_key[row.key]
        return row

    def ids(self, *, newest_first: bool, limit: int | None) -> list[int]:
        ids = reversed(self._rows) if newest_first else iter(self._rows)
        return list(itertools.islice(ids, limit))

    def by_document(self) -> dict[int, int]:
        """Returns the number of pending chunks of each document that has any."""
        return {document: len(ids) for document, ids in self._by_document.items()}

    def count_of(self, document: int) -> int:
        """Returns the number of pending chunks of a document."""
        return len(self._by_document.get(document, ()))

    def has(self, document: int) -> bool:
        return document in self._by_document

    def settled_to(self, seq: int) -> int:
        """Returns the seq up to which no chunk is pending, at most `seq`.

        Removed rows stay in the heap until they are its oldest, and are dropped here.
        """
        while self._oldest:
            oldest, chunk = self._oldest[0]
            row = self._rows.get(chunk)
            if row is not None and row.seq == oldest:
                return min(oldest - 1, seq)
            heapq.heappop(self._oldest)
        return seq
