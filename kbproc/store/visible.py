"""A store as somebody sees it who may not see all.

Owns: the store narrowed to a Sight.
Refuses to know: whose Sight it is, and methods.

Whoever may see everything gets the store itself. Anybody else gets this in its place, so
that a read can't forget to look: all that it finds, counts and names is narrowed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeVar, cast

import msgspec

from kbproc.store.snapshot import Snapshot
from kbproc.views.catalog.reader import Sight

if TYPE_CHECKING:
    from kbproc.store.state import Freshness, State

S = TypeVar("S", bound="State")


def narrowed(state: S, sight: Sight | None) -> S:
    """The store, or a past of it, as far as it may be seen."""
    return state if sight is None else cast(S, _Narrowed(state, sight))


class _Narrowed:
    """In the place of a store; what is not said here is the store's own."""

    _state: State
    _sight: Sight

    def __init__(self, state: State, sight: Sight) -> None:
        vars(self).update(_state=state, _sight=sight)

    def __getattr__(self, name: str) -> Any:
        return getattr(vars(self)["_state"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(vars(self)["_state"], name, value)

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
        waiting = self._state.embedding.pending_documents()
        seen = snapshot.queries.documents_by_id(waiting)
        count = sum(chunks for id, chunks in waiting.items() if id in seen)
        return msgspec.structs.replace(freshness, pending_embeddings=count)
