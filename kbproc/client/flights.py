"""All requests of a client that wait for their answers.

This part sends them to the current server and to later ones, applies the server's messages to them,
keeps their deadlines, and repeats requests after errors that may pass.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from . import errors
from .asker import BaseAsker, Message
from .errors import KbprocError
from .process import Process
from .request import OnEnd, OnEvent, PendingRequest, line_of, pause_after

GRACE = 2.0  # seconds in addition to the timeout, which the server keeps itself
_MOST_LINE_BYTES = 16 * 1024 * 1024  # unless the server's init says otherwise
_AGAIN = frozenset({"server.overloaded", "store.locked"})
_TRIES = 20
_LONGEST_PAUSE = 1.0
_OF_AN_EVENT = 1024  # bytes that a dict takes in addition to its line
HELD = 4 * 1024 * 1024  # bytes of one stream's events that wait for their reader
MOST_HELD = 16 * HELD

_RESTART = "kbproc ended and was started again; the request goes on."

EventHook = Callable[[Message], None]


class Flights(BaseAsker[PendingRequest]):
    """The requests in flight. Any thread may add and cancel; the rest runs in the server's
    thread.
    """

    def __init__(self, on_event: EventHook | None) -> None:
        """`on_event` gets the events that belong to no request."""
        super().__init__(_RESTART, on_event)
        self._process: Process | None = None
        self.is_closed = False
        self.is_silent = False  # nothing has come since a request missed its deadline
        self.refusal: KbprocError | None = None

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
            requests = self._in_flight.values()
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
        with self._sending:
            request = PendingRequest(
                self.last_id + 1, method, params, timeout=timeout, on_event=on_event, on_end=on_end
            )
            request.due_at = request.due(GRACE)
            if len(line_of(request.message())) > (most := self._most_line_bytes):
                raise errors.too_large(method, most)
            if self.is_closed:
                raise errors.closed()
            self._add(request)
        self._send_cancellations()
        return request

    def cancel(self, id: int) -> None:
        """Cancels a request: the server gets the notification and answers; finished work stays.

        The server does not know requests that it refused and that wait for another try, so these
        end here.
        """
        with self._lock:
            request = self._in_flight.get(id)
            is_refused = request is not None and request.again_at is not None
            if is_refused:
                del self._in_flight[id]
        if request is not None and is_refused:
            request.on_end(errors.cancelled(request.method))
        else:
            super().cancel(id)

    def _give(self, request: PendingRequest) -> None:
        request.again_at = None
        super()._give(request)

    # --------------------------------------------------------------------------- servers

    def attach(self, process: Process) -> None:
        """Sends all waiting requests to a new server, in their order."""
        self.refusal, self.events, self._process = None, {}, process
        with self._lock:
            lost = [request for request in self._in_flight.values() if not request.is_repeatable]
            for request in lost:
                self.drop(request)
        self.begin(lambda message: process.give(line_of(message)))
        for request in lost:
            request.on_end(errors.lost(request.method))

    def write(self) -> None:
        """Writes the data that the server's pipe had no room for."""
        with self._sending:
            if self._process:
                self._process.write()

    def leave(self) -> None:
        """Closes the server's input."""
        with self._sending:
            if self._process:
                self._process.leave()

    def end(self) -> None:
        """Notes that the current server has ended."""
        super().end()
        self._process = None

    def end_all(self, error: KbprocError) -> None:
        with self._lock:
            pending, self._in_flight = list(self._in_flight.values()), {}
        for request in pending:
            request.on_end(error)

    # ------------------------------------------------------------------------------ time

    def due(self) -> float | None:
        """Returns the next moment at which `keep_time` has something to do."""
        with self._lock:
            requests = self._in_flight.values()
            moments = [m for request in requests for m in (request.due_at, request.again_at)]
        return min((moment for moment in moments if moment is not None), default=None)

    def keep_time(self) -> None:
        """Ends requests past their deadline, and repeats those whose pause is over."""
        now = time.monotonic()
        with self._sending, self._lock:
            requests = list(self._in_flight.values())
            late = [a for a in requests if a.due_at is not None and now >= a.due_at]
            for request in late:
                self._give_up(request)
            for request in self._in_flight.values():
                if request.again_at is not None and now >= request.again_at:
                    self._give(request)
        self._send_cancellations()
        self.is_silent = self.is_silent or bool(late)
        for request in late:
            request.on_end(errors.timed_out(request.method, request.timeout or 0.0))

    def _give_up(self, request: PendingRequest) -> None:
        """Forgets a request, and has it cancelled at the server."""
        self.drop(request)
        if request.was_sent:
            self._to_cancel.add(request.id)

    # -------------------------------------------------------------------------- messages

    def hear(self, message: Message, size: int = 0) -> None:
        self.is_silent = False
        super().hear(message, size + _OF_AN_EVENT)

    def _pass_on(self, request: PendingRequest, event: Message, size: int) -> None:
        """Passes an event on; cancels a stream that is not read.

        Its events can't be held back without holding up others.
        """
        if request.unread_bytes < MOST_HELD:
            request.pass_on(event, size)
        elif not request.is_cancelled:
            self._give_up(request)
            self._send_cancellations()
            request.on_end(errors.unread(request.method, MOST_HELD))

    def _ended_by(self, message: Message) -> PendingRequest | None:
        request = super()._ended_by(message)
        error = errors.of(message["error"]) if "error" in message else None
        if error is None:
            seq = message["result"]["meta"].get("seq")
            self._seq = max(self._seq or 0, seq) if isinstance(seq, int) else self._seq
        elif request is None and message.get("id") is None:
            self.refusal = error
        elif request is not None and _waits_for_retry(request, error):
            return None
        return request


def _waits_for_retry(request: PendingRequest, error: KbprocError) -> bool:
    if error.type not in _AGAIN or request.is_cancelled or request.tries >= _TRIES:
        return False
    pause = (error.retry_after_ms or 100) / 1000
    request.tries += 1
    request.again_at = time.monotonic() + max(
        pause, pause_after(request.tries, pause, _LONGEST_PAUSE)
    )
    return True
