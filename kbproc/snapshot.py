"""What one read sees.

Owns: a published position with its full-text index, and pinning the catalog
to the same position.
Refuses to know: who publishes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from kbproc.views.fulltext_search import FullTextSnapshot
    from kbproc.views.queries import Head, Queries


class Published:
    """What readers see: a position, and the full-text index at it."""

    def __init__(self, head: Head, fulltext: FullTextSnapshot) -> None:
        self.head = head
        self.fulltext = fulltext
        self.chunks = fulltext.num_docs

    @property
    def seq(self) -> int:
        return self.head.seq


class Shown(Protocol):
    """What a store shows to readers."""

    published: Published

    def borrow(self) -> Queries: ...
    def give_back(self, queries: Queries) -> None: ...
    def wait_for(self, seq: int, timeout_s: float | None) -> bool: ...


class Snapshot:
    """One committed state for one read; belongs to one thread."""

    def __init__(self, store: Shown) -> None:
        self._store = store
        self._queries: Queries | None = None
        self.published = store.published

    @property
    def seq(self) -> int:
        return self.published.seq

    @property
    def queries(self) -> Queries:
        """The catalog at `seq`."""
        if self._queries is None:
            self._queries = self._pin()
        return self._queries

    @property
    def fulltext(self) -> FullTextSnapshot:
        self.queries  # noqa: B018  both sides must show the same position
        return self.published.fulltext

    def _pin(self) -> Queries:
        queries = self._store.borrow()
        while True:
            self.published = self._store.published
            queries.begin()
            if queries.head().seq == self.published.seq:
                return queries
            queries.end()  # a commit is being shown this very moment
            self._store.wait_for(self.published.seq + 1, 1.0)

    def close(self) -> None:
        if self._queries is not None:
            self._queries.end()
            self._store.give_back(self._queries)
            self._queries = None
