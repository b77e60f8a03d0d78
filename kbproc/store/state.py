"""What a read needs to know of the store: how far each index is.

Owns: Freshness and the states of an index.
Refuses to know: who reads.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Literal, Protocol

from msgspec import Struct

from kbproc.store.snapshot import Shown, Snapshot

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from kbproc.views.vectors.pack import VectorPack
    from kbproc.views.vectors.view import Vectors

IndexStatus = Literal["ready", "pending", "failed"]


class Freshness(Struct, kw_only=True, frozen=True):
    """How far each index is; `pending_embeddings` counts chunks that still lack a vector."""

    seq: int
    fulltext_seq: int
    vector_seq: int
    pending_embeddings: int


class Model(Protocol):
    """What a read asks of the store's model; `pack` is None while there are no vectors."""

    @property
    def pack(self) -> VectorPack | None: ...
    def query_vector(self, text: str) -> tuple[NDArray[np.float32] | None, str | None]:
        """The query's vector, or None and why there is none."""
        ...

    def searching(self) -> AbstractContextManager[None]:
        """While a search runs, embedding in the background waits."""
        ...

    def status_of(self, document_id: int) -> IndexStatus: ...
    def pending_documents(self) -> dict[int, int]:
        """document id → chunks that still lack a vector."""
        ...

    def ids_with_status(self, status: IndexStatus | None) -> dict[str, Any]:
        """Members of a DocumentFilter that select this index status."""
        ...


class State(Shown, Protocol):
    """What a read needs; every member holds for the same store and the same Sight."""

    @property
    def vectors(self) -> Vectors | None: ...
    @property
    def embedding(self) -> Model: ...
    def reading(self) -> AbstractContextManager[Snapshot]: ...
    def freshness(self, snapshot: Snapshot) -> Freshness: ...
