"""What one read sees.

Owns: a published position with its full-text index, and pinning the catalog
to the same position.
Refuses to know: who publishes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from kbproc.errors import KbprocError

if TYPE_CHECKING:
    from kbproc.views.fulltext_search import FullTextSnapshot
    from kbproc.views.queries import Head, HitRow, Queries


class Moved(Exception):
    """A commit came between two looks; the read begins again, pinned."""


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
    """What a store shows to readers.

    `version` is odd while a commit is being shown, and never the same again: who
    finds it even and unchanged has read nothing but `published`.
    """

    published: Published
    version: int
    broken: KbprocError | None

    def borrow(self) -> Queries: ...
    def give_back(self, queries: Queries) -> None: ...
    def wait_for(self, seq: int, timeout_s: float | None) -> bool: ...


class Snapshot:
    """One committed state for one read; belongs to one thread.

    Asking for `queries` pins the catalog in a transaction. A read that asks for
    nothing but `fulltext` and `hits` is spared that, as a rule.
    """

    def __init__(self, store: Shown) -> None:
        self._store = store
        self._queries: Queries | None = None
        self._committed = False
        self._version = store.version  # read first: see Shown
        self._published = store.published

    @property
    def published(self) -> Published:
        return self._published

    @property
    def seq(self) -> int:
        return self._published.seq

    @property
    def queries(self) -> Queries:
        """The catalog at `seq`. Raises Moved if that is no longer to be had."""
        if self._queries is None:
            self._queries = self._pin()
        return self._queries

    @property
    def fulltext(self) -> FullTextSnapshot:
        """The full-text index at `seq`; from now on `seq` stays."""
        self._committed = True
        return self._published.fulltext

    def hits(self, ids: Sequence[int]) -> dict[int, HitRow]:
        """Chunks with their documents at `seq`; what is gone is left out. Raises Moved."""
        if self._queries is not None:
            return self._queries.hits(ids)
        queries = self._store.borrow()
        try:
            found = queries.hits(ids)
        finally:
            self._store.give_back(queries)
        if self._version % 2 or self._version != self._store.version:
            raise Moved
        return found

    def pin(self) -> None:
        """The catalog first, so that nothing can move later."""
        self.queries  # noqa: B018

    def _pin(self) -> Queries:
        queries = self._store.borrow()
        while True:
            published = self._store.published
            queries.begin()
            if queries.head().seq == published.seq:
                break
            queries.end()  # a commit is being shown this very moment
            if self._store.broken is not None:
                self._store.give_back(queries)
                raise self._store.broken
            self._store.wait_for(published.seq + 1, 1.0)
        if self._committed and published.seq != self._published.seq:
            queries.end()
            self._store.give_back(queries)
            raise Moved
        self._published = published
        return queries

    def close(self) -> None:
        if self._queries is not None:
            self._queries.end()
            self._store.give_back(self._queries)
            self._queries = None
