"""Publishes states of a store to readers, and gives each read one consistent snapshot.

A published state is a position with its full-text index; a snapshot pins the catalog to the same
position. The module also lends cursors to readers, and wakes the threads that wait for a store to
change.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, NamedTuple

from kbproc.base.errors import KbprocError
from kbproc.engine.projections.catalog.reader import EVERYTHING, Sight

if TYPE_CHECKING:
    from kbproc.engine.projections.catalog.catalog import Catalog
    from kbproc.engine.projections.catalog.queries import Queries
    from kbproc.engine.projections.catalog.rows import Head, IndexRow, Roster
    from kbproc.engine.projections.fulltext.search import FullTextSnapshot, Places


class SnapshotMoved(Exception):
    """A commit came between two looks at the store: the read begins again, pinned."""


class PendingIndexChanges(NamedTuple):
    """Changes that the full-text index lacks: removed documents, whose rows no longer count, and
    new rows.
    """

    removed: frozenset[int] = frozenset()
    rows: tuple[IndexRow, ...] = ()


class Published:
    """The state that readers see: a position, the roster at it, and the full-text index.

    `fulltext` None: a subclass opens the index at its first use.

    `fulltext_seq`: the seq of an index with pending changes; None without any. `recent`: the
    pending changes; None if there are too many.
    """

    def __init__(
        self,
        head: Head,
        fulltext: FullTextSnapshot | None,
        roster: Roster,
        *,
        fulltext_seq: int | None = None,
        recent: PendingIndexChanges | None = PendingIndexChanges(),  # noqa: B008  it is never changed
    ) -> None:
        self.head = head
        self.recent = recent
        self._fulltext = fulltext
        self.roster = roster
        self.is_indexed = fulltext_seq is None
        self.indexed_seq = head.seq if fulltext_seq is None else fulltext_seq

    @property
    def seq(self) -> int:
        return self.head.seq

    @property
    def fulltext(self) -> FullTextSnapshot:
        assert self._fulltext is not None  # noqa: S101
        return self._fulltext


class Readers:
    """The cursors of one catalog, each lent to one reader at a time.

    A retired catalog stays open for its readers and is closed with the last of them.
    """

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self._idle: list[Queries] = []
        self._lent_count = 0
        self._retired = False
        self._lock = threading.Lock()

    def borrow(self, sight: Sight | None = None) -> Queries:
        from kbproc.engine.projections.catalog.queries import Queries

        with self._lock:
            self._lent_count += 1
            queries = self._idle.pop() if self._idle else None
        try:
            queries = queries or Queries(self.catalog.cursor())
            queries.see(sight or EVERYTHING)
        except BaseException:
            with self._lock:
                self._lent_count -= 1
            raise
        return queries

    def give_back(self, queries: Queries) -> None:
        with self._lock:
            self._lent_count -= 1
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
            unused = self._retired and not self._lent_count
        if unused:
            self.catalog.close()


class Snapshot:
    """One committed state for one read; belongs to one thread.

    Reading `queries` pins the catalog in a transaction; a read that uses only `fulltext` and
    `hits` avoids that. A read that uses both calls `pin` first. `sight`: how much may be seen;
    None is everything.
    """

    def __init__(self, store: PublishedStore, sight: Sight | None = None) -> None:
        self._store = store
        self.sight = sight
        self._queries: Queries | None = None
        self._readers: Readers
        self._has_fulltext = False
        self._published = store.published

    @property
    def published(self) -> Published:
        return self._published

    @property
    def seq(self) -> int:
        return self._published.seq

    @property
    def queries(self) -> Queries:
        """The catalog at `seq`. Raises SnapshotMoved if it is at another seq by now."""
        if self._queries is None:
            self._queries = self._pin()
        return self._queries

    @property
    def fulltext(self) -> FullTextSnapshot:
        """The full-text index at `seq`; from now on `seq` stays. Raises SnapshotMoved."""
        if not self._has_fulltext:
            published = self._store.indexed()
            if self._queries is not None and published.seq != self._published.seq:
                raise SnapshotMoved
            self._published, self._has_fulltext = published, True
        return self._published.fulltext

    @property
    def as_indexed(self) -> tuple[FullTextSnapshot, PendingIndexChanges]:
        """The full-text index as it is, and its pending changes. Raises SnapshotMoved.

        The index is committed, which waits for the disk, only if too many changes are pending.
        """
        if self._has_fulltext or self._published.recent is None:
            return self.fulltext, PendingIndexChanges()
        return self._published.fulltext, self._published.recent

    @property
    def kbs(self) -> list[str]:
        """The slugs of the knowledge bases that may be seen, sorted."""
        return self._published.roster.kbs_for(self.sight or EVERYTHING)

    def hits(self, ids: Sequence[int], places: Places) -> dict[int, IndexRow]:
        """Returns chunks as the full-text index holds them; hidden ones are left out."""
        sight, rows = self.sight or EVERYTHING, self.fulltext.rows(ids, places)
        return {id: row for id, row in rows.items() if sight.shows(row.kb, row.type)}

    def pin(self) -> None:
        """Pins catalog and full-text index at one position, so that SnapshotMoved can't come."""
        with self._store.still():
            self.fulltext  # noqa: B018
            self.queries  # noqa: B018

    def _pin(self) -> Queries:
        published = self._store.published
        queries = self._begin()
        while queries.seq() != published.seq:
            self._end(queries)  # a commit is being published this very moment
            with self._store.still():
                published = self._store.published
                queries = self._begin()
            if queries.seq() != published.seq and self._store.broken is not None:
                self._end(queries)
                raise self._store.broken
        if self._has_fulltext and published.seq != self._published.seq:
            self._end(queries)
            raise SnapshotMoved
        self._published = self._published if self._has_fulltext else published
        return queries

    def _begin(self) -> Queries:
        while True:
            self._readers = self._store.readers
            try:
                queries = self._readers.borrow(self.sight)
                break
            except OSError as error:
                if self._readers is self._store.readers:
                    raise _unopened(error) from error
                # Another catalog has taken its place since, and its file is gone.
        queries.begin()
        return queries

    def _end(self, queries: Queries) -> None:
        queries.end()
        self._readers.give_back(queries)

    def close(self) -> None:
        if self._queries is not None:
            self._end(self._queries)
            self._queries = None


