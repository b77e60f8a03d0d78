"""Defines the interface of the embedding model that reads use."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from numpy.typing import NDArray

    from kbproc.engine.models.fluency import Fluency
    from kbproc.engine.models.pack import VectorPack

IndexStatus = Literal["ready", "pending", "failed"]


class Model(Protocol):
    """The store's model as a read uses it; `pack` is None while there are no vectors."""

    @property
    def pack(self) -> VectorPack | None: ...
    @property
    def status_when_new(self) -> IndexStatus:
        """The status of a document that has just been written."""

    @property
    def vector_seq(self) -> int:
        """The seq up to which everything is embedded."""

    @property
    def pending_count(self) -> int:
        """The number of chunks that still lack a vector."""

    def query_vector(self, text: str) -> tuple[NDArray[np.float32] | None, str | None]:
        """Returns the query's vector, or None and the reason in words."""

    def cosines(self, vector: NDArray[np.float32], texts: list[str]) -> list[float]:
        """Returns the cosine of each text with a vector; of no text if the model fails."""

    def fluency(self, text: str, *, is_foreign: bool = False) -> Fluency:
        """Returns how well the model knows a text that it has embedded; see Embedder."""

    def searching(self) -> AbstractContextManager[None]:
        """Makes embedding in the background wait while a search runs."""

    def status_of(self, document_id: int) -> IndexStatus: ...
    def pending_documents(self) -> dict[int, int]:
        """Returns document id → the number of its chunks that still lack a vector."""

    def pending_among(self, chunk_counts: Mapping[int, int]) -> int:
        """Returns how many chunks of these documents still lack a vector.

        `chunk_counts`: document id → the number of its chunks.
        """

    def ids_with_status(self, status: IndexStatus | None) -> dict[str, Any]:
        """Returns the members of a DocumentFilter that select this index status."""
