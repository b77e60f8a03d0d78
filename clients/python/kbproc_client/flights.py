"""All requests of a client that wait for their answers.

Owns: sending them to the server of now and to each that comes after it, what the server's messages
mean for them, their time, and asking once more what is worth another try.
Refuses to know: how a server is started and read.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from . import errors
from .asked import Asked, Ended, Heard, cancel_line
from .errors import KbprocError
from .process import Process

GRACE = 2.0  # seconds beside the timeout that the server keeps
_MOST_LINE_BYTES = 16 * 1024 * 1024  # unless a server says otherwise
_AGAIN = frozenset({"server.overloaded", "store.locked"})
_TRIES = 20
_LONGEST_PAUSE = 1.0
_OF_AN_EVENT = 1024  # bytes that a dict takes beside its line
HELD = 4 * 1024 * 1024  # bytes of one stream's events that wait for their reader
MOST_HELD = 16 * HELD

Told = Callable[[dict[str, Any]], None]


class Flights:
    """Any thread may ask and cancel; all else is the thread's that reads the server."""

    def __init__(self, on_event: Told | None) -> None:
        """`on_event` gets what belongs to no request."""
        self._on_event = on_event
        self._lock = threading.Lock()
        self.last_id = 0
        self._asked: dict[int, Asked] = {}
        self._process: Process | None = None
        self._seq: int | None = None
        self.is_closed = False
        self.is_silent = False  # nothing has come since somebody waited in vain
        self.events: dict[str, dict[str, Any]] = {}  # of the server of now, by their types
        self.refusal: KbprocError | None = None

    def __len__(self) -> int:
        return len(self._asked)

    @property
    def _most_line_bytes(self) -> int:
        """As the server has said in its init; before that, as is usual."""
        told = self.events.get("init", {}).get("capabilities", {})
        most = told.get("max_line_bytes")
        return most if isinstance(most, int) else _MOST_LINE_BYTES

    def has_room(self, held: int) -> bool:
        """Whether anybody waits for what comes next. A stream whose reader is behind does not: with
        no other request in flight the server is read no more, and holds the stream back.
        """
        with self._lock:
            asked = self._asked.values()
            return not asked or any(one.cancelled or one.held < held for one in asked)

    # ---------------------------------------------------------------------------- asking

    def add(
        self,
        method: str,
        params: dict[str, Any],
        *,
        timeout: float | None,
        ended: Ended,
        heard: Heard | None,
    ) -> Asked:
        """Raises Closed, BadRequest; TypeError and ValueError for what is no JSON."""
        with self._lock:
            asked = Asked(
                self.last_id + 1, method, params, timeout=timeout, heard=heard, ended=ended
            )
            asked.began = time.monotonic()
            if timeout is not None:
                asked.due = asked.began + timeout + GRACE
            if len(asked.line(asked.began)) > (most := self._most_line_bytes):
                raise errors.too_large(method, most)
            if self.is_closed:
                raise errors.closed()
            self.last_id = asked.id
            self._asked[asked.id] = asked
            self._send(asked)
        return asked

    def cancel(self, asked: Asked) -> None:
        """The server is told, and answers; what it has done by then stays. What it has refused, and
        what waits for another try, it knows nothing of.
        """
        with self._lock:
            if asked.id not in self._asked or asked.cancelled:
                return
            asked.cancelled = True
            is_refused = asked.again_at is not None
            if is_refused:
                del self._asked[asked.id]
            elif self._process and asked.servers:
                self._process.give(cancel_line(asked.id))
        if is_refused:
            asked.ended(errors.cancelled(asked.method))

    def _send(self, asked: Asked) -> None:
        """To the server of now, if there is one. The lock is held."""
        if self._process is None:
            return
        asked.begin_anew(self._seq)
        self._process.give(asked.line(time.monotonic()))
        asked.servers += 1
        if asked.cancelled:
            self._process.give(cancel_line(asked.id))

    # --------------------------------------------------------------------------- servers

    def begin(self, process: Process) -> None:
        """Asks a new server all that waits, in the order in which it was asked."""
        self.refusal, self.events = None, {}
        with self._lock:
            self._process = process
            lost = [asked for asked in self._asked.values() if not asked.can_be_asked_again]
            for asked in lost:
                del self._asked[asked.id]
            for asked in self._asked.values():
                self._send(asked)
        for asked in lost:
            asked.ended(errors.lost(asked.method))

    def write(self) -> None:
        """What the server's pipe had no room for."""
        with self._lock:
            if self._process:
                self._process.write()

    def leave(self) -> None:
        """Nothing more is sent to the server of now."""
        with self._lock:
            if self._process:
                self._process.leave()

    def end(self) -> None:
        """The server of now has ended."""
        with self._lock:
            self._process = None

    def end_all(self, error: KbprocError) -> None:
        with self._lock:
            left, self._asked = list(self._asked.values()), {}
        for asked in left:
            asked.ended(error)

    # ------------------------------------------------------------------------------ time

    def due(self) -> float | None:
        """The next moment at which `keep_time` has something to do."""
        with self._lock:
            moments = [m for asked in self._asked.values() for m in (asked.due, asked.again_at)]
        return min((moment for moment in moments if moment is not None), default=None)

    def keep_time(self) -> None:
        """Gives up what was not answered in time, and sends once more what has waited for it."""
        now = time.monotonic()
        with self._lock:
            late = [a for a in self._asked.values() if a.due is not None and now >= a.due]
            for asked in late:
                del self._asked[asked.id]
                if self._process and asked.servers:
                    self._process.give(cancel_line(asked.id))
            for asked in self._asked.values():
                if asked.again_at is not None and now >= asked.again_at:
                    self._send(asked)
        self.is_silent = self.is_silent or bool(late)
        for asked in late:
            asked.ended(errors.timed_out(asked.method, asked.timeout or 0.0))

    # -------------------------------------------------------------------------- messages

    def hear(self, message: dict[str, Any], size: int) -> None:
        """What is unknown is passed over: a later version may say more. `size`: of its line."""
        self.is_silent = False
        if message.get("method") == "event":
            self._hear_event(message["params"], size + _OF_AN_EVENT)
        elif "method" not in message:
            self._hear_answer(message)

    def _hear_event(self, event: dict[str, Any], size: int) -> None:
        request = event.get("request_id")
        if request is None:
            self.events[str(event.get("type"))] = event
            self._know(event.get("seq"))
            if self._on_event is not None:
                self._on_event(event)
            return
        asked = self._asked.get(request)
        if asked is not None and asked.held < MOST_HELD:
            asked.hear(event, size)
        elif asked is not None and not asked.cancelled:
            self._leave_unread(asked)

    def _leave_unread(self, asked: Asked) -> None:
        """Others wait for what comes after its events, and it can't be held back alone."""
        with self._lock:
            del self._asked[asked.id]
            if self._process:
                self._process.give(cancel_line(asked.id))
        asked.ended(errors.unread(asked.method, MOST_HELD))

    def _know(self, seq: Any) -> None:
        if isinstance(seq, int):
            self._seq = max(self._seq or 0, seq)

    def _hear_answer(self, message: dict[str, Any]) -> None:
        error = errors.of(message["error"]) if "error" in message else None
        with self._lock:
            asked = self._asked_under(message.get("id"))
            if asked is not None and error is not None and _tries_again(asked, error):
                return
            if asked is not None:
                del self._asked[asked.id]
        if asked is None:
            self.refusal = error if message.get("id") is None else self.refusal
        elif error is not None:
            asked.ended(error)
        else:
            self._know(message["result"]["meta"].get("seq"))
            asked.ended(message["result"])

    def _asked_under(self, id: Any) -> Asked | None:
        """An error without an id is of a line that was not understood: of the only one."""
        if id is None and len(self._asked) == 1:
            return next(iter(self._asked.values()))
        return self._asked.get(id)


def _tries_again(asked: Asked, error: KbprocError) -> bool:
    if error.type not in _AGAIN or asked.cancelled or asked.tries >= _TRIES:
        return False
    pause = (error.retry_after_ms or 100) / 1000
    asked.again_at = time.monotonic() + max(pause, min(pause * 1.3**asked.tries, _LONGEST_PAUSE))
    asked.tries += 1
    return True
