"""Opens a store for one request, which needs few of its projections.

Each projection is opened at its first use, or before a write. Until then the position of the
vectors is read from their manifest, and the catalog's rows from its front page.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, cast

from kbproc.base.durable import SoundFiles, look_at
from kbproc.engine.projections.catalog import front
from kbproc.engine.projections.catalog.front import FrontPage, FrontQueries
from kbproc.engine.projections.catalog.reader import EVERYTHING, Sight
from kbproc.engine.projections.vectors import manifest
from kbproc.engine.projections.vectors.waiting import PendingRows
from kbproc.engine.store import follow
from kbproc.engine.store.snapshot import Published, Readers, SnapshotMoved
from kbproc.engine.store.store import ClosedPart, Store, read_log

if TYPE_CHECKING:
    from kbproc.base.host import Host
    from kbproc.engine.embedding.model import UnopenedPack
    from kbproc.engine.log.interface import OpenLog
    from kbproc.engine.log.record import Position
    from kbproc.engine.projections.catalog.catalog import Catalog
    from kbproc.engine.projections.catalog.queries import Queries
    from kbproc.engine.projections.follower import Follower
    from kbproc.engine.projections.fulltext.index import FullText
    from kbproc.engine.projections.fulltext.search import FullTextSnapshot
    from kbproc.engine.projections.vectors.view import Vectors
    from kbproc.engine.store.lane import Ticket
    from kbproc.engine.store.place import StorePlace


class LateStore(Store):
    """A Store whose catalog and full-text index are opened late if its front page is current.

    Its vectors are opened late once `put_off` has been called.
    """

    _vectors: Vectors | None = None
    _is_late = False
    # The catalog's front page until the catalog is opened.
    _page: FrontPage | None = None
    _catalog: Catalog | None = None
    _readers: Readers | None = None
    _fulltext: FullText | None = None

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._opening = threading.RLock()  # no other lock is taken under it

    @classmethod
    def _opened(
        cls,
        place: StorePlace,
        host: Host,
        open_log: OpenLog,
        settings: dict[str, Any],
        stack: contextlib.ExitStack,
    ) -> Self:
        is_plain = not place.read_only and not settings.get("log")
        page = front.read(place.folder / "views") if is_plain else None
        log = None if page is None else read_log(place, open_log, settings, page.head.position)
        if page is None or log is None:
            return super()._opened(place, host, open_log, settings, stack)
        if log.head != page.head.position or log.damage is not None:
            log.close()
            return super()._opened(place, host, open_log, settings, stack)
        stack.callback(log.close)
        store = cls(place, host=host, settings=settings, log=log, roster=page.roster)
        store.blobs.load()
        store._page = page
        published = _FrontPublished(page, store)
        store._folded = store._indexed = published
        store.show(published)
        return store

    @property
    def is_quiet(self) -> bool:
        """Returns True if the front page tells that no purge and no answer was interrupted."""
        return self._page is not None

    # ------------------------------------------------------------------ the catalog

    @property
    def catalog(self) -> Catalog:
        """The catalog, opened if it was not. Raises store.io."""
        with self._opening:
            if self._catalog is None:
                catalog = follow.open_catalog(self.folder / "views")
                try:
                    follow.replay(self.log, catalog)
                except BaseException:
                    catalog.close()
                    raise
                self._catalog = catalog
            return self._catalog

    @catalog.setter
    def catalog(self, catalog: Catalog) -> None:
        self._catalog = catalog

    @contextlib.contextmanager
    def exclusive(self, check: Callable[[], None] = lambda: None) -> Iterator[None]:
        with super().exclusive(check):
            # Upkeep builds another catalog beside this one, and opening looks at both.
            self.catalog  # noqa: B018
            yield

    @property
    def readers(self) -> Readers:
        """The catalog's readers; those of its front page until the catalog is opened."""
        with self._opening:
            if self._readers is None and self._catalog is None and self._page is not None:
                return cast("Readers", _FrontReaders(self._page, self))
            return self.pinned_readers

    @readers.setter
    def readers(self, readers: Readers) -> None:
        self._readers = readers

    @property
    def pinned_readers(self) -> Readers:
        """The catalog's readers; opens the catalog."""
        with self._opening:
            if self._readers is None:
                self._readers = Readers(self.catalog)
            return self._readers

    # ----------------------------------------------------------- the full-text index

    @property
    def fulltext(self) -> FullText:
        """The full-text index, opened if it was not. Raises store.io."""
        from kbproc.engine.projections.fulltext.index import FullText

        with self._opening:
            fulltext = self._fulltext
            if fulltext is None:
                fulltext = FullText.open(self.folder / "views" / "fulltext")
                try:
                    self._catch_up(fulltext)
                except BaseException:
                    fulltext.close()
                    raise
                self.fulltext = fulltext
            return fulltext

    @fulltext.setter
    def fulltext(self, fulltext: FullText) -> None:
        self._fulltext, self._first_words = fulltext, fulltext.snapshot()

    def _catch_up(self, follower: Follower) -> None:
        page = self._page if self._catalog is None else None
        if page is not None:
            is_words = follower.name == "fulltext"
            if follower.position == (page.indexed if is_words else page.head.position):
                return
        super()._catch_up(follower)

    @property
    def first_words(self) -> FullTextSnapshot:
        """The full-text index as it was when it was opened."""
        with self._opening:
            self.fulltext  # noqa: B018
            return self._first_words

    # ------------------------------------------------------------------ closing

    def _parts(self) -> list[ClosedPart]:
        parts = (self.blobs, self._fulltext, self._catalog, self.log)
        return [part for part in parts if part is not None]

    @contextlib.contextmanager
    def _front_kept(self) -> Iterator[None]:
        with super()._front_kept() if self._catalog is not None else contextlib.nullcontext():
            yield

    # ------------------------------------------------------------------ the vectors

    def put_off(self, pack: UnopenedPack | None) -> None:
        """Postpones opening the vectors. `pack`: the model's, if it has one."""
        self._is_late = True
        if pack is not None:
            self.standing = standing_of(self.folder / "views", pack, self.published.head.position)

    @property
    def vectors(self) -> Vectors | None:
        """The vectors, opened if they were not. Raises store.io.

        The caller holds no lock except the lane.
        """
        if self._is_late:
            with self.lane():
                if self._is_late:
                    self.attach_vectors()
                    self._is_late, self.standing = False, None  # also for a store without vectors
        return self._vectors

    @vectors.setter
    def vectors(self, vectors: Vectors | None) -> None:
        self._vectors = vectors
        self._is_late, self.standing = False, None

    @property
    def are_vectors_opened(self) -> bool:
        return not self._is_late

    def _run(self, tickets: list[Ticket[Any]]) -> None:
        self.fulltext, self.catalog, self.vectors  # noqa: B018
        super()._run(tickets)


