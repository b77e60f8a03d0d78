"""Opens a store for one request, which needs few of its projections.

The full-text index and the vectors are opened at their first use, or before a write. Until then
the position of the vectors is read from their manifest.
"""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kbproc.base.durable import SoundFiles, look_at
from kbproc.engine.projections.vectors import manifest
from kbproc.engine.projections.vectors.waiting import PendingRows
from kbproc.engine.store.snapshot import Published
from kbproc.engine.store.store import ClosedPart, Store

if TYPE_CHECKING:
    from kbproc.engine.embedding.model import UnopenedPack
    from kbproc.engine.log.record import Position
    from kbproc.engine.projections.fulltext.index import FullText
    from kbproc.engine.projections.fulltext.search import FullTextSnapshot
    from kbproc.engine.projections.vectors.view import Vectors
    from kbproc.engine.store.lane import Ticket


class LateStore(Store):
    """A Store whose full-text index is opened late.

    Its vectors are opened late once `put_off` has been called.
    """

    _vectors: Vectors | None = None
    _is_late = False
    _fulltext: FullText | None = None

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._opening = threading.RLock()  # no other lock is taken under it

    def _open_fulltext(self, folder: Path, stack: contextlib.ExitStack) -> None:
        """Leaves opening the index to its first use, unless the log is elsewhere."""
        if self.read_only or not self.is_local:
            super()._open_fulltext(folder, stack)

    def publish(self) -> None:
        if self._fulltext is None:
            self._indexed = _LatePublished(self)
            self.show(self._indexed)
        else:
            super().publish()

    @property
    def is_quiet(self) -> bool:
        """Returns True if no purge and no answer was interrupted."""
        queries = self.catalog.queries
        return not queries.being_answered() and not queries.unfinished_purges()

    # ----------------------------------------------------------- the full-text index

    @property
    def fulltext(self) -> FullText:
        """The full-text index, opened if it was not. Raises store.io."""
        with self._opening:
            if self._fulltext is None:
                with contextlib.ExitStack() as stack:
                    super()._open_fulltext(self.folder / "views" / "fulltext", stack)
                    stack.pop_all()
            assert self._fulltext is not None  # noqa: S101
            return self._fulltext

    @fulltext.setter
    def fulltext(self, fulltext: FullText) -> None:
        self._fulltext, self._first_words = fulltext, fulltext.snapshot()

    @property
    def first_words(self) -> FullTextSnapshot:
        """The full-text index as it was when it was opened."""
        with self._opening:
            self.fulltext  # noqa: B018
            return self._first_words

    # ------------------------------------------------------------------ closing

    def _parts(self) -> list[ClosedPart]:
        parts = (self.blobs, self._fulltext, self.catalog, self.log)
        return [part for part in parts if part is not None]

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
        self.fulltext, self.vectors  # noqa: B018
        super()._run(tickets)


class _LatePublished(Published):
    """The state of the catalog as it was opened; the full-text index is opened at its first use."""

    def __init__(self, store: LateStore) -> None:
        queries = store.catalog.queries
        super().__init__(queries.head(), None, queries.roster())
        self._store = store

    @property
    def fulltext(self) -> FullTextSnapshot:
        return self._store.first_words


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
