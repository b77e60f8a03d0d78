"""Which documents have all their vectors, and waiting for those that have not.

Owns: a document's index status, filters that select by it, how many chunks of some documents
still wait, and when waiting is pointless.
Refuses to know: who embeds them, and how long anybody waits.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from kbproc.base.errors import KbprocError
from kbproc.store.state import IndexStatus


class Statuses(ABC):
    """What the status of a document follows from: what waits, and what has failed."""

    problem: KbprocError | None = None

    @abstractmethod
    def waits(self, document_id: int) -> bool:
        """Whether a chunk of it still lacks a vector."""

    @abstractmethod
    def pending_documents(self) -> dict[int, int]:
        """document id → chunks that still lack a vector."""

    @property
    def failed_documents(self) -> dict[int, str]:
        """document id → why the model refuses it."""
        return {}

    def status_of(self, document_id: int) -> IndexStatus:
        if document_id in self.failed_documents:
            return "failed"
        return "pending" if self.waits(document_id) else "ready"

    def ids_with_status(self, status: IndexStatus | None) -> dict[str, Any]:
        """Members of a DocumentFilter that select this index status."""
        if status is None:
            return {}
        pending = set(self.pending_documents())
        failed = self.failed_documents.keys()
        if status == "failed":
            return {"ids": sorted(failed)}
        if status == "pending":
            return {"ids": sorted(pending - failed)}
        return {"not_ids": sorted(pending | failed)}


class Pending:
    """These documents, or all; `chunks` is how many chunks they have."""

    def __init__(
        self, embeddings: Statuses, chunks: dict[int, int], ids: Sequence[int] | None
    ) -> None:
        self._embeddings = embeddings
        self._ids = None if ids is None else set(ids)
        wanted = chunks.keys() if self._ids is None else self._ids
        self.documents = len(wanted)
        self.chunks = sum(chunks.get(id, 0) for id in wanted)

    def _meant(self, id: int) -> bool:
        return self._ids is None or id in self._ids

    def pending(self) -> int:
        """Chunks still without a vector. Raises operation.failed, model.unavailable."""
        found = self._embeddings.failed_documents.items()
        failed = {id: why for id, why in found if self._meant(id)}
        if failed:
            first, why = next(iter(failed.items()))
            raise KbprocError(
                "operation.failed",
                f"Document {first} could not be embedded: {why}",
                detail={"failed": sorted(failed)},
            )
        waiting = self._embeddings.pending_documents().items()
        left = sum(count for id, count in waiting if self._meant(id))
        if left and self._embeddings.problem is not None:
            raise self._embeddings.problem
        return left
