"""Threads that run requests.

Owns: how many threads there are, when one is started, and ending them.
Refuses to know: what the threads run.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from queue import SimpleQueue


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
