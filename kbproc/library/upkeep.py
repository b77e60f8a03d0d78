"""What is better done while nobody waits.

Owns: compacting the full-text index, folding the flat tail of vectors into
their graph, saving the vector view, looking for damage; and waiting for a quiet moment.
Refuses to know: how any of it is done.
"""

from __future__ import annotations

import logging
import threading
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

from kbproc.base.errors import KbprocError

if TYPE_CHECKING:
    from kbproc.views.fulltext.index import FullText
    from kbproc.views.vectors.view import Vectors

IDLE_SECONDS = 1.0
# Deleted chunks still count in BM25's statistics until the index is compacted.
DEAD_SHARE = 0.02
_logger = logging.getLogger(__name__)


class House(Protocol):
    """What the store is to whoever tidies it."""

    fulltext: FullText
    vectors: Vectors | None

    @property
    def seq(self) -> int: ...
    def compact(self) -> None: ...
    def rebuild(self) -> None: ...
    def damaged_views(self) -> list[str]: ...
    def exclusive(self) -> AbstractContextManager[None]: ...


class Tidy:
    """A thread of its own, from `start` to `close`."""

    def __init__(self, house: House) -> None:
        self._house = house
        self._closed = threading.Event()
        self._saved_seq = 0
        self._looked = False
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        if self._thread is not None:
            return
        self._thread = threading.Thread(target=self._run, name="tidy", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._closed.set()
        if self._thread is not None:
            self._thread.join(5)

    def _run(self) -> None:
        """Whenever nothing has changed for a while."""
        while not self._closed.wait(IDLE_SECONDS):
            seq = self._house.seq
            if self._closed.wait(IDLE_SECONDS) or seq != self._house.seq:
                continue
            try:
                self.once()
            except KbprocError as error:
                _logger.warning("tidying up failed: %s", error.message)

    def once(self) -> None:
        if self._house.fulltext.dead_ratio > DEAD_SHARE:
            self._house.compact()
        if not self._looked:
            self._looked = True
            self._heal()
        with self._house.exclusive():
            self._tidy_vectors()

    def _heal(self) -> None:
        """Once a start: what has rotted since is found before it is asked for."""
        wrong = self._house.damaged_views()
        if wrong:
            _logger.warning("damaged and made afresh: %s", ", ".join(wrong))
            self._house.rebuild()

    def _tidy_vectors(self) -> None:
        vectors = self._house.vectors
        if vectors is None:
            return
        if vectors.needs_fold:
            vectors.fold(cancelled=self._closed.is_set)
        if vectors.position.seq > self._saved_seq and not vectors.pending_count:
            vectors.save()
            self._saved_seq = vectors.position.seq
