"""Threads that run requests.

Owns: how many threads there are, when one is started, what runs after what, and ending them.
Refuses to know: what the threads run.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Protocol


class Pool:
    """Threads that run requests; made as they are needed."""

    def __init__(self, size: int) -> None:
        self._jobs: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._size = size
        self._idle = threading.Semaphore(0)
        self._threads: list[threading.Thread] = []

    def submit(self, job: Callable[[], object]) -> None:
        if not self._idle.acquire(blocking=False) and len(self._threads) < self._size:
            thread = threading.Thread(target=self._run, name="worker", daemon=True)
            thread.start()
            self._threads.append(thread)
        self._jobs.put(job)

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
            self._idle.release()

    def close(self, timeout_s: float = 1.0) -> None:
        """Ends the threads once they have done what was submitted, as far as time allows."""
        deadline = time.monotonic() + timeout_s
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))


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
        """`alone`: all that came before must have ended, not only begun."""
        order.end_those_before = self._end
        with self._changing:
            self._waiting.append((job, alone))
            if not self._runs:
                self._runs = True
                self._pool.submit(self._run)

    def _run(self) -> None:
        while (found := self._next()) is not None:
            job, alone = found
            if alone:
                self._end()
            if (end := job()) is not None:
                self._begun.append(end)

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
