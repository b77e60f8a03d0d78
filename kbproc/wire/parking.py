"""Requests that wait for the store, without a thread of their own.

Owns: the one thread that asks them, their deadlines, and whose turn it is.
Refuses to know: what they wait for.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, NamedTuple

from kbproc.base.errors import KbprocError
from kbproc.calls.reply import Parked
from kbproc.wire import messages

if TYPE_CHECKING:
    from kbproc.wire.in_flight import Flight
    from kbproc.wire.service import Service


class _Waiter(NamedTuple):
    flight: Flight
    parked: Parked
    deadline: float | None

    @property
    def hot(self) -> bool:
        """True if it has more to send, and a client that can take it."""
        tail = self.parked.tail
        return tail is not None and tail.more() and not self.flight.is_crowded()

    def due(self, now: float) -> bool:
        return self.deadline is not None and now >= self.deadline


class Waiting:
    """Requests that wait, all on one thread, woken by whatever the store shows.

    Streams with a backlog take turns: each sends a part, and meanwhile nobody else
    is asked for whom nothing has changed.
    """

    def __init__(self, service: Service) -> None:
        self._service = service
        self._waiters: list[_Waiter] = []
        self._changed = threading.Condition()
        self._woken = False
        self._closing = False
        self._thread: threading.Thread | None = None

    def add(self, flight: Flight, parked: Parked) -> None:
        deadline = None
        if parked.timeout_ms is not None:
            deadline = self._service.host.monotonic_ms() + parked.timeout_ms
        if parked.tail is not None:
            flight.tell_room(self.wake)
        with self._changed:
            self._waiters.append(_Waiter(flight, parked, deadline))
            if self._thread is None:
                flight.call.store.on_change(self.wake)
                self._thread = threading.Thread(target=self._run, name="waiting", daemon=True)
                self._thread.start()
            self._woken = True
            self._changed.notify_all()

    def wake(self) -> None:
        with self._changed:
            self._woken = True
            self._changed.notify_all()

    def close(self) -> None:
        self._closing = True
        self.wake()
        if self._thread is not None:
            self._thread.join(1.0)

    def _run(self) -> None:
        while not self._closing:
            with self._changed:
                self._changed.wait_for(lambda: self._woken, self._patience())
                everybody, self._woken = self._woken, False
                waiters, self._waiters = self._waiters, []
            now = self._service.host.monotonic_ms()
            still = [
                waiter
                for waiter in waiters
                if not ((everybody or waiter.hot or waiter.due(now)) and self._settled(waiter))
            ]
            with self._changed:
                self._waiters = still + self._waiters

    def _patience(self) -> float | None:
        """Seconds until somebody must be asked, whether anything has changed or not."""
        if any(waiter.hot for waiter in self._waiters):
            return 0.0
        deadlines = [waiter.deadline for waiter in self._waiters if waiter.deadline is not None]
        if not deadlines:
            return None
        return max(0.0, (min(deadlines) - self._service.host.monotonic_ms()) / 1000)

    def _settled(self, waiter: _Waiter) -> bool:
        flight, parked = waiter.flight, waiter.parked
        try:
            flight.check_waiting(parked.detail())
            if self._is_ready(waiter):
                flight.parked = False
                flight.resume(parked.resume)
                return True
            if waiter.due(self._service.host.monotonic_ms()):
                raise parked.expired()
        except KbprocError as error:
            flight.fail(error)
            return True
        except Exception as error:  # noqa: BLE001  the boundary: see rpc.unexpected
            flight.fail(messages.unexpected(error))
            return True
        return False

    def _is_ready(self, waiter: _Waiter) -> bool:
        """A stream is not even asked while its client doesn't read."""
        if waiter.parked.tail is not None and waiter.flight.is_crowded():
            return False
        return waiter.parked.ready()
