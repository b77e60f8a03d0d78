"""Applies the records of other nodes while this node does not write.

A thread waits for such records. It also completes answers and purges that were left unfinished,
once the log can be reached.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from kbproc.base.errors import KbprocError
from kbproc.engine.cluster.interface import ClusteredLog
from kbproc.engine.store.store import Store

_RETRY_S = 1.0
_logger = logging.getLogger(__name__)


class Arrivals:
    """A thread that runs from `start` to `end`; `close` waits for it."""

    def __init__(
        self,
        store: Store,
        log: ClusteredLog,
        *,
        begin: Callable[[], None],
        rest: Callable[[], float | None],
    ) -> None:
        """`begin` is called once, after the first news; again if it raises KbprocError.

        `rest` is called afterwards for all news, and again after the seconds that it returns.
        """
        self._store = store
        self._log = log
        self._begin = begin
        self._rest = rest
        self._has_begun = False
        self._news = threading.Event()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        if self._thread is None and not self._closed.is_set():
            self._thread = threading.Thread(target=self._run, name="arrivals", daemon=True)
            self._thread.start()
            self._log.on_news(self._news.set)
            self._news.set()

    def end(self) -> None:
        self._closed.set()
        self._news.set()

    def close(self) -> None:
        self.end()
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
                    self._store.commit(lambda lane: None)  # every commit first applies new records
                if not self._has_begun:
                    self._begin()
                    self._has_begun = True
                again = self._rest()
            except KbprocError as error:
                _logger.warning("records of other nodes are not applied yet: %s", error)
                self._closed.wait(_RETRY_S)
                self._news.set()
