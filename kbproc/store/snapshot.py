"""What one read sees.

Owns: a published position with its full-text index, pinning the catalog to the
same position, and the cursors that readers are lent.
Refuses to know: who publishes.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from kbproc.base.errors import KbprocError
from kbproc.views.catalog.queries.all import Queries
from kbproc.views.catalog.reader import EVERYTHING, Sight
from kbproc.views.catalog.rows import Head, HitRow, Roster

if TYPE_CHECKING:
    from kbproc.views.catalog.catalog import Catalog
    from kbproc.views.fulltext.search import FullTextSnapshot


class Moved(Exception):
    """A commit came between two looks; the read begins again, pinned."""


class Published:
    """What readers see: a position, and the full-text index and the roster at it."""

    def __init__(self, head: Head, fulltext: FullTextSnapshot, roster: Roster) -> None:
        self.head = head
        self.fulltext = fulltext
        self.roster = roster
        self.chunks = fulltext.num_docs

    @property
    def seq(self) -> int:
        return self.head.seq


class Readers:
    """The cursors of one catalog, each lent to one reader at a time.

    A retired catalog stays for those who are reading it and goes with the last.
    """

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self._idle: list[Queries] = []
        self._lent = 0
        self._retired = False
        self._lock = threading.Lock()

    def borrow(self, sight: Sight | None = None) -> Queries:

        with self._lock:
            self._lent += 1
            queries = self._idle.pop() if self._idle else None
        queries = queries or Queries(self.catalog.cursor())
        queries.see(sight or EVERYTHING)
        return queries

    def give_back(self, queries: Queries) -> None:
        with self._lock:
            self._lent -= 1
            if not self._retired:
                self._idle.append(queries)
                return
        queries.close()
        self._close_if_unused()

    def retire(self) -> None:
        with self._lock:
            self._retired = True
            idle, self._idle = self._idle, []
        for queries in idle:
            queries.close()
        self._close_if_unused()

    def _close_if_unused(self) -> None:
        with self._lock:
            unused = self._retired and not self._lent
        if unused:
            self.catalog.close()


class Shown(Protocol):
    """What a store shows to readers.

    `version` is odd while a commit is being shown, and never the same again: who
    finds it even and unchanged has read nothing but `published`.
    """

    @property
    def published(self) -> Published: ...
    @property
    def version(self) -> int: ...
    @property
    def broken(self) -> KbprocError | None: ...
    @property
    def readers(self) -> Readers: ...
    def wait_for(self, seq: int, timeout_s: float | None) -> bool: ...


class Snapshot:
    """One committed state for one read; belongs to one thread.

    Asking for `queries` pins the catalog in a transaction. A read that asks for
    nothing but `fulltext` and `hits` is spared that, as a rule. `sight`: what may be
    seen of it; None is everything.
    """

    def __init__(self, store: Shown, sight: Sight | None = None) -> None:
        self._store = store
        self.sight = sight
        self._queries: Queries | None = None
        self._readers = store.readers
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
        readers = self._store.readers
        queries = readers.borrow(self.sight)
        try:
            found = queries.hits(ids)
        finally:
            readers.give_back(queries)
        if self._version % 2 or self._version != self._store.version:
            raise Moved
        return found

    def pin(self) -> None:
        """The catalog first, so that nothing can move later."""
        self.queries  # noqa: B018

    def _pin(self) -> Queries:
        queries = self._begin()
        while queries.head().seq != (published := self._store.published).seq:
            self._end(queries)  # a commit is being shown this very moment
            if self._store.broken is not None:
                raise self._store.broken
            self._store.wait_for(published.seq + 1, 1.0)
            queries = self._begin()
        if self._committed and published.seq != self._published.seq:
            self._end(queries)
            raise Moved
        self._published = published
        return queries

    def _begin(self) -> Queries:
        self._readers = self._store.readers
        queries = self._readers.borrow(self.sight)
        queries.begin()
        return queries

    def _end(self, queries: Queries) -> None:
        queries.end()
        self._readers.give_back(queries)

    def close(self) -> None:
        if self._queries is not None:
            self._end(self._queries)
            self._queries = None