class _FrontPublished(Published):
    """The state that the front page describes; its full-text index is opened at its first use."""

    def __init__(self, page: FrontPage, store: LateStore) -> None:
        super().__init__(page.head, None, page.roster)
        self._store = store

    @property
    def fulltext(self) -> FullTextSnapshot:
        return self._store.first_words


class _FrontReaders:
    """Lends the queries of a front page; see snapshot.Readers."""

    def __init__(self, page: FrontPage, store: LateStore) -> None:
        self._page = page
        self._store = store

    def borrow(self, sight: Sight | None = None) -> Queries:
        if sight not in {None, EVERYTHING}:
            return self._store.pinned_readers.borrow(sight)
        return cast("Queries", FrontQueries(self._page, self._pin))

    def _pin(self) -> Queries:
        """Returns the catalog's queries at the page's position. Raises SnapshotMoved."""
        readers = self._store.pinned_readers
        queries = readers.borrow()
        queries.begin()
        if queries.seq() != self._page.head.seq:
            queries.end()
            readers.give_back(queries)
            raise SnapshotMoved
        return queries

    def give_back(self, queries: Queries) -> None:
        pinned = queries.pinned if isinstance(queries, FrontQueries) else queries
        if pinned is not None:
            self._store.pinned_readers.give_back(pinned)


def standing_of(views: Path, pack: UnopenedPack, position: Position) -> tuple[int, int] | None:
    """Returns the vector index's state without opening it: the seq up to which all chunks are
    embedded, and the number of pending chunks. None where the index has to be opened.

    The state is known for a saved index whose graph and pack passed their check and have not
    changed since.
    """
    saved = manifest.read(views)
    if saved is None or saved.pack is None or look_at(pack.path) != saved.pack:
        return None
    if saved.position != position or saved.model != pack.fingerprint:
        return None
    if not SoundFiles(pack.path.parent).knows(pack.path):
        return None
    if saved.graph is not None and not SoundFiles(views).knows(views / saved.graph.name):
        return None
    waiting = PendingRows()
    for row in saved.pending:
        waiting.add(row)
    return waiting.settled_to(position.seq), len(waiting)
