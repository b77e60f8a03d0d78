"""Defines the interfaces that reads and methods use of a store.

The live store, an earlier position and a store narrowed to a Sight share them. The module also
defines the interface of the store's model, and the freshness of each index.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

from msgspec import Struct

from kbproc.engine.store.model import IndexStatus, Model

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from kbproc.base.errors import KbprocError
    from kbproc.engine.log.interface import Log
    from kbproc.engine.models.fluency import Fluency
    from kbproc.engine.models.reranking.reranker import Reranker
    from kbproc.engine.projections.catalog.reader import Sight
    from kbproc.engine.projections.catalog.rows import IndexRow
    from kbproc.engine.sources.blobs import Blobs
    from kbproc.engine.store.lane import Lane, Turns
    from kbproc.engine.store.snapshot import Published, Snapshot

T = TypeVar("T")
ModelState = Literal["off", "missing", "not ready", "preparing", "ready"]


class Freshness(Struct, kw_only=True, frozen=True):
    """How far each index is; `pending_embeddings` counts chunks that still lack a vector."""

    seq: int
    fulltext_seq: int
    vector_seq: int
    pending_embeddings: int


class StoreModel(Model, Protocol):
    """The live store's model, with its state and name."""

    @property
    def state(self) -> ModelState: ...
    @property
    def problem(self) -> KbprocError | None:
        """The reason why the model can't be used, if it is known."""

    @property
    def model_name(self) -> str | None: ...
    @property
    def dim(self) -> int | None:
        """The length of its vectors; None until it is ready."""

    def string(self, row: IndexRow) -> str:
        """Returns the string of a chunk that is embedded; the pack's key is made of it."""

    def string_of(self, title: str, section: str | None, text: str) -> str: ...
    @property
    def fingerprint(self) -> str | None:
        """The fingerprint of everything that determines its vectors; None until it is ready."""

    def kept(self, strings: Sequence[str]) -> list[bytes | None]:
        """Returns the pack's vectors of these exact strings, 16-bit floats, little-endian."""

    def bring(self, vectors: Mapping[str, bytes]) -> None:
        """Adds vectors that another store of this model has made, by string. Raises store.io."""


class NoModel:
    """Stands in for a model while none is attached: nothing is pending, nothing is found."""

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

    def cosines(self, vector: NDArray[np.float32], texts: list[str]) -> list[float]:
        return []

    def fluency(self, text: str, *, is_foreign: bool = False) -> Fluency:
        from kbproc.engine.models.fluency import FLUENT

        return FLUENT

    def searching(self) -> AbstractContextManager[None]:
        return contextlib.nullcontext()

    def status_of(self, document_id: int) -> IndexStatus:
        return "ready"

    def pending_documents(self) -> dict[int, int]:
        return {}

    def pending_among(self, chunk_counts: Mapping[int, int]) -> int:
        return 0

    def ids_with_status(self, status: IndexStatus | None) -> dict[str, Any]:
        return {} if status in {None, "ready"} else {"ids": []}

    def string(self, row: IndexRow) -> str:
        return ""

    def string_of(self, title: str, section: str | None, text: str) -> str:
        return ""

    def kept(self, strings: Sequence[str]) -> list[bytes | None]:
        return [None] * len(strings)

    def bring(self, vectors: Mapping[str, bytes]) -> None:
        """Drops the vectors, because there is no pack."""


class State(Protocol):
    """A store as a read uses it; all members are of the same store and the same Sight."""

    @property
    def published(self) -> Published: ...
    def open_vectors(self) -> None:
        """Opens the vectors for later snapshots if they were not. Raises store.io."""

    @property
    def model(self) -> Model: ...
    @property
    def reranker(self) -> Reranker: ...
    @property
    def chunks(self) -> int:
        """The number of chunks that may be seen."""

    def reading(self) -> AbstractContextManager[Snapshot]: ...
    def reading_as(self, sight: Sight | None) -> AbstractContextManager[Snapshot]:
        """Opens a snapshot for another caller's Sight; None is everything."""

    def searching(self, *, waits: bool = True) -> AbstractContextManager[Snapshot]:
        """Opens a snapshot that has the full-text index.

        Without `waits`, the index may lack documents; see Snapshot.unindexed.
        """

    def searching_as(
        self, sight: Sight | None, *, waits: bool = True
    ) -> AbstractContextManager[Snapshot]: ...

    def wait_for(self, seq: int, timeout_s: float | None) -> bool:
        """Waits until readers see `seq`; returns False if the time passed first."""

    def freshness(self, snapshot: Snapshot) -> Freshness: ...


class SeenStore(State, Protocol):
    """The live store as methods use it, whole or narrowed to a Sight.

    Reads are narrowed; writes go through the pipeline, which narrows a decision's reads.
    """

    @property
    def folder(self) -> Path: ...
    @property
    def origin(self) -> Path: ...
    @property
    def sight(self) -> Sight | None:
        """The caller's Sight; None is everything."""

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
