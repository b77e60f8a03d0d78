"""Tells which documents have all their vectors, and counts the chunks that are still pending.

The index status of a document, filters that select by it, and the errors that make waiting
pointless follow from pending chunks and from documents that the model refuses.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kbproc.base.errors import KbprocError

if TYPE_CHECKING:
    from kbproc.engine.store.model import IndexStatus


class Statuses(ABC):
    """The index statuses of documents, computed from pending chunks and refused documents."""

    problem: KbprocError | None = None

    @abstractmethod
    def waits(self, document_id: int) -> bool:
        """Returns whether a chunk of the document still lacks a vector."""

    @abstractmethod
    def pending_documents(self) -> dict[int, int]:
        """Returns document id → number of chunks that still lack a vector."""

    @property
    def failed_documents(self) -> dict[int, str]:
        """Document id → the reason why the model refuses it."""
        return {}

    def status_of(self, document_id: int) -> IndexStatus:
        if document_id in self.failed_documents:
            return "failed"
        return "pending" if self.waits(document_id) else "ready"

    def ids_with_status(self, status: IndexStatus | None) -> dict[str, Any]:
        """Returns the members of a DocumentFilter that select this index status."""
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
    """The pending chunks of some documents, or of all: `ids` None.

    `chunks`: document id → number of its chunks.
    """

    def __init__(
        self, embeddings: Statuses, chunks: dict[int, int], ids: Sequence[int] | None
    ) -> None:
        self._embeddings = embeddings
        self._ids = None if ids is None else set(ids)
        selected_ids = chunks.keys() if self._ids is None else self._ids
        self.documents = len(selected_ids)
        self.chunks = sum(chunks.get(id, 0) for id in selected_ids)

    def _selects(self, id: int) -> bool:
        return self._ids is None or id in self._ids

    def pending(self) -> int:
        """Returns the number of chunks without a vector.

        Raises operation.failed for a document that the model refuses, model.unavailable.
        """
        all_failed = self._embeddings.failed_documents.items()
        failed = {id: why for id, why in all_failed if self._selects(id)}
        if failed:
            first, why = next(iter(failed.items()))
            raise KbprocError(
                "operation.failed",
                f"Document {first} could not be embedded: {why}",
                detail={"failed": sorted(failed)},
            )
        counts = self._embeddings.pending_documents().items()
        remaining = sum(count for id, count in counts if self._selects(id))
        if remaining and self._embeddings.problem is not None:
            raise self._embeddings.problem
        return remaining
