"""The moments at which requests have had the time that their clients gave them.

Owns: reading `timeout_ms` from params, and the one thread that tells requests in time.
Refuses to know: what a request does once its time is up. Light.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from typing import Protocol

import msgspec

from kbproc.base.host import Host
from kbproc.base.params import TimeoutMs
from kbproc.base.values import decoder

_logger = logging.getLogger(__name__)


class _Timed(msgspec.Struct):
    timeout_ms: TimeoutMs | None = None


_timed = decoder(_Timed).decode


def timeout_of(params: msgspec.Raw | bytes) -> int | None:
    """None, too, for params that are refused later: no wait takes any number there is."""
    if b'"timeout_ms"' in bytes(params):
        with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return _timed(params).timeout_ms
    return None


class Timed(Protocol):
    """A request that has been given some time."""

    def expire(self) -> None:
        """The time is up. This must not block."""
        ...


class Deadlines:
    """Requests and their deadlines. Any thread may use it."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._due: dict[Timed, float] = {}
        self._changed = threading.Condition()
        self._closing = False
        self._thread: threading.Thread | None = None

    def add(self, request: Timed, timeout_ms: int) -> None:
        with self._changed:
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="deadlines", daemon=True)
                thread.start()
                self._thread = thread
            self._due[request] = self._host.monotonic_ms() + timeout_ms
            self._changed.notify_all()

    def remove(self, request: Timed) -> None:
        """It has been answered, in time or not."""
        with self._changed:
            self._due.pop(request, None)

    def close(self) -> None:
        with self._changed:
            self._closing = True
            self._changed.notify_all()

    def _run(self) -> None:
        while not self._closing:
            for request in self._expired():
                try:
                    request.expire()
                except Exception:  # the others' time must run out, too
                    _logger.exception("a request's time could not end")

    def _expired(self) -> list[Timed]:
        """Waits for the next deadline, or for a change; returns those whose time is up."""
        with self._changed:
            now = self._host.monotonic_ms()
            expired = [request for request, due in self._due.items() if due <= now]
            for request in expired:
                del self._due[request]
            if not expired and not self._closing:
                next_due = min(self._due.values(), default=None)
                self._changed.wait(None if next_due is None else (next_due - now) / 1000)
        return expired
