"""Publishes the states of a store, and gives each read a snapshot that nothing moves.

A snapshot has the catalog at one position, with the vectors of the same position and the full-text
index, which is whole up to that position or knows which documents it lacks. The module also lends
connections to readers, and wakes the threads that wait for a store to change.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import threading
from collections.abc import Callable, Hashable, Iterator
from contextlib import AbstractContextManager
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct

from kbproc.base.errors import KbprocError
from kbproc.engine.projections.catalog.lists import DocumentLists
from kbproc.engine.projections.catalog.reader import PUBLISHED, Sight

if TYPE_CHECKING:
    from kbproc.engine.projections.catalog.catalog import Catalog
    from kbproc.engine.projections.catalog.filters import DocumentFilter
    from kbproc.engine.projections.catalog.queries import Queries
    from kbproc.engine.projections.catalog.rows import Head, Ids, Roster
    from kbproc.engine.projections.fulltext.search import FullTextSnapshot
    from kbproc.engine.projections.vectors.search import VectorSnapshot
    from kbproc.engine.store.model import Model

T = TypeVar("T")
_PATIENCE_S = 5.0  # for reads while a store is closed; a read takes milliseconds
_logger = logging.getLogger(__name__)


class Published(Struct, frozen=True):
    """The state that readers see: the catalog's head, and the roster at it."""

    head: Head
    roster: Roster

    @property
    def seq(self) -> int:
        return self.head.seq


class Indexed(Struct, frozen=True):
    """A committed full-text index. `seq`: the position up to which it is whole."""

    fulltext: FullTextSnapshot
    seq: int


class Readers:
    """The cursors of one catalog, each lent to one reader at a time.

    A retired catalog lends no more. It stays open for its readers, because SQLite crashes if a
    connection is closed during a read, and is closed with the last of them.
    """

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self.lists = DocumentLists()
        self._facts: tuple[int, dict[Hashable, Any]] = -1, {}  # a position, and facts at it
        self._idle: list[Queries] = []
        self._lent_count = 0
        self._retired = self._is_closing = False
        self._lock = threading.Lock()
        self._closed = threading.Event()

    def borrow(self, sight: Sight | None = None) -> Queries:
        from kbproc.engine.projections.catalog.queries import Queries

        with self._lock:
            if self._retired:
                raise OSError(errno.EBADF, "the store is closed")
            self._lent_count += 1
            queries = self._idle.pop() if self._idle else None
        try:
            queries = queries or Queries(self.catalog.cursor())
            queries.see(sight or PUBLISHED)
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

    def fact(self, name: Hashable, read: Callable[[Queries], T], queries: Queries, seq: int) -> T:
        """Returns what `read` returns of the catalog at `seq`; it reads once for all of a Sight."""
        position, facts = self._facts
        if position != seq:
            facts = {}
            self._facts = seq, facts  # both at once, because threads share them
        key = queries.sight, name
        if key not in facts:
            facts[key] = read(queries)
        result: T = facts[key]
        return result

    def retire(self) -> None:
        with self._lock:
            self._retired = True
            idle, self._idle = self._idle, []
        for queries in idle:
            queries.close()
        self._close_if_unused()

    def close(self) -> None:
        """Retires the catalog, and waits a while for its readers."""
        self.retire()
        if not self._closed.wait(_PATIENCE_S):
            _logger.warning("the catalog is read still, and stays open until that ends")

    def _close_if_unused(self) -> None:
        with self._lock:
            unused = self._retired and not self._lent_count and not self._is_closing
            self._is_closing = self._is_closing or unused
        if unused:
            try:
                self.catalog.close()
            finally:
                self._closed.set()


class Snapshot:
    """One committed state for one read; belongs to one thread.

    `queries`: the catalog at `seq`. `vectors`, `model`: those of the same moment; `vectors` is None
    while they are unopened. `sight`: how much may be seen; None is everything.
    """

    def __init__(self, store: PublishedStore, sight: Sight | None, queries: Queries) -> None:
        """Takes the store's state. The caller holds the publishing lock."""
        queries.begin()
        self.queries = queries
        self._readers = store.readers
        self.sight = sight
        self.published = store.published
        self.model = store.model
        self.vectors = store.vectors_view
        self.indexed = store.indexed
        self.is_search = False

    @property
    def seq(self) -> int:
        return self.published.seq

    @property
    def kbs(self) -> list[str]:
        """The slugs of the knowledge bases that may be seen, sorted."""
        return self.published.roster.kbs_for(self.sight or PUBLISHED)

    @property
    def fulltext(self) -> FullTextSnapshot:
        """The full-text index, without what it holds of `unindexed`; see `searching`."""
        assert self.indexed is not None  # noqa: S101
        return self.indexed.fulltext

    @cached_property
    def unindexed(self) -> dict[int, int]:
        """Documents that the full-text index lacks in their present form → number of chunks."""
        if self.indexed is None or self.indexed.seq == self.seq:
            return {}
        return self.queries.touched_since(self.indexed.seq)

    def document_ids(self, filter: DocumentFilter) -> Ids:
        """Returns the sorted ids of the documents that meet a filter without a moment."""
        return self._readers.lists.ids(self.queries, filter, self.seq)

    def fact(self, name: Hashable, read: Callable[[Queries], T]) -> T:
        """Returns what `read` returns of the catalog, which is the same for later snapshots of this
        position and Sight.
        """
        return self._readers.fact(name, read, self.queries, self.seq)

    def use(self, indexed: Indexed | None) -> None:
        """Takes an index that was committed from this snapshot's catalog."""
        self.indexed = indexed
        vars(self).pop("unindexed", None)


