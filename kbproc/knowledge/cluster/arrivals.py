"""What other nodes write, taken in while nobody here writes.

Owns: a thread that waits for it, where others write to the log, too; what this node has to say
first, once it can; and what it has left undone.
Refuses to know: where it comes from, and how it is taken in.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from kbproc.base.errors import KbprocError
from kbproc.store.store import Store

_RETRY_S = 1.0
_logger = logging.getLogger(__name__)


class Arrivals:
    """A thread of its own, from `start` to `close`; none for a log that is not shared."""

    def __init__(
        self, store: Store, begin: Callable[[], None], rest: Callable[[], float | None]
    ) -> None:
        """`begin` is called once, after the first news; again if it raises KbprocError.

        `rest` is called after that whenever there are news, and again when it says so.
        """
        self._store = store
        self._begin = begin
        self._rest = rest
        self._has_begun = False
        self._news = threading.Event()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None
        self._is_started = False

    def start(self) -> None:
        self._is_started = True
        self.follow()

    def follow(self) -> None:
        """The store has another log now."""
        if self._is_started and self._thread is None and self._store.log.is_shared:
            thread = threading.Thread(target=self._run, name="arrivals", daemon=True)
            thread.start()
            self._thread = thread
        if self._is_started and self._store.log.is_shared:
            self._store.log.on_news(self._news.set)
            self._news.set()

    def close(self) -> None:
        self._closed.set()
        self._news.set()
        if self._thread is not None:
            self._thread.join(5)

    def _run(self) -> None:
        again: float | None = None
        while not self._closed.is_set():
            has_news = self._news.wait(again)
            self._news.clear()
            if self._closed.is_set():
                return
            try:
                if has_news:
                    self._store.commit(lambda lane: None)  # whoever has the lane sees them first
                if not self._has_begun:
                    self._begin()
                    self._has_begun = True
                again = self._rest()
            except KbprocError as error:
                _logger.warning("what other nodes have written is not shown yet: %s", error)
                self._closed.wait(_RETRY_S)
                self._news.set()
