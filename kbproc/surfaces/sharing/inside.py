"""Sends requests on kbproc's wire as a client inside this process, and passes answers on.

The events `ready` and `error` tell if there is a store, and an agent's scopes.
"""

from __future__ import annotations

import functools
import itertools
import logging
import os
import threading
from collections.abc import Callable
from typing import Any

import msgspec

from kbproc.base.durable import write_all

_logger = logging.getLogger(__name__)
Message = dict[str, Any]
OnAnswer = Callable[[Message], None]  # gets the response: with `result` or with `error`
OnEvent = Callable[[Message], None]
_BLOCK = 1 << 16


class _InFlightRequest(msgspec.Struct, frozen=True):
    """The callbacks of a request in flight."""

    on_answer: OnAnswer
    on_event: OnEvent


class Inside:
    """A client of the wire. Any thread may ask; answers come in the thread of `run`."""

    def __init__(self, reader: int, writer: int) -> None:
        self._reader = reader
        self._writer = writer
        self._ids = itertools.count(1)
        self._in_flight: dict[int, _InFlightRequest] = {}
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        self._held: list[bytes] | None = []  # lines to send once `open` is called
        self._closed = False
        self.has_begun = False  # true once `ready` or `error` has come
        self._waiting: list[Callable[[], None]] = []
        self.scopes: frozenset[str] | None = None  # an agent's, from `ready`

    def ask(
        self,
        method: str,
        params: Message,
        on_answer: OnAnswer,
        on_event: OnEvent = lambda event: None,
    ) -> int:
        """Sends a request; returns its id, by which it can be cancelled."""
        id = next(self._ids)
        with self._lock:
            self._in_flight[id] = _InFlightRequest(on_answer, on_event)
        self._send({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
        return id

    def when_begun(self, then: Callable[[], None]) -> None:
        """Calls `then` once `ready` or `error` has come."""
        with self._lock:
            if not self.has_begun:
                self._waiting.append(then)
                return
        then()

    def cancel(self, id: int) -> None:
        self._send({"jsonrpc": "2.0", "method": "$/cancel", "params": {"id": id}})

    def _send(self, message: Message) -> None:
        line = msgspec.json.encode(message) + b"\n"
        with self._writing:
            if self._held is not None:
                self._held.append(line)
            elif not self._closed:
                write_all(self._writer, line)

    def open(self) -> None:
        """Sends the held lines; by now another thread reads the other end."""
        with self._writing:
            lines, self._held = self._held or [], None
            write_all(self._writer, b"".join(lines))
            if self._closed:
                os.close(self._writer)

    def end(self) -> None:
        """Closes the wire for new requests; those in flight are still answered."""
        with self._writing:
            if not self._closed:
                self._closed = True
                if self._held is None:
                    os.close(self._writer)

    def run(self) -> None:
        """Reads answers and events until the other end is closed."""
        parts = b""
        while block := os.read(self._reader, _BLOCK):
            *lines, parts = (parts + block).split(b"\n")
            for line in lines:
                self._take(msgspec.json.decode(line))

    def _take(self, message: Message) -> None:
        if "method" not in message:
            with self._lock:
                request = self._in_flight.pop(message["id"], None)
            if request is not None:
                _attempt(functools.partial(request.on_answer, message))
            return
        event = message["params"]
        if "request_id" in event:
            with self._lock:
                request = self._in_flight.get(event["request_id"])
            if request is not None:
                _attempt(functools.partial(request.on_event, event))
        elif event["type"] in {"ready", "error"}:
            scopes = event.get("scopes")
            self.scopes = self.scopes if scopes is None else frozenset(scopes)
            with self._lock:
                self.has_begun = True
                waiting, self._waiting = self._waiting, []
            for then in waiting:
                _attempt(then)


def _attempt(then: Callable[[], None]) -> None:
    """Runs a callback and logs its errors, so that the thread of all answers goes on."""
    try:
        then()
    except Exception:
        _logger.exception("an answer could not be passed on")
