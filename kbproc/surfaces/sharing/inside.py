"""Sends requests on kbproc's wire as a client inside this process, and passes answers on.

The events `ready` and `error` tell if there is a store, and an agent's scopes.
"""

from __future__ import annotations

import functools
import logging
import os
import threading
from collections.abc import Callable

import msgspec

from kbproc.base.durable import write_all
from kbproc.base.lines import LineCutter
from kbproc.base.threads import start_thread
from kbproc.client.asker import Asker, Message

_logger = logging.getLogger(__name__)
_BLOCK = 1 << 16
_END_SECONDS = 2.0


class Inside(Asker):
    """A client of the wire. Any thread may ask; answers come in the thread of `run`."""

    def __init__(self, reader: int, writer: int) -> None:
        super().__init__(on_event=self._hear_store)
        self._reader = reader
        self._writer = writer
        self._changing = threading.Lock()
        self._is_open = False
        self._is_over = False  # true once no more requests come
        self.has_begun = False  # true once `ready` or `error` has come
        self._waiting: list[Callable[[], None]] = []
        self.scopes: frozenset[str] | None = None  # an agent's, from `ready`

    def when_begun(self, then: Callable[[], None]) -> None:
        """Calls `then` once `ready` or `error` has come."""
        with self._lock:
            if not self.has_begun:
                self._waiting.append(then)
                return
        then()

    def open(self) -> None:
        """Sends the requests so far; by now another thread reads the other end."""
        with self._changing:
            self.begin(self._write)
            self._is_open = True
            self._close_if_over()

    def _write(self, message: Message) -> None:
        write_all(self._writer, msgspec.json.encode(message) + b"\n")

    def close(self) -> None:
        """Closes the wire for new requests; those in flight are still answered."""
        with self._changing:
            self._is_over = True
            self._close_if_over()

    def _close_if_over(self) -> None:
        if self._is_open and self._is_over:
            self._is_open = False
            self.end()
            os.close(self._writer)

    def run(self) -> None:
        """Reads answers and events until the other end is closed."""
        cutter = LineCutter()
        while block := os.read(self._reader, _BLOCK):
            for line in cutter.take(block):
                _attempt(functools.partial(self.hear, msgspec.json.decode(line)))

    def _hear_store(self, event: Message) -> None:
        if event["type"] in {"ready", "error"}:
            scopes = event.get("scopes")
            self.scopes = self.scopes if scopes is None else frozenset(scopes)
            with self._lock:
                self.has_begun = True
                waiting, self._waiting = self._waiting, []
            for then in waiting:
                _attempt(then)


class InsideServe:
    """A `serve` that runs in this process, over two pipes, and the `client` that asks it."""

    def __init__(self) -> None:
        (requests, writer), (reader, answers) = os.pipe(), os.pipe()
        self.client = Inside(reader, writer)
        self._pipes = (requests, answers)
        self._passing_on = start_thread(self.client.run, "inside")

    def run(self, serve: Callable[[tuple[int, int]], int]) -> int:
        """Returns the exit code of `serve`, which gets the two ends of its pipes.

        All answers have been passed on at the end, as far as two seconds allow.
        """
        start_thread(self.client.open, "open")
        code = serve(self._pipes)
        os.close(self._pipes[1])
        self._passing_on.join(_END_SECONDS)
        return code


def _attempt(then: Callable[[], None]) -> None:
    """Runs a callback and logs its errors, so that the thread of all answers goes on."""
    try:
        then()
    except Exception:
        _logger.exception("an answer could not be passed on")
