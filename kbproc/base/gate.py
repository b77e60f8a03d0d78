"""A gate that background work passes, and a lock that knows which thread holds it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator


class Gate:
    """A gate for background work: it runs `inside`; a thread that must be alone keeps it
    `closed`. `closings`: how often it was closed.
    """

    def __init__(self) -> None:
        self.closings = 0
        self._changed = threading.Condition()
        self._inside = 0
        self._closed = 0

    @contextlib.contextmanager
    def inside(self) -> Iterator[None]:
        """Waits while the gate is closed."""
        with self._changed:
            self._changed.wait_for(lambda: not self._closed)
            self._inside += 1
        try:
            yield
        finally:
            with self._changed:
                self._inside -= 1
                self._changed.notify_all()

    @contextlib.contextmanager
    def closed(self) -> Iterator[None]:
        """Closes the gate, and waits until no work is inside."""
        with self._changed:
            self._closed += 1
            self.closings += 1
            self._changed.wait_for(lambda: not self._inside)
        try:
            yield
        finally:
            with self._changed:
                self._closed -= 1
                self._changed.notify_all()


class Hold:
    """A reentrant lock that tells whether the current thread holds it."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._holder = 0
        self._depth = 0

    def __enter__(self) -> None:
        self._lock.acquire()
        self._holder, self._depth = threading.get_ident(), self._depth + 1

    def __exit__(self, *wrong: object) -> None:
        self._depth -= 1
        if not self._depth:
            self._holder = 0
        self._lock.release()

    @property
    def is_mine(self) -> bool:
        return self._holder == threading.get_ident()
