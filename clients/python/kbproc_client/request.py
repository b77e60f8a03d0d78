"""One request as its caller sees it: its line for each server, its events, its end."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any, cast

from . import errors
from .asker import AskedRequest, Message
from .data import Event
from .errors import KbprocError
from .facts import METHODS
from .in_flight import with_token

OnEvent = Callable[[Event, int], None]  # gets the bytes of the line, too
# Called at the request's end with the `result` of the response, or with the error.
OnEnd = Callable[[dict[str, Any] | KbprocError], None]


class PendingRequest(AskedRequest):
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
        params = {name: value for name, value in params.items() if value is not None}
        if timeout is not None:
            params["timeout_ms"] = max(0, round(timeout * 1000))
        if _writes(method):
            params = with_token(params, os.urandom(16).hex())
        super().__init__(id, method, params, self._end, timeout_s=timeout)
        self.timeout = timeout
        self.on_end = on_end
        self.due_at: float | None = None
        self.again_at: float | None = None
        self.tries = 0
        self.read_bytes = 0
        self._passed_bytes = 0
        self._on_sized_event = on_event

    @property
    def is_repeatable(self) -> bool:
        """Returns whether the request can be repeated: it reads, has a token, or was never sent."""
        return not self.was_sent or self.method in METHODS

    @property
    def unread_bytes(self) -> int:
        """Returns the bytes of the events that were passed on and not read yet."""
        return self._passed_bytes - self.read_bytes

    def pass_on(self, event: Message, size: int) -> None:
        """Passes an event on. `size`: the bytes of its line."""
        if self._on_sized_event is not None:
            self._passed_bytes += size
            self._on_sized_event(cast(Event, event), size)

    def _end(self, message: Message) -> None:
        self.on_end(errors.of(message["error"]) if "error" in message else message["result"])


def _writes(method: str) -> bool:
    return METHODS[method][0] if method in METHODS else False


def line_of(message: Message) -> bytes:
    """Returns a message's line. Raises TypeError and ValueError for what is not JSON."""
    text = json.dumps(message, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.encode() + b"\n"


def pause_after(failures: int, first_s: float, longest_s: float) -> float:
    """Returns the seconds to wait after so many failures in a row: twice as many each time."""
    return min(longest_s, first_s * 2.0 ** (failures - 1))
