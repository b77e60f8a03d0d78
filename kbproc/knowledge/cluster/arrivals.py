"""Applies the records of other nodes while this node does not write.

A thread waits for such records. It also completes answers and purges that were left unfinished,
once the log can be reached.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from kbproc.base.errors import KbprocError
from kbproc.base.workers import Worker
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
        self._worker = Worker("arrivals", self._step, first_s=None)

    def start(self) -> None:
        if self._worker.start():
            self._log.on_news(self._worker.wake)
            self._worker.wake()

    def end(self) -> None:
        self._worker.stop()

    def close(self) -> None:
        self._worker.close(5)

    def _step(self, has_news: bool) -> float | None:
        try:
            if has_news:
                self._store.commit(lambda lane: None)  # every commit first applies new records
            if not self._has_begun:
                self._begin()
                self._has_begun = True
            return self._rest()
        except KbprocError as error:
            _logger.warning("records of other nodes are not applied yet: %s", error)
            self._worker.pause(_RETRY_S)
            self._worker.wake()
            return None