def _unopened(error: OSError) -> KbprocError:
    """Returns the error for a catalog that no reader can open."""
    return KbprocError(
        "store.io",
        f"The catalog could not be opened: {error.strerror}.",
        hint="If the store's folder is gone, end kbproc, and put it back from a backup.",
        lasting=isinstance(error, FileNotFoundError),
    )


class PublishedStore:
    """The published state of an open store or position. `show` must be called before any read."""

    def __init__(self) -> None:
        self.published: Published
        self.readers: Readers
        self.broken: KbprocError | None = None
        self._changed = threading.Condition()
        self._publishing = threading.RLock()
        self._watchers: list[Callable[[], None]] = []

    def reading(self) -> AbstractContextManager[Snapshot]:
        """Opens a snapshot of everything."""
        return self.reading_as(None)

    @contextlib.contextmanager
    def reading_as(self, sight: Sight | None) -> Iterator[Snapshot]:
        """Opens a snapshot; `sight`: how much may be seen, None is everything."""
        snapshot = Snapshot(self, sight)
        try:
            yield snapshot
        except Exception as error:
            if (refusal := self.refused(error)) is not None:
                raise refusal from error
            raise
        finally:
            snapshot.close()

    def refused(self, error: BaseException) -> KbprocError | None:
        """Returns the error for a request that the catalog could not answer; None for another.

        A damaged catalog is marked, so that it is made afresh.
        """
        from kbproc.engine.projections.catalog.catalog import DatabaseError
        from kbproc.engine.projections.catalog.checks import is_damage

        if not isinstance(error, DatabaseError):
            return None
        if not is_damage(error):
            return KbprocError("store.io", f"The catalog could not be read: {error}.")
        self.readers.catalog.note_damage()
        return KbprocError(
            "store.corrupt",
            f"The catalog is damaged: {error}.",
            hint="The log has everything: the catalog is made afresh in a quiet moment, when the "
            "store is next opened, or by kbproc index rebuild. Then send the request again.",
        )

    @property
    def seq(self) -> int:
        """The position that readers see."""
        return self.published.seq

    @property
    def chunks(self) -> int:
        """The number of chunks that readers see."""
        with self.reading() as snapshot:
            return snapshot.queries.chunk_total()

    def indexed(self) -> Published:
        """Commits the full-text index if it can, and returns the state that it has then."""
        return self.published

    def still(self) -> AbstractContextManager[object]:
        """Keeps other threads from publishing."""
        return self._publishing

    def show(self, published: Published) -> None:
        with self._changed:
            self.published = published
            self._changed.notify_all()

    def changed(self) -> None:
        """Wakes the threads that wait for a change, and calls the watchers."""
        with self._changed:
            self._changed.notify_all()
        for tell in self._watchers:
            tell()

    def on_change(self, tell: Callable[[], None]) -> None:
        """Has `tell` called after every change, by the thread that made it."""
        self._watchers.append(tell)

    def wait_for(self, seq: int, timeout_s: float | None) -> bool:
        """Waits until readers see `seq`; returns False if the time passed first."""
        with self._changed:
            return self._changed.wait_for(lambda: self.published.seq >= seq, timeout_s)

    def wait_for_change(self, timeout_s: float) -> None:
        with self._changed:
            self._changed.wait(timeout_s)
