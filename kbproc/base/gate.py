"""Background work that gives way.

Owns: a thread's low priority, and moments in which nothing of the kind is done.
Refuses to know: what the work is.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator


class Quiet:
    """Whoever works says so with `working`; whoever must be alone asks with `kept`."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._busy = 0
        self._wanted = 0

    @contextlib.contextmanager
    def working(self) -> Iterator[None]:
        with self._changed:
            self._changed.wait_for(lambda: not self._wanted)
            self._busy += 1
        try:
            yield
        finally:
            with self._changed:
                self._busy -= 1
                self._changed.notify_all()

    @contextlib.contextmanager
    def kept(self) -> Iterator[None]:
        """Waits until nobody works, and lets nobody begin."""
        with self._changed:
            self._wanted += 1
            self._changed.wait_for(lambda: not self._busy)
        try:
            yield
        finally:
            with self._changed:
                self._wanted -= 1
                self._changed.notify_all()
