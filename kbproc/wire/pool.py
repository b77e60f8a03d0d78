"""Threads that run requests.

Owns: how many threads there are, when one is started, what runs after what, and ending them.
Refuses to know: what the threads run.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from typing import Protocol


class Pool:
    """Threads that run requests; made as they are needed."""

    def __init__(self, size: int) -> None:
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._size = size
        self._idle = threading.Semaphore(0)
        self._threads: list[threading.Thread] = []

    def submit(self, job: Callable[[], None]) -> None:
        if not self._idle.acquire(blocking=False) and len(self._threads) < self._size:
            thread = threading.Thread(target=self._run, name="worker", daemon=True)
            self._threads.append(thread)
            thread.start()
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


class Ordered(Protocol):
    """What runs a job in its turn."""

    # Set before the job runs, which may call them.
    let_next: Callable[[], None]
    wait_for_those_before: Callable[[], object]


class InTurn:
    """Jobs that begin in the order they came, each once the one before has let it or ended.

    They end in that order, too, if each waits for those before it where it answers.
    """

    def __init__(self, size: int) -> None:
        """`size`: most jobs that run at the same time."""
        self._pool = Pool(size)
        self._waiting: deque[tuple[Callable[[], None], Ordered, bool]] = deque()
        self._running = 0
        self._is_held = False  # the last that began has not let the next
        self._last = threading.Event()  # whether the last that began has ended
        self._last.set()
        self._changing = threading.Lock()

    def submit(self, job: Callable[[], None], order: Ordered, *, looks_first: bool) -> None:
        """`looks_first`: all that came before must have ended, not only begun."""
        with self._changing:
            self._waiting.append((job, order, looks_first))
            self._begin_next()

    def _begin_next(self) -> None:
        if self._is_held or not self._waiting:
            return
        job, order, looks_first = self._waiting[0]
        if self._running and looks_first:
            return
        self._waiting.popleft()
        self._running += 1
        self._is_held = True
        ended, before = threading.Event(), self._last
        self._last = ended
        order.wait_for_those_before = before.wait
        self._pool.submit(partial(self._run, job, order, ended))

    def _run(self, job: Callable[[], None], order: Ordered, ended: threading.Event) -> None:
        has_let = False

        def let_next() -> None:
            nonlocal has_let
            with self._changing:
                if not has_let:
                    has_let = True
                    self._is_held = False
                    self._begin_next()

        order.let_next = let_next
        try:
            job()
        finally:
            ended.set()
            let_next()
            with self._changing:
                self._running -= 1
                self._begin_next()

    def close(self, timeout_s: float = 1.0) -> None:
        """Ends the threads once they have done what was submitted, as far as time allows."""
        self._pool.close(timeout_s)
