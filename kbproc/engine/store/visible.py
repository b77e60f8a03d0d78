"""Narrows a store, or an earlier position of it, to a Sight.

A caller who may see everything gets the store itself. Any other caller gets a narrowed one in its
place, so that a read can't forget the Sight: all that it finds, counts and names is narrowed.
Every member is written out, so that a member that is missing here can't be reached.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from kbproc.engine.log.interface import Log
    from kbproc.engine.models.reranking.reranker import Reranker
    from kbproc.engine.projections.catalog.queries import Queries
    from kbproc.engine.projections.catalog.reader import Sight
    from kbproc.engine.sources.blobs import Blobs
    from kbproc.engine.store.lane import Lane, T, Turns
    from kbproc.engine.store.model import Model
    from kbproc.engine.store.snapshot import Published, Snapshot
    from kbproc.engine.store.state import Freshness, SeenStore, State, StoreModel


def narrowed(state: State, sight: Sight | None) -> State:
    """Returns the state as far as it may be seen; `sight` None is everything."""
    return state if sight is None else VisibleState(state, sight)


def narrowed_store(store: SeenStore, sight: Sight | None) -> SeenStore:
    """Returns the live store as far as it may be seen; `sight` None is everything."""
    return store if sight is None else VisibleStore(store, sight)


class VisibleState:
    """The visible part of a state."""

    def __init__(self, state: State, sight: Sight) -> None:
        self._state = state
        self._sight = sight

    def reading(self) -> AbstractContextManager[Snapshot]:
        return self._state.reading_as(self._sight)

    def reading_as(self, sight: Sight | None) -> AbstractContextManager[Snapshot]:
        return self._state.reading_as(sight)

    def searching(self, *, waits: bool = True) -> AbstractContextManager[Snapshot]:
        return self._state.searching_as(self._sight, waits=waits)

    def searching_as(
        self, sight: Sight | None, *, waits: bool = True
    ) -> AbstractContextManager[Snapshot]:
        return self._state.searching_as(sight, waits=waits)

    @property
    def chunks(self) -> int:
        with self.reading() as snapshot:
            return snapshot.queries.chunk_total()

    def freshness(self, snapshot: Snapshot) -> Freshness:
        """Returns the freshness; only visible chunks count as pending."""
        freshness = self._state.freshness(snapshot)
        if not freshness.pending_embeddings:
            return freshness
        count = self._pending_among_visible(snapshot.queries, freshness.pending_embeddings)
        return msgspec.structs.replace(freshness, pending_embeddings=count)

    def _pending_among_visible(self, queries: Queries, pending_count: int) -> int:
        """Returns how many visible chunks lack a vector.

        It goes through the visible documents or the pending ones, whichever have fewer chunks.
        """
        if queries.chunk_total() < pending_count:
            return self._state.model.pending_among(queries.chunk_counts())
        pending = self._state.model.pending_documents()
        visible = queries.documents_by_id(pending)
        return sum(chunks for id, chunks in pending.items() if id in visible)

    # The members below name nothing that could be hidden, or their readers narrow them.

    @property
    def published(self) -> Published:
        return self._state.published

    def open_vectors(self) -> None:
        self._state.open_vectors()

    @property
    def model(self) -> Model:
        return self._state.model

    @property
    def reranker(self) -> Reranker:
        return self._state.reranker

    def wait_for(self, seq: int, timeout_s: float | None) -> bool:
        return self._state.wait_for(seq, timeout_s)


class VisibleStore(VisibleState):
    """The visible part of the live store; writes go through the whole one."""

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
