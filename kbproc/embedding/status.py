"""Waiting for vectors: what doc.wait looks at.

Owns: how many chunks of some documents still wait, and when waiting is pointless.
Refuses to know: who embeds them, and how long anybody waits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from kbproc.base.errors import KbprocError


class Embeddings(Protocol):
    """What is asked of them."""

    problem: KbprocError | None

    @property
    def failed_documents(self) -> dict[int, str]: ...
    def pending_documents(self) -> dict[int, int]: ...


class Pending:
    """These documents, or all; `chunks` is how many chunks they have."""

    def __init__(
        self, embeddings: Embeddings, chunks: dict[int, int], ids: Sequence[int] | None
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
