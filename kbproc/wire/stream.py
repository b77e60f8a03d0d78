"""The events of one request, numbered without a gap.

Owns: the index, how often progress is reported, and the time that is left.
Refuses to know: where events go, and who reads them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kbproc.base.host import Host
from kbproc.wire import messages

_PROGRESS_EVERY_MS = 100.0


class Stream:
    """`send` gets each event as a line; while `crowded` is true there should be fewer."""

    def __init__(
        self,
        *,
        wire: messages.Wire,
        id: messages.Id,
        host: Host,
        send: Callable[[bytes], None],
        crowded: Callable[[], bool] = lambda: False,
        wait: Callable[[], None] = lambda: None,
    ) -> None:
        self._wire = wire
        self._id = id
        self._host = host
        self._send = send
        self._crowded = crowded
        self._wait = wait
        self._index = 0
        self._started = self._last_progress = host.monotonic_ms()

    def begin(self) -> None:
        """`init`, unless there was one."""
        if not self._index:
            self.emit("init", {})

    def emit(self, name: str, fields: dict[str, Any]) -> None:
        """Progress may be left out, before it is numbered; other events `wait` for room."""
        if name == "progress":
            now, last = self._host.monotonic_ms(), fields.pop("last", False)
            if not last and (self._crowded() or now - self._last_progress < _PROGRESS_EVERY_MS):
                return
            self._last_progress = now
            fields["eta_ms"] = self._eta(now, fields["current"], fields["total"])
        elif self._crowded():
            self._wait()
        line = self._wire.event(name, {"request_id": self._id, "index": self._index, **fields})
        if line is not None:
            self._index += 1
            self._send(line)

    def _eta(self, now: float, current: int, total: int | None) -> int | None:
        """Milliseconds that are left, if the work goes on as fast as so far."""
        if not current or total is None:
            return None
        return round((now - self._started) / current * (total - current))
