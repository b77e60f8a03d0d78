"""Requests that wait for the store, without a thread of their own.

Owns: the one thread that asks them, and their deadlines.
Refuses to know: what they wait for.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from kbproc import rpc
from kbproc.call import Parked
from kbproc.errors import KbprocError

if TYPE_CHECKING:
    from kbproc.flight import Flight
    from kbproc.server import Service


class Waiting:
    """Requests that wait, all on one thread, woken by whatever the store shows."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._parked: list[tuple[Flight, Parked, float | None]] = []
        self._changed = threading.Condition()
        self._woken = False
        self._closing = False
        self._thread: threading.Thread | None = None

    def add(self, flight: Flight, parked: Parked) -> None:
        deadline = None
        if parked.timeout_ms is not None:
            deadline = self._service.host.monotonic_ms() + parked.timeout_ms
        with self._changed:
            self._parked.append((flight, parked, deadline))
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
                self._woken = False
                parked, self._parked = self._parked, []
            still = [entry for entry in parked if not self._settled(*entry)]
            with self._changed:
                self._parked += still

    def _patience(self) -> float | None:
        """Seconds until the next deadline."""
        deadlines = [deadline for _, _, deadline in self._parked if deadline is not None]
        if not deadlines:
            return None
        return max(0.0, (min(deadlines) - self._service.host.monotonic_ms()) / 1000)

    def _settled(self, flight: Flight, parked: Parked, deadline: float | None) -> bool:
        try:
            flight.check_waiting()
            if parked.ready():
                flight.parked = False
                flight.resume(parked.resume)
                return True
            if deadline is not None and self._service.host.monotonic_ms() >= deadline:
                raise parked.expired()
        except KbprocError as error:
            flight.fail(error)
            return True
        except Exception as error:  # noqa: BLE001  the boundary: see rpc.unexpected
            flight.fail(rpc.unexpected(error))
            return True
        return False
