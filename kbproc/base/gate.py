"""A gate that background work passes through, and that others may close.

Owns: who is inside, and keeping the gate closed until whoever closed it is done.
Refuses to know: what the work is.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator


class Gate:
    """Background work runs `inside`; whoever must be alone keeps the gate `closed`."""

    def __init__(self) -> None:
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
        """Lets nobody in, and waits until nobody is inside."""
        with self._changed:
            self._closed += 1
            self._changed.wait_for(lambda: not self._inside)
        try:
            yield
        finally:
            with self._changed:
                self._closed -= 1
                self._changed.notify_all()
