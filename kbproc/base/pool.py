"""Runs requests on threads: starts threads as they are needed, and keeps writes in order."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from _queue import Empty, SimpleQueue  # the module queue imports heaps, too
from collections import deque
from collections.abc import Callable

from kbproc.base.threads import start_thread

_logger = logging.getLogger(__name__)
_PATIENCE_S = 0.01  # several times what most searches take


class Pool:
    """Threads that run requests, started as they are needed.

    At most `at_once` threads run; where no job has begun for a while, up to `size`. Few are faster
    because the interpreter's lock lets only one thread compute: 64 hybrid searches at once take a
    fifth longer with eight threads than with two.
    """

    def __init__(self, size: int, at_once: int | None = None) -> None:
        self._jobs: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._at_once = at_once or size
        self._most_helpers = size - self._at_once
        self._threads: list[threading.Thread] = []
        self._helpers: list[threading.Thread] = []  # used by the watch only
        self._watch: threading.Thread | None = None
        self._counting = threading.Lock()
        self._unfinished = self._begun = 0
        self._crowded, self._closing = threading.Event(), threading.Event()

    def submit(self, job: Callable[[], object]) -> None:
        """Queues a job. Raises RuntimeError if not even the first thread can be started."""
        with self._counting:
            waits = self._unfinished >= len(self._threads)
            try:
                if waits and len(self._threads) < self._at_once:
                    self._threads.append(start_thread(self._run, "worker"))
                    waits = False
                if waits and self._most_helpers and self._watch is None:
                    self._watch = start_thread(self._keep_watch, "watch")
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
        except Exception:  # because other jobs need the thread
            _logger.exception("a job failed")
        with self._counting:
            self._unfinished -= 1

    def _keep_watch(self) -> None:
        """Starts a helper whenever jobs wait and none has begun in `_PATIENCE_S`."""
        while self._crowded.wait():
            self._crowded.clear()
            begun_before = self._begun
            if self._closing.wait(_PATIENCE_S):
                return
            if not self._jobs.qsize():
                continue
            self._crowded.set()
            self._helpers = [thread for thread in self._helpers if thread.is_alive()]
            if self._begun == begun_before and len(self._helpers) < self._most_helpers:
                with contextlib.suppress(RuntimeError):  # because the other threads suffice
                    self._helpers.append(start_thread(self._help, "helper"))

    def _help(self) -> None:
        """Runs jobs until none waits."""
        with contextlib.suppress(Empty):
            while (job := self._jobs.get_nowait()) is not None:
                self._do(job)
            self._jobs.put(None)  # passes the end on to another thread

    def close(self, timeout_s: float = 1.0) -> None:
        """Ends the threads once they have run all jobs, as far as time allows."""
        deadline = time.monotonic() + timeout_s
        self._closing.set()
        self._crowded.set()
        if self._watch is not None:  # first, so that no more helpers start
            self._watch.join(timeout_s)
        for _ in self._threads:
            self._jobs.put(None)
        for thread in [*self._threads, *self._helpers]:
            thread.join(max(0.0, deadline - time.monotonic()))


End = Callable[[], object]
Job = Callable[[], End | None]


class InTurn:
    """A queue of jobs that run one after the other.

    A job may return its end for later. Then all waiting jobs begin first, and their ends run
    together, in the order of the jobs.
    """

    def __init__(self) -> None:
        self._pool = Pool(1)
        self._waiting: deque[tuple[Job, bool]] = deque()
        self._ends: deque[End] = deque()  # ends of started jobs; for the pool's thread
        self._runs = False
        self._changing = threading.Lock()

    def submit(self, job: Job, *, alone: bool) -> None:
        """Queues a job. `alone`: all earlier jobs must have ended, not only begun.

        Raises RuntimeError if no thread can be started.
        """
        with self._changing:
            self._waiting.append((job, alone))
            if self._runs:
                return
            try:
                self._pool.submit(self._run)  # which waits for this lock
            except RuntimeError:
                self._waiting.pop()
                raise
            self._runs = True

    def _run(self) -> None:
        while (entry := self._next()) is not None:
            job, alone = entry
            try:
                if alone:
                    self.end_begun()
                if (end := job()) is not None:
                    self._ends.append(end)
            except Exception:  # because the other jobs must still run
                _logger.exception("a job failed")

    def _next(self) -> tuple[Job, bool] | None:
        """Returns the next job; runs all ends once no job waits, and then looks again."""
        while True:
            with self._changing:
                if self._waiting:
                    return self._waiting.popleft()
                if not self._ends:
                    self._runs = False
                    return None
            self.end_begun()

    def end_begun(self) -> None:
        """Ends the jobs that have begun; only a job may call it."""
        while self._ends:
            self._ends.popleft()()

    def close(self, timeout_s: float = 1.0) -> None:
        """Ends the thread once it has run all jobs, as far as time allows."""
        self._pool.close(timeout_s)
