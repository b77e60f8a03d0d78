"""What readers see, and one read of it.

Owns: a published position with its full-text index, pinning the catalog to the same position,
the cursors that readers are lent, and waking those who wait for a store to change.
Refuses to know: how anything comes to be shown (store.py).
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, NamedTuple, Protocol

from kbproc.base.errors import KbprocError
from kbproc.views.catalog.queries.all import Queries
from kbproc.views.catalog.reader import EVERYTHING, Sight
from kbproc.views.catalog.rows import Head, IndexRow, Roster

if TYPE_CHECKING:
    from kbproc.views.catalog.catalog import Catalog
    from kbproc.views.fulltext.search import FullTextSnapshot, Places


class Moved(Exception):
    """A commit came between two looks: the read begins again, pinned."""


class Recent(NamedTuple):
    """By what the full-text index is behind: documents of which it holds nothing that counts, and
    rows that it does not hold.
    """

    removed: frozenset[int] = frozenset()
    rows: tuple[IndexRow, ...] = ()


class Published:
    """What readers see: a position, the roster at it, and the full-text index.

    `fulltext_seq`: how far the index has come where it is behind; None: it is not. `recent`: by
    what; None: by too much to tell. `agrees`: with what the catalog holds, which some view could
    not follow otherwise.
    """

    def __init__(
        self,
        head: Head,
        fulltext: FullTextSnapshot,
        roster: Roster,
        *,
        fulltext_seq: int | None = None,
        recent: Recent | None = Recent(),  # noqa: B008  it is never changed
        agrees: bool = True,
    ) -> None:
        self.head = head
        self.agrees = agrees
        self.recent = recent
        self.fulltext = fulltext
        self.roster = roster
        self.is_indexed = fulltext_seq is None
        self.indexed_seq = head.seq if fulltext_seq is None else fulltext_seq

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
    """What a store shows to readers."""

    @property
    def published(self) -> Published: ...
    @property
    def broken(self) -> KbprocError | None: ...
    @property
    def readers(self) -> Readers: ...
    def indexed(self) -> Published:
        """What is shown once the full-text index is not behind any more, if that can be."""
        ...

    def folded(self) -> Published:
        """What the catalog holds, which is all that was shown before, if that can be."""
        ...

    def still(self) -> AbstractContextManager[object]:
        """Meanwhile nobody else changes what is shown."""
        ...

    def wait_for(self, seq: int, timeout_s: float | None) -> bool: ...


class Snapshot:
    """One committed state for one read; belongs to one thread.

    Asking for `queries` pins the catalog in a transaction; a read that asks for nothing but
    `fulltext` and `hits` is spared that. Who wants both pins first. `sight`: what may be
    seen of it; None is everything.
    """

    def __init__(self, store: Shown, sight: Sight | None = None) -> None:
        self._store = store
        self.sight = sight
        self._queries: Queries | None = None
        self._readers = store.readers
        self._committed = False
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
        """The full-text index at `seq`; from now on `seq` stays. Raises Moved."""
        if not self._committed:
            published = self._store.indexed()
            if self._queries is not None and published.seq != self._published.seq:
                raise Moved
            self._published, self._committed = published, True
        return self._published.fulltext

    @property
    def as_indexed(self) -> tuple[FullTextSnapshot, Recent]:
        """The full-text index as it stands, and by what it is behind; nobody waits for the disk,
        unless it is behind by much. Raises Moved.
        """
        if self._committed or self._published.recent is None:
            return self.fulltext, Recent()
        return self._published.fulltext, self._published.recent

    @property
    def kbs(self) -> list[str]:
        """The slugs of the knowledge bases that may be seen, sorted."""
        return self._published.roster.kbs_for(self.sight or EVERYTHING)

    def hits(self, ids: Sequence[int], places: Places) -> dict[int, IndexRow]:
        """Chunks as the full-text index holds them; what may not be seen is left out."""
        sight, found = self.sight or EVERYTHING, self.fulltext.rows(ids, places)
        return {id: row for id, row in found.items() if sight.shows(row.kb, row.type)}

    def pin(self) -> None:
        """Catalog and full-text index at one position, so that nothing can move later."""
        with self._store.still():
            self.fulltext  # noqa: B018
            self.queries  # noqa: B018

    def _pin(self) -> Queries:
        published = self._store.folded()
        queries = self._begin()
        while queries.seq() != published.seq:
            self._end(queries)  # a commit is being shown this very moment
            if self._store.broken is not None:
                raise self._store.broken
            with self._store.still():
                published = self._store.folded()
            queries = self._begin()
        if self._committed and published.seq != self._published.seq:
            self._end(queries)
            raise Moved
        self._published = self._published if self._committed else published
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


class Front:
    """One per open store or position. Nothing is read before `show` was called once."""

    def __init__(self) -> None:
        self.published: Published
        self.readers: Readers
        self.broken: KbprocError | None = None
        self._changed = threading.Condition()
        self._moving = threading.RLock()
        self._watchers: list[Callable[[], None]] = []

    @contextlib.contextmanager
    def reading(self, sight: Sight | None = None) -> Iterator[Snapshot]:
        """`sight`: what may be seen; None is everything."""
        snapshot = Snapshot(self, sight)
        try:
            yield snapshot
        finally:
            snapshot.close()

    @property
    def seq(self) -> int:
        """The position that readers see."""
        return self.published.seq

    @property
    def chunks(self) -> int:
        """How many chunks readers see."""
        with self.reading() as snapshot:
            return snapshot.queries.chunk_total()

    def indexed(self) -> Published:
        """What readers see once the full-text index is not behind any more, if that can be."""
        return self.published

    def folded(self) -> Published:
        """What the catalog holds, which is all that readers saw before, if that can be."""
        return self.published

    def still(self) -> AbstractContextManager[object]:
        """Meanwhile nobody else changes what readers see."""
        return self._moving

    def show(self, published: Published) -> None:
        with self._changed:
            self.published = published
            self._changed.notify_all()

    def changed(self) -> None:
        """Wakes whoever waits for something that could not be seen before."""
        with self._changed:
            self._changed.notify_all()
        for tell in self._watchers:
            tell()

    def on_change(self, tell: Callable[[], None]) -> None:
        """`tell` is called after every change, by the thread that made it."""
        self._watchers.append(tell)

    def wait_for(self, seq: int, timeout_s: float | None) -> bool:
        """Until readers see `seq`; False if the time passed first."""
        with self._changed:
            return self._changed.wait_for(lambda: self.published.seq >= seq, timeout_s)

    def wait_for_change(self, timeout_s: float) -> None:
        with self._changed:
            self._changed.wait(timeout_s)
