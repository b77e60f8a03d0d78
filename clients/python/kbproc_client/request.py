"""One request as its caller sees it: its line for each server, its events, its end."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any, cast

from .data import Event
from .errors import KbprocError
from .facts import METHODS
from .in_flight import SUBSCRIBE, InFlight, renumbered, with_token

_RESTART = "kbproc ended and was started again; the request goes on."

OnEvent = Callable[[Event, int], None]  # gets the bytes of the line, too
# Called at the request's end with the `result` of the response, or with the error.
OnEnd = Callable[[dict[str, Any] | KbprocError], None]


class PendingRequest(InFlight):
    """A request of the client.

    `due_at`: when the client stops waiting. `again_at`: when it sends the request again. Only the
    reader, perhaps in another thread, counts `read_bytes`.
    """

    def __init__(
        self,
        id: int,
        method: str,
        params: dict[str, Any],
        *,
        timeout: float | None = None,
        on_event: OnEvent | None = None,
        on_end: OnEnd,
    ) -> None:
        super().__init__(method, timeout)
        self.id = id
        self.params = {name: value for name, value in params.items() if value is not None}
        if timeout is not None:
            self.params["timeout_ms"] = max(0, round(timeout * 1000))
        self.timeout = timeout
        self.on_end = on_end
        self.due_at: float | None = None
        self.again_at: float | None = None
        self.tries = 0
        self.read_bytes = 0
        self._passed_bytes = 0
        self._on_event = on_event
        if _writes(method):
            self.params = with_token(self.params, os.urandom(16).hex())

    @property
    def is_repeatable(self) -> bool:
        """Returns whether the request can be repeated: it reads, has a token, or was never sent."""
        return not self.was_sent or self.method in METHODS

    def line(self) -> bytes:
        """Returns the line for the next server, which does not know the previous one."""
        params = self.params_now(self.params)
        message = {"jsonrpc": "2.0", "id": self.id, "method": self.method, "params": params}
        return (
            json.dumps(message, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
            + b"\n"
        )

    @property
    def unread_bytes(self) -> int:
        """Returns the bytes of the events that were passed on and not read yet."""
        return self._passed_bytes - self.read_bytes

    def hear(self, event: dict[str, Any], size: int) -> None:
        """Passes an event on, unless an earlier server sent it. `size`: the bytes of its line."""
        item = event.get("item")
        seq = item.get("seq") if self.method == SUBSCRIBE and isinstance(item, dict) else None
        index = self.index_of(event["type"], event.get("cursor"), seq)
        if index is not None and self._on_event is not None:
            self._passed_bytes += size
            self._on_event(cast(Event, renumbered(event, index, _RESTART)), size)


def _writes(method: str) -> bool:
    return METHODS[method][0] if method in METHODS else False


def cancel_line(id: int) -> bytes:
    message = {"jsonrpc": "2.0", "method": "$/cancel", "params": {"id": id}}
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"
