"""Requests that wait, without a thread of their own.

Owns: the one thread that polls them, their deadlines, and whose turn it is.
Refuses to know: what a request waits for, who has sent it, and what a store is.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import NamedTuple, Protocol

from kbproc.base.host import Host


class Waiting(Protocol):
    """A request that waits, as parking knows it."""

    def has_more(self) -> bool:
        """True if it could send something now, though nothing has changed."""
        ...

    def poll(self, *, expired: bool) -> bool:
        """True once it waits no more; `expired`: its time is up. Raises nothing."""
        ...


class _Place(NamedTuple):
    request: Waiting
    deadline: float | None

    def is_due(self, now: float) -> bool:
        return self.deadline is not None and now >= self.deadline


class Parking:
    """Requests that wait, all on one thread, which is woken whenever something has changed.

    Streams with a backlog take turns: each sends a part, and meanwhile no request is
    polled for which nothing has changed.
    """

    def __init__(self, host: Host, subscribe: Callable[[Callable[[], None]], None]) -> None:
        """`subscribe` gets, with the first request, what it is to call at every change."""
        self._host = host
        self._subscribe = subscribe
        self._places: list[_Place] = []
        self._changed = threading.Condition()
        self._woken = False
        self._closing = False
        self._thread: threading.Thread | None = None

    def add(self, request: Waiting, timeout_ms: int | None) -> None:
        """Polls the request soon, and from then on at every change."""
        deadline = None if timeout_ms is None else self._host.monotonic_ms() + timeout_ms
        with self._changed:
            if self._thread is None:
                self._subscribe(self.wake)
                thread = threading.Thread(target=self._run, name="parking", daemon=True)
                thread.start()
                self._thread = thread
            self._places.append(_Place(request, deadline))
            self._woken = True
            self._changed.notify_all()

    def wake(self) -> None:
        """Something has changed: every request is polled. This must not block."""
        with self._changed:
            self._woken = True
            self._changed.notify_all()

    def close(self, timeout_s: float = 1.0) -> None:
        self._closing = True
        self.wake()
        if self._thread is not None:
            self._thread.join(timeout_s)

    def _run(self) -> None:
        while not self._closing:
            with self._changed:
                self._changed.wait_for(lambda: self._woken, self._seconds_to_next())
                everybody, self._woken = self._woken, False
                places, self._places = self._places, []
            now = self._host.monotonic_ms()
            still = [place for place in places if not self._is_done(place, now, everybody)]
            with self._changed:
                self._places = still + self._places

    def _is_done(self, place: _Place, now: float, everybody: bool) -> bool:
        due = place.is_due(now)
        if not (everybody or due or place.request.has_more()):
            return False
        return place.request.poll(expired=due)

    def _seconds_to_next(self) -> float | None:
        """How long nobody must be polled, if nothing changes meanwhile."""
        if any(place.request.has_more() for place in self._places):
            return 0.0
        deadlines = [place.deadline for place in self._places if place.deadline is not None]
        if not deadlines:
            return None
        return max(0.0, (min(deadlines) - self._host.monotonic_ms()) / 1000)
