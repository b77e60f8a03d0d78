"""The wire of kbproc, as this process's own client speaks it.

Owns: requests on the wire and who waits for their answers, and the events `ready` and `error`,
which say whether there is a store and what may be done with it.
Refuses to know: tools, and which process owns the store: that is behind the descriptors.
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


class Asked(msgspec.Struct, frozen=True):
    on_answer: OnAnswer
    on_event: OnEvent


class Inside:
    """The way to the store. Any thread may ask; answers come in the thread that runs `run`."""

    def __init__(self, reader: int, writer: int) -> None:
        self._reader = reader
        self._writer = writer
        self._ids = itertools.count(1)
        self._asked: dict[int, Asked] = {}
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        self._held: list[bytes] | None = []  # lines that came before the store is asked
        self._closed = False
        self.has_begun = False  # `ready` has come, or `error`
        self._waiting: list[Callable[[], None]] = []
        self.scopes: frozenset[str] | None = None  # of an agent, which the store tells

    def ask(
        self,
        method: str,
        params: Message,
        on_answer: OnAnswer,
        on_event: OnEvent = lambda event: None,
    ) -> int:
        """Returns the number by which the request can be cancelled."""
        id = next(self._ids)
        with self._lock:
            self._asked[id] = Asked(on_answer, on_event)
        self._send({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
        return id

    def when_begun(self, then: Callable[[], None]) -> None:
        """Calls it once it is known whether there is a store."""
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
        """Sends the lines that came before. Another thread reads the other end by now."""
        with self._writing:
            held, self._held = self._held or [], None
            write_all(self._writer, b"".join(held))
            if self._closed:
                os.close(self._writer)

    def end(self) -> None:
        """No request will come any more; those in flight are still answered."""
        with self._writing:
            if not self._closed:
                self._closed = True
                if self._held is None:
                    os.close(self._writer)

    def run(self) -> None:
        """Until the other end is closed."""
        parts = b""
        while block := os.read(self._reader, _BLOCK):
            *lines, parts = (parts + block).split(b"\n")
            for line in lines:
                self._take(msgspec.json.decode(line))

    def _take(self, message: Message) -> None:
        if "method" not in message:
            with self._lock:
                asked = self._asked.pop(message["id"], None)
            if asked is not None:
                _attempt(functools.partial(asked.on_answer, message))
            return
        event = message["params"]
        if "request_id" in event:
            with self._lock:
                asked = self._asked.get(event["request_id"])
            if asked is not None:
                _attempt(functools.partial(asked.on_event, event))
        elif event["type"] in {"ready", "error"}:
            scopes = event.get("scopes")
            self.scopes = self.scopes if scopes is None else frozenset(scopes)
            with self._lock:
                self.has_begun = True
                waiting, self._waiting = self._waiting, []
            for then in waiting:
                _attempt(then)


def _attempt(then: Callable[[], None]) -> None:
    """What one request's callback raises must not end the thread in which all answers come."""
    try:
        then()
    except Exception:
        _logger.exception("an answer could not be passed on")
