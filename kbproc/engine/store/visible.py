"""A store as somebody sees it who may not see all.

Owns: the store, or an earlier position of it, narrowed to a Sight.
Refuses to know: whose Sight it is, and methods.

Whoever may see everything gets the store itself. Anybody else gets this in its place, so
that a read can't forget to look: all that it finds, counts and names is narrowed. Every
member is written out: what is not here can't be reached.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from kbproc.base.errors import KbprocError
from kbproc.log.interface import Log
from kbproc.models.reranking.interface import Reranker
from kbproc.sources.blobs import Blobs
from kbproc.store.lane import Lane, T, Turns
from kbproc.store.snapshot import Published, Readers, Snapshot
from kbproc.store.state import Freshness, Model, SeenStore, State, StoreModel
from kbproc.views.catalog.reader import Sight

if TYPE_CHECKING:
    from kbproc.views.vectors.view import Vectors


def narrowed(state: State, sight: Sight | None) -> State:
    """The state as far as it may be seen; `sight` None is everything."""
    return state if sight is None else VisibleState(state, sight)


def narrowed_store(store: SeenStore, sight: Sight | None) -> SeenStore:
    """The live store as far as it may be seen; `sight` None is everything."""
    return store if sight is None else VisibleStore(store, sight)


class VisibleState:
    """What may be seen of a state."""

    def __init__(self, state: State, sight: Sight) -> None:
        self._state = state
        self._sight = sight

    @contextlib.contextmanager
    def reading(self) -> Iterator[Snapshot]:
        snapshot = Snapshot(self._state, self._sight)
        try:
            yield snapshot
        finally:
            snapshot.close()

    @property
    def chunks(self) -> int:
        with self.reading() as snapshot:
            return snapshot.queries.chunk_total()

    def freshness(self, snapshot: Snapshot) -> Freshness:
        """Counts only what may be seen to wait for its vector."""
        freshness = self._state.freshness(snapshot)
        if not freshness.pending_embeddings:
            return freshness
        waiting = self._state.model.pending_documents()
        seen = snapshot.queries.documents_by_id(waiting)
        count = sum(chunks for id, chunks in waiting.items() if id in seen)
        return msgspec.structs.replace(freshness, pending_embeddings=count)

    # What follows names nothing that could be hidden, or is narrowed by its readers.

    @property
    def published(self) -> Published:
        return self._state.published

    @property
    def broken(self) -> KbprocError | None:
        return self._state.broken

    @property
    def readers(self) -> Readers:
        return self._state.readers

    @property
    def vectors(self) -> Vectors | None:
        return self._state.vectors

    @property
    def model(self) -> Model:
        return self._state.model

    @property
    def reranker(self) -> Reranker:
        return self._state.reranker

    def indexed(self) -> Published:
        return self._state.indexed()

    def folded(self) -> Published:
        return self._state.folded()

    def still(self) -> AbstractContextManager[object]:
        return self._state.still()

    def wait_for(self, seq: int, timeout_s: float | None) -> bool:
        return self._state.wait_for(seq, timeout_s)


class VisibleStore(VisibleState):
    """What may be seen of the live store; what is written goes through the whole one."""

    def __init__(self, store: SeenStore, sight: Sight) -> None:
        super().__init__(store, sight)
        self._store = store

    @property
    def sight(self) -> Sight | None:
        return self._sight

    @property
    def folder(self) -> Path:
        return self._store.folder

    @property
    def model(self) -> StoreModel:
        return self._store.model

    @property
    def origin(self) -> Path:
        return self._store.origin

    @property
    def read_only(self) -> bool:
        return self._store.read_only

    @property
    def blobs(self) -> Blobs:
        return self._store.blobs

    @property
    def log(self) -> Log:
        return self._store.log

    @property
    def seq(self) -> int:
        return self._store.seq

    def commit(self, work: Callable[[Lane], T]) -> T:
        return self._store.commit(work)

    @property
    def turns(self) -> Turns:
        return self._store.turns

    def on_change(self, tell: Callable[[], None]) -> None:
        self._store.on_change(tell)