class _Waiter:
    """A search that needs the full-text index committed; `stack` ends its snapshot."""

    def __init__(self, sight: Sight | None, stack: contextlib.ExitStack) -> None:
        self.sight = sight
        self.stack = stack
        self.snapshot: Snapshot | None = None


def _unopened(error: OSError) -> KbprocError:
    """Returns the error for a catalog that no reader can open."""
    return KbprocError(
        "store.io",
        f"The catalog could not be opened: {error.strerror}.",
        hint="If the store's folder is gone, end kbproc, and put it back from a backup.",
        lasting=isinstance(error, FileNotFoundError),
    )


class PublishedStore:
    """The published state of an open store or position. `show` must be called before any read.

    `_publishing` is held for a commit of catalog and vectors, and while a snapshot is taken.
    `indexing` is held while the full-text index is opened, changed and committed, and taken first.
    `_index_turns` guards the searches that wait for a commit of the index.
    """

    def __init__(self) -> None:
        self.published: Published
        self.readers: Readers
        self.model: Model
        self.indexed: Indexed | None = None  # None while it is unopened
        self.indexing = threading.RLock()
        self._index_turns = threading.Condition()
        self._is_indexing = False
        self._waiters: list[_Waiter] = []
        self.is_searched = False  # since the index was committed beside writes
        self._counted = (-1, 0)  # a position, and the number of chunks at it
        self.broken: KbprocError | None = None
        self._changed = threading.Condition()
        self._publishing = threading.RLock()
        self._watchers: list[Callable[[], None]] = []

    @property
    def vectors_view(self) -> VectorSnapshot | None:
        """The vectors that readers see; None while they are unopened, and without a model."""
        raise NotImplementedError

    def reading(self) -> AbstractContextManager[Snapshot]:
        """Opens a snapshot of everything."""
        return self.reading_as(None)

    def searching(self, *, waits: bool = True) -> AbstractContextManager[Snapshot]:
        """Opens a snapshot of everything that has the full-text index; see `searching_as`."""
        return self.searching_as(None, waits=waits)

    @contextlib.contextmanager
    def reading_as(self, sight: Sight | None) -> Iterator[Snapshot]:
        """Opens a snapshot; `sight`: how much may be seen, None is everything."""
        with contextlib.ExitStack() as stack, self._as_refusal():
            yield self._pinned(sight, stack)

    @contextlib.contextmanager
    def searching_as(self, sight: Sight | None, *, waits: bool = True) -> Iterator[Snapshot]:
        """Opens a snapshot that has the full-text index.

        The index is committed up to the present position, unless the disk refuses. Without
        `waits`, it is as it is.
        """
        self.is_searched = self.is_searched or waits
        with contextlib.ExitStack() as stack, self._as_refusal():
            snapshot = self._pinned(sight, stack)
            if snapshot.indexed is None or (waits and snapshot.unindexed):
                stack.close()
                snapshot = self._indexed(sight, stack)
            snapshot.is_search = True
            yield snapshot

    def _indexed(self, sight: Sight | None, stack: contextlib.ExitStack) -> Snapshot:
        """Returns a snapshot whose index was committed for it.

        One search commits for all that wait by then: their snapshots are of one position.
        """
        own = _Waiter(sight, stack)
        with self._index_turns:
            self._waiters.append(own)
            self._index_turns.wait_for(lambda: own.snapshot or not self._is_indexing)
            if own.snapshot is not None:
                return own.snapshot
            self._is_indexing = True
        try:
            self._index_for_waiters(own)
        finally:
            with self._index_turns:
                self._is_indexing = False
                if own in self._waiters:
                    self._waiters.remove(own)
                self._index_turns.notify_all()
        assert own.snapshot is not None  # noqa: S101
        return own.snapshot

    def _index_for_waiters(self, own: _Waiter) -> None:
        with self.indexing:
            with self._index_turns:
                waiters = list(self._waiters)
            # The index follows the catalog of these snapshots, so it can't be ahead of it.
            try:
                with self._publishing:
                    snapshots = [self._pinned(one.sight, one.stack) for one in waiters]
                self.index(snapshots[waiters.index(own)])
            except BaseException:
                for one in waiters:
                    one.stack.close()
                raise
            for snapshot in snapshots:
                snapshot.use(self.indexed)
        with self._index_turns:
            for one, snapshot in zip(waiters, snapshots, strict=True):
                one.snapshot = snapshot
                self._waiters.remove(one)

    def index(self, snapshot: Snapshot) -> None:
        """Commits the full-text index up to the snapshot's position. While it indexes."""

    def _pinned(self, sight: Sight | None, stack: contextlib.ExitStack) -> Snapshot:
        """Returns a snapshot that `stack` ends. Takes the publishing lock."""
        while True:
            readers = self.readers
            try:
                queries = readers.borrow(sight)
            except OSError as error:
                if readers is self.readers:
                    raise _unopened(error) from error
                continue  # another catalog has taken its place since, and its file is gone
            stack.callback(readers.give_back, queries)
            with self._publishing:
                if readers is self.readers:
                    snapshot = Snapshot(self, sight, queries)
                    stack.callback(queries.end)
                    return snapshot
            stack.close()

    @contextlib.contextmanager
    def _as_refusal(self) -> Iterator[None]:
        """Raises the error for a request where the catalog could not answer it."""
        try:
            yield
        except Exception as error:
            if (refusal := self.refused(error)) is not None:
                raise refusal from error
            raise

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
        seq, count = self._counted
        if seq != self.seq:
            with self.reading() as snapshot:
                count = snapshot.queries.chunk_total()
                self._counted = snapshot.seq, count
        return count

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
