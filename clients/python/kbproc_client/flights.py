"""All requests of a client that wait for their answers.

This part sends them to the current server and to later ones, applies the server's messages to them,
keeps their deadlines, and repeats requests after errors that may pass.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from . import errors
from .errors import KbprocError
from .process import Process
from .request import OnEnd, OnEvent, PendingRequest, cancel_line

GRACE = 2.0  # seconds in addition to the timeout, which the server keeps itself
_MOST_LINE_BYTES = 16 * 1024 * 1024  # unless the server's init says otherwise
_AGAIN = frozenset({"server.overloaded", "store.locked"})
_TRIES = 20
_LONGEST_PAUSE = 1.0
_OF_AN_EVENT = 1024  # bytes that a dict takes in addition to its line
HELD = 4 * 1024 * 1024  # bytes of one stream's events that wait for their reader
MOST_HELD = 16 * HELD

EventHook = Callable[[dict[str, Any]], None]


class Flights:
    """The requests in flight. Any thread may add and cancel; the rest runs in the engine's
    thread.
    """

    def __init__(self, on_event: EventHook | None) -> None:
        """`on_event` gets the events that belong to no request."""
        self._on_event = on_event
        self._lock = threading.Lock()
        self.last_id = 0
        self._pending: dict[int, PendingRequest] = {}
        self._process: Process | None = None
        self._seq: int | None = None
        self.is_closed = False
        self.is_silent = False  # nothing has come since a request missed its deadline
        self.events: dict[str, dict[str, Any]] = {}  # the current server's process events, by type
        self.refusal: KbprocError | None = None

    def __len__(self) -> int:
        return len(self._pending)

    @property
    def _most_line_bytes(self) -> int:
        """Returns the limit in the server's init; the usual one before that."""
        capabilities = self.events.get("init", {}).get("capabilities", {})
        most = capabilities.get("max_line_bytes")
        return most if isinstance(most, int) else _MOST_LINE_BYTES

    def has_room(self, limit: int) -> bool:
        """Returns whether a request waits for the next event.

        A stream whose reader is behind does not: without another request in flight the server is
        not read any more, which holds the stream back.
        """
        with self._lock:
            requests = self._pending.values()
            return not requests or any(
                request.is_cancelled or request.unread_bytes < limit for request in requests
            )

    # ---------------------------------------------------------------------------- asking

    def add(
        self,
        method: str,
        params: dict[str, Any],
        *,
        timeout: float | None,
        on_end: OnEnd,
        on_event: OnEvent | None,
    ) -> PendingRequest:
        """Adds a request and sends it.

        Raises Closed, BadRequest; TypeError and ValueError for params that are not JSON.
        """
        with self._lock:
            request = PendingRequest(
                self.last_id + 1, method, params, timeout=timeout, on_event=on_event, on_end=on_end
            )
            request.due_at = request.due(GRACE)
            if len(request.line()) > (most := self._most_line_bytes):
                raise errors.too_large(method, most)
            if self.is_closed:
                raise errors.closed()
            self.last_id = request.id
            self._pending[request.id] = request
            self._send(request)
        return request

    def cancel(self, request: PendingRequest) -> None:
        """Cancels a request: the server gets the notification and answers; finished work stays.

        The server does not know requests that it refused and that wait for another try, so these
        end here.
        """
        with self._lock:
            if request.id not in self._pending or request.is_cancelled:
                return
            request.is_cancelled = True
            is_refused = request.again_at is not None
            if is_refused:
                del self._pending[request.id]
            elif self._process and request.was_sent:
                self._process.give(cancel_line(request.id))
        if is_refused:
            request.on_end(errors.cancelled(request.method))

    def _send(self, request: PendingRequest) -> None:
        """Sends a request to the current server, if there is one. The caller holds the lock."""
        if self._process is None:
            return
        request.begin(self._seq)
        request.again_at = None
        self._process.give(request.line())
        if request.is_cancelled:
            self._process.give(cancel_line(request.id))

    # --------------------------------------------------------------------------- servers

    def begin(self, process: Process) -> None:
        """Sends all waiting requests to a new server, in their order."""
        self.refusal, self.events = None, {}
        with self._lock:
            self._process = process
            lost = [request for request in self._pending.values() if not request.is_repeatable]
            for request in lost:
                del self._pending[request.id]
            for request in self._pending.values():
                self._send(request)
        for request in lost:
            request.on_end(errors.lost(request.method))

    def write(self) -> None:
        """Writes the data that the server's pipe had no room for."""
        with self._lock:
            if self._process:
                self._process.write()

    def leave(self) -> None:
        """Closes the server's input."""
        with self._lock:
            if self._process:
                self._process.leave()

    def end(self) -> None:
        """Notes that the current server has ended."""
        with self._lock:
            self._process = None

    def end_all(self, error: KbprocError) -> None:
        with self._lock:
            pending, self._pending = list(self._pending.values()), {}
        for request in pending:
            request.on_end(error)

    # ------------------------------------------------------------------------------ time

    def due(self) -> float | None:
        """Returns the next moment at which `keep_time` has something to do."""
        with self._lock:
            moments = [
                m for request in self._pending.values() for m in (request.due_at, request.again_at)
            ]
        return min((moment for moment in moments if moment is not None), default=None)

    def keep_time(self) -> None:
        """Ends requests past their deadline, and repeats those whose pause is over."""
        now = time.monotonic()
        with self._lock:
            late = [a for a in self._pending.values() if a.due_at is not None and now >= a.due_at]
            for request in late:
                del self._pending[request.id]
                if self._process and request.was_sent:
                    self._process.give(cancel_line(request.id))
            for request in self._pending.values():
                if request.again_at is not None and now >= request.again_at:
                    self._send(request)
        self.is_silent = self.is_silent or bool(late)
        for request in late:
            request.on_end(errors.timed_out(request.method, request.timeout or 0.0))

    # -------------------------------------------------------------------------- messages

    def hear(self, message: dict[str, Any], size: int) -> None:
        """Applies a message; passes over unknown ones, which a later version may send.

        `size`: the bytes of its line.
        """
        self.is_silent = False
        if message.get("method") == "event":
            self._hear_event(message["params"], size + _OF_AN_EVENT)
        elif "method" not in message:
            self._hear_answer(message)

    def _hear_event(self, event: dict[str, Any], size: int) -> None:
        id = event.get("request_id")
        if id is None:
            self.events[str(event.get("type"))] = event
            self._note_position(event.get("seq"))
            if self._on_event is not None:
                self._on_event(event)
            return
        request = self._pending.get(id)
        if request is not None and request.unread_bytes < MOST_HELD:
            request.hear(event, size)
        elif request is not None and not request.is_cancelled:
            self._leave_unread(request)

    def _leave_unread(self, request: PendingRequest) -> None:
        """Cancels a stream that is not read: its events can't be held back without holding up
        others.
        """
        with self._lock:
            del self._pending[request.id]
            if self._process:
                self._process.give(cancel_line(request.id))
        request.on_end(errors.unread(request.method, MOST_HELD))

    def _note_position(self, seq: Any) -> None:
        """Notes the store's position, for subscriptions that name none."""
        if isinstance(seq, int):
            self._seq = max(self._seq or 0, seq)
            with self._lock:
                for request in self._pending.values():
                    request.note_position(seq)

    def _hear_answer(self, message: dict[str, Any]) -> None:
        error = errors.of(message["error"]) if "error" in message else None
        with self._lock:
            request = self._request_with(message.get("id"))
            if request is not None and error is not None and _waits_for_retry(request, error):
                return
            if request is not None:
                del self._pending[request.id]
        if request is None:
            self.refusal = error if message.get("id") is None else self.refusal
        elif error is not None:
            request.on_end(error)
        else:
            seq = message["result"]["meta"].get("seq")
            self._seq = max(self._seq or 0, seq) if isinstance(seq, int) else self._seq
            request.on_end(message["result"])

    def _request_with(self, id: Any) -> PendingRequest | None:
        """Returns the request of an answer.

        An error without an id belongs to a line that was not understood: to the only request in
        flight.
        """
        if id is None and len(self._pending) == 1:
            return next(iter(self._pending.values()))
        return self._pending.get(id)


def _waits_for_retry(request: PendingRequest, error: KbprocError) -> bool:
    if error.type not in _AGAIN or request.is_cancelled or request.tries >= _TRIES:
        return False
    pause = (error.retry_after_ms or 100) / 1000
    request.again_at = time.monotonic() + max(
        pause, min(pause * 1.3**request.tries, _LONGEST_PAUSE)
    )
    request.tries += 1
    return True
