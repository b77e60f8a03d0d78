"""What a read sees of a store: now, as it was, or as far as somebody may see it.

Owns: the interface that the live store, an earlier position and a narrowed store share, what
a read asks of the store's model, and how far each index is.
Refuses to know: who reads, and what.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

from msgspec import Struct

from kbproc.base.errors import KbprocError
from kbproc.log.interface import Log
from kbproc.models.fluency import FLUENT, Fluency
from kbproc.models.reranking.interface import Reranker
from kbproc.sources.blobs import Blobs
from kbproc.store.lane import Lane, Turns
from kbproc.store.snapshot import Shown, Snapshot
from kbproc.views.catalog.reader import Sight
from kbproc.views.catalog.rows import IndexRow

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from kbproc.models.pack import VectorPack
    from kbproc.views.vectors.view import Vectors

T = TypeVar("T")
IndexStatus = Literal["ready", "pending", "failed"]
ModelState = Literal["off", "missing", "not ready", "preparing", "ready"]


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
    @property
    def status_when_new(self) -> IndexStatus:
        """Of a document that has just been written."""

    @property
    def vector_seq(self) -> int:
        """Everything up to here is embedded."""

    @property
    def pending_count(self) -> int:
        """Chunks that still lack a vector."""

    def query_vector(self, text: str) -> tuple[NDArray[np.float32] | None, str | None]:
        """The query's vector, or None and why there is none."""

    def fluency(self, text: str, *, is_foreign: bool = False) -> Fluency:
        """How well the model knows a text that it has made a vector of; see Embedder."""

    def searching(self) -> AbstractContextManager[None]:
        """While a search runs, embedding in the background waits."""

    def status_of(self, document_id: int) -> IndexStatus: ...
    def pending_documents(self) -> dict[int, int]:
        """document id → chunks that still lack a vector."""

    def ids_with_status(self, status: IndexStatus | None) -> dict[str, Any]:
        """Members of a DocumentFilter that select this index status."""


class StoreModel(Model, Protocol):
    """The live store's model, and what is told of it."""

    @property
    def state(self) -> ModelState: ...
    @property
    def problem(self) -> KbprocError | None:
        """Why it can't be used, if that is known."""

    @property
    def model_name(self) -> str | None: ...
    @property
    def dim(self) -> int | None:
        """How long its vectors are; None until it is ready."""

    def string(self, row: IndexRow) -> str:
        """What of a chunk is embedded; the pack holds its vector under a key made of it."""

    def string_of(self, title: str, section: str | None, text: str) -> str: ...
    @property
    def fingerprint(self) -> str | None:
        """Of what makes its vectors; None until it is ready."""

    def kept(self, strings: Sequence[str]) -> list[bytes | None]:
        """The vectors that there are of these exact strings, 16-bit floats, little-endian."""

    def bring(self, vectors: Mapping[str, bytes]) -> None:
        """What another store of this model has made of these strings; raises store.io."""


class NoModel:
    """In the place of a model while none is attached: nothing is pending, nothing is found."""

    pack = None
    state: ModelState = "off"
    problem = None
    model_name = None
    dim = None
    fingerprint = None
    status_when_new: IndexStatus = "ready"
    vector_seq = 0
    pending_count = 0

    def query_vector(self, text: str) -> tuple[None, str]:
        return None, "No embedding model is configured."

    def fluency(self, text: str, *, is_foreign: bool = False) -> Fluency:
        return FLUENT

    def searching(self) -> AbstractContextManager[None]:
        return contextlib.nullcontext()

    def status_of(self, document_id: int) -> IndexStatus:
        return "ready"

    def pending_documents(self) -> dict[int, int]:
        return {}

    def ids_with_status(self, status: IndexStatus | None) -> dict[str, Any]:
        return {} if status in {None, "ready"} else {"ids": []}

    def string(self, row: IndexRow) -> str:
        return ""

    def string_of(self, title: str, section: str | None, text: str) -> str:
        return ""

    def kept(self, strings: Sequence[str]) -> list[bytes | None]:
        return [None] * len(strings)

    def bring(self, vectors: Mapping[str, bytes]) -> None:
        """There is nowhere to keep them."""


class State(Shown, Protocol):
    """What a read needs; every member holds for the same store and the same Sight."""

    @property
    def vectors(self) -> Vectors | None: ...
    @property
    def model(self) -> Model: ...
    @property
    def reranker(self) -> Reranker: ...
    @property
    def chunks(self) -> int:
        """How many chunks can be seen."""

    def reading(self) -> AbstractContextManager[Snapshot]: ...
    def freshness(self, snapshot: Snapshot) -> Freshness: ...


class SeenStore(State, Protocol):
    """The live store, or as much of it as somebody may see: what methods work with.

    Reading is narrowed; writing goes through the pipeline, which narrows what a decision reads.
    """

    @property
    def folder(self) -> Path: ...
    @property
    def origin(self) -> Path: ...
    @property
    def sight(self) -> Sight | None:
        """How much may be seen; None is everything."""

    @property
    def model(self) -> StoreModel: ...
    @property
    def read_only(self) -> bool: ...
    @property
    def blobs(self) -> Blobs: ...
    @property
    def log(self) -> Log: ...
    @property
    def seq(self) -> int: ...
    def commit(self, work: Callable[[Lane], T]) -> T: ...
    @property
    def turns(self) -> Turns: ...
    def on_change(self, tell: Callable[[], None]) -> None: ...
