"""Searches an earlier position of the store with today's model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbproc.engine.embedding.status import Statuses
from kbproc.engine.store.model import IndexStatus
from kbproc.engine.store.state import StoreModel

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kbproc.engine.projections.vectors.view import Vectors


class PastModel(Statuses):
    """Today's model, with the vectors of the documents of an earlier position."""

    status_when_new: IndexStatus = "ready"  # the past is never written to

    def __init__(self, live: StoreModel, vectors: Vectors | None, seq: int) -> None:
        """`seq`: the earlier position."""
        self._vectors = vectors
        self._seq = seq
        self.pack = live.pack
        self.query_vector = live.query_vector
        self.cosines = live.cosines
        self.fluency = live.fluency
        self.searching = live.searching

    def waits(self, document_id: int) -> bool:
        return self._vectors is not None and self._vectors.waits(document_id)

    def pending_documents(self) -> dict[int, int]:
        return self._vectors.pending_by_document() if self._vectors else {}

    def pending_among(self, chunk_counts: Mapping[int, int]) -> int:
        return self._vectors.pending_among(chunk_counts) if self._vectors else 0

    @property
    def vector_seq(self) -> int:
        return self._vectors.snapshot().vector_seq if self._vectors else self._seq

    @property
    def pending_count(self) -> int:
        return self._vectors.pending_count if self._vectors else 0
