"""What is better done while nobody waits.

Owns: folding in what waits, syncing the sources' files, compacting the full-text index, folding
the flat tail of vectors into their graph, saving the vector view, looking for damage, returning
memory; and waiting for a quiet moment.
Refuses to know: how any of it is done.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from kbproc.base.errors import KbprocError
from kbproc.base.threads import return_memory, return_pages
from kbproc.store import rebuild
from kbproc.store.store import Store

if TYPE_CHECKING:
    from kbproc.views.catalog.catalog import Catalog
    from kbproc.views.follower import Follower

IDLE_SECONDS = 1.0
RETRY_SECONDS = 30.0  # a disk that has just refused is left alone for so long
# Seconds of the processor's time: who has used less of the last one is idle, and who has used
# more since memory was returned holds some that is worth it.
_IDLE_USE = 0.02
_WORTH = 0.2
# Deleted chunks still count in BM25's statistics until the index is compacted.
DEAD_SHARE = 0.02
_logger = logging.getLogger(__name__)


def damaged_views(store: Store) -> list[str]:
    """Names of the open views whose files are damaged. Reads all that they hold."""
    views: list[Catalog | Follower] = [store.catalog, *store.followers]
    return [view.name for view in views if view.damaged()]


class Upkeep:
    """A thread of its own, from `start` to `close`."""

    def __init__(self, store: Store, prepare: Callable[[], object] = lambda: None) -> None:
        """`prepare`: what is done once, shortly after the start."""
        self._store = store
        self._prepare = prepare
        self._closed = threading.Event()
        self._saved_seq = 0
        self._returned = 0.0  # when, in seconds of the processor's time
        self._looked = False
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        if self._thread is not None:
            return
        thread = threading.Thread(target=self._run, name="upkeep", daemon=True)
        thread.start()
        self._thread = thread

    def close(self) -> None:
        self._closed.set()
        if self._thread is not None:
            self._thread.join(5)

    def _run(self) -> None:
        """Whenever nothing has changed for a while."""
        if not self._closed.wait(IDLE_SECONDS):
            self._prepare()
        while not self._closed.wait(IDLE_SECONDS):
            seq, used = self._store.seq, time.process_time()
            if self._closed.wait(IDLE_SECONDS) or seq != self._store.seq:
                continue
            is_idle = time.process_time() - used < _IDLE_USE
            try:
                self.once()
                if is_idle:
                    self._return()
            except (KbprocError, OSError) as error:  # a folder that can't be read may be again
                _logger.warning("tidying up failed: %s", error)
                self._closed.wait(RETRY_SECONDS)

    def once(self) -> None:
        self._store.look()
        if self._store.broken is not None:
            self._catch_up()
        self._store.folded()
        self._store.indexed()
        self._store.blobs.sync()
        if self._store.fulltext.dead_ratio > DEAD_SHARE:
            with self._store.exclusive():
                rebuild.compact(self._store)
        if not self._looked:
            self._looked = True
            self._heal()
        with self._store.exclusive():
            self._tidy_vectors()

    def _return(self) -> None:
        """What was done may have left memory that nobody needs now."""
        if time.process_time() - self._returned > _WORTH:
            return_memory()
            return_pages(self._store.folder)
            self._returned = time.process_time()

    def _catch_up(self) -> None:
        """Views that could not follow the log do so now, or are made afresh. Raises store.io."""
        try:
            with self._store.lane():
                self._store.mend()
        except KbprocError:
            with self._store.exclusive():
                rebuild.rebuild(self._store)

    def _heal(self) -> None:
        """Once a start: what has rotted since is found before it is asked for."""
        with self._store.exclusive():
            wrong = damaged_views(self._store)
        if wrong:
            _logger.warning("damaged and made afresh: %s", ", ".join(wrong))
            with self._store.exclusive():
                rebuild.rebuild(self._store)

    def _tidy_vectors(self) -> None:
        vectors = self._store.vectors
        if vectors is None:
            return
        if vectors.needs_fold:
            vectors.fold(cancelled=self._closed.is_set)
        if vectors.position.seq > self._saved_seq and not vectors.pending_count:
            vectors.save()
            self._saved_seq = vectors.position.seq
