"""Today's model over the chunks of then.

Owns: which documents of an earlier position have their vectors.
Refuses to know: how a past is opened.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kbproc.store.state import IndexStatus

if TYPE_CHECKING:
    from kbproc.embedding.background import Embedding
    from kbproc.views.vectors.view import Vectors


class PastEmbedding:
    """Today's model, and which documents of then have their vectors."""

    def __init__(self, live: Embedding, vectors: Vectors | None) -> None:
        self._vectors = vectors
        self.pack = live.pack
        self.query_vector = live.query_vector
        self.searching = live.searching

    def status_of(self, document_id: int) -> IndexStatus:
        waits = self._vectors is not None and self._vectors.waits(document_id)
        return "pending" if waits else "ready"

    def pending_documents(self) -> dict[int, int]:
        return self._vectors.pending_by_document() if self._vectors else {}

    def ids_with_status(self, status: IndexStatus | None) -> dict[str, Any]:
        """Members of a DocumentFilter that select this index status."""
        if status is None:
            return {}
        pending = sorted(self._vectors.pending_by_document()) if self._vectors else []
        if status == "ready":
            return {"not_ids": pending}
        return {"ids": pending if status == "pending" else []}
