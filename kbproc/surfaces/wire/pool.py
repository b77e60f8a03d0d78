"""Threads that run requests.

Owns: how many threads there are, when one is started, what runs after what, and ending them.
Refuses to know: what the threads run.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Protocol

_logger = logging.getLogger(__name__)
_PATIENCE_S = 0.01  # several times what most searches take


class Pool:
    """Threads that run requests; made as they are needed.

    `at_once` of them run, and more, up to `size`, where no job has been begun for a while. The
    interpreter's lock lets one thread compute, and all are slower for each that wants it: 64
    hybrid searches at once take a fifth longer with eight threads than with two.
    """

    def __init__(self, size: int, at_once: int | None = None) -> None:
        self._jobs: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._at_once = at_once or size
        self._most_helpers = size - self._at_once
        self._threads: list[threading.Thread] = []
        self._helpers: list[threading.Thread] = []  # the watch's
        self._watch: threading.Thread | None = None
        self._counting = threading.Lock()
        self._unfinished = self._begun = 0
        self._crowded, self._closing = threading.Event(), threading.Event()

    def submit(self, job: Callable[[], object]) -> None:
        """Raises RuntimeError where not even the first thread can be started."""
        with self._counting:
            waits = self._unfinished >= len(self._threads)
            try:
                if waits and len(self._threads) < self._at_once:
                    self._threads.append(_started(self._run, "worker"))
                    waits = False
                if waits and self._most_helpers and self._watch is None:
                    self._watch = _started(self._keep_watch, "watch")
            except RuntimeError:
                if not self._threads:
                    raise
            self._unfinished += 1
        self._jobs.put(job)
        if waits and not self._crowded.is_set():
            self._crowded.set()

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            self._do(job)

    def _do(self, job: Callable[[], object]) -> None:
        self._begun += 1
        try:
            job()
        except Exception:  # the thread goes on: others wait for it
            _logger.exception("a job failed")
        with self._counting:
            self._unfinished -= 1

    def _keep_watch(self) -> None:
        """Starts one more thread whenever jobs wait and none of them was begun in `_PATIENCE_S`."""
        while self._crowded.wait():
            self._crowded.clear()
            begun = self._begun
            if self._closing.wait(_PATIENCE_S):
                return
            if not self._jobs.qsize():
                continue
            self._crowded.set()
            self._helpers = [one for one in self._helpers if one.is_alive()]
            if self._begun == begun and len(self._helpers) < self._most_helpers:
                with contextlib.suppress(RuntimeError):  # no thread can be had: the others go on
                    self._helpers.append(_started(self._help, "helper"))

    def _help(self) -> None:
        """Until nothing waits."""
        with contextlib.suppress(Empty):
            while (job := self._jobs.get_nowait()) is not None:
                self._do(job)
            self._jobs.put(None)  # one of the others is to end

    def close(self, timeout_s: float = 1.0) -> None:
        """Ends the threads once they have done what was submitted, as far as time allows."""
        deadline = time.monotonic() + timeout_s
        self._closing.set()
        self._crowded.set()
        if self._watch is not None:  # first: from now on no helper comes
            self._watch.join(timeout_s)
        for _ in self._threads:
            self._jobs.put(None)
        for thread in [*self._threads, *self._helpers]:
            thread.join(max(0.0, deadline - time.monotonic()))


def _started(run: Callable[[], object], name: str) -> threading.Thread:
    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    return thread


End = Callable[[], object]
Job = Callable[[], End | None]


class Ordered(Protocol):
    """What a job is for. `end_those_before` is set before the job runs, which may call it."""

    end_those_before: Callable[[], None]


class InTurn:
    """Jobs one after the other. A job may leave its end for later: then those of all that wait are
    begun first, and ended together, in their order.
    """

    def __init__(self) -> None:
        self._pool = Pool(1)
        self._waiting: deque[tuple[Job, bool]] = deque()
        self._begun: deque[End] = deque()  # their ends; the pool's thread only
        self._runs = False
        self._changing = threading.Lock()

    def submit(self, job: Job, order: Ordered, *, alone: bool) -> None:
        """`alone`: all that came before must have ended, not only begun.

        Raises RuntimeError where no thread can be started.
        """
        order.end_those_before = self._end
        with self._changing:
            self._waiting.append((job, alone))
            if self._runs:
                return
            try:
                self._pool.submit(self._run)  # it waits for the lock that is held here
            except RuntimeError:
                self._waiting.pop()
                raise
            self._runs = True

    def _run(self) -> None:
        while (found := self._next()) is not None:
            job, alone = found
            try:
                if alone:
                    self._end()
                if (end := job()) is not None:
                    self._begun.append(end)
            except Exception:  # those that wait are run all the same
                _logger.exception("a job failed")

    def _next(self) -> tuple[Job, bool] | None:
        """Once nothing waits, what was begun is ended; then something may wait again."""
        while True:
            with self._changing:
                if self._waiting:
                    return self._waiting.popleft()
                if not self._begun:
                    self._runs = False
                    return None
            self._end()

    def _end(self) -> None:
        while self._begun:
            self._begun.popleft()()

    def close(self, timeout_s: float = 1.0) -> None:
        """Ends the thread once it has done what was submitted, as far as time allows."""
        self._pool.close(timeout_s)
