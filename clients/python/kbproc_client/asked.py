"""One request from its line to its answer, whichever server it comes to.

Owns: its token, its line for the first server and for each that comes after it, and one unbroken
stream of events out of theirs.
Refuses to know: pipes, threads, and when a server is started again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any, cast

from .data import Event
from .errors import KbprocError
from .facts import METHODS

_ANEW = "kbproc ended and was started again; the request goes on."
_RESUME = "session.resume"
_SUBSCRIBE = "events.subscribe"
_ANSWERS = frozenset({"chat", "session.ask", "agent.invoke", _RESUME})

Heard = Callable[[Event, int], None]  # with its bytes
# What ends it: the `result` of the response, or why there is none.
Ended = Callable[[dict[str, Any] | KbprocError], None]


class Asked:
    """A request, and what has come of it so far.

    `due`: the moment at which the client stops waiting; `again_at`: at which it is sent once more.
    `taken` is its reader's to count, who may be in another thread.
    """

    def __init__(
        self,
        id: int,
        method: str,
        params: dict[str, Any],
        *,
        timeout: float | None = None,
        heard: Heard | None = None,
        ended: Ended,
    ) -> None:
        self.id = id
        self.method = method
        self.params = {name: value for name, value in params.items() if value is not None}
        self.timeout = timeout
        self.ended = ended
        self.began = 0.0
        self.due: float | None = None
        self.again_at: float | None = None
        self.tries = 0
        self.servers = 0
        self.cancelled = False
        self.taken = 0
        self._given = 0
        self._heard = heard
        self._index = 0
        self._cursor: str | None = None
        self._seq: int | None = None
        self._items = 0
        self._passing_over = False
        self._items_to_pass = 0
        if _writes(method) and not self.params.get("dry_run"):
            self.params.setdefault("client_token", os.urandom(16).hex())

    @property
    def can_be_asked_again(self) -> bool:
        """Whether nothing can happen twice by it: it reads, or has a token, or was never sent."""
        return not self.servers or self.method in METHODS

    def line(self, now: float) -> bytes:
        """For the next server, which knows nothing of the one before."""
        params = self.params
        if self.servers:
            params = {**params, **self._goes_on_from()}
        if self.timeout is not None:
            left = self.timeout - (now - self.began)
            params = {**params, "timeout_ms": max(0, round(left * 1000))}
        message = {"jsonrpc": "2.0", "id": self.id, "method": self.method, "params": params}
        return (
            json.dumps(message, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
            + b"\n"
        )

    def begin_anew(self, known_seq: int | None) -> None:
        """To be called before each server gets its line. `known_seq`: what a subscription that has
        said nothing yet goes on from.
        """
        if self._seq is None and self.method == _SUBSCRIBE:
            self._seq = self.params.get("after_seq", known_seq)
        goes_on = self.method in (_RESUME, _SUBSCRIBE)
        self._passing_over = self._cursor is not None and not goes_on
        self._items_to_pass = 0 if goes_on else self._items
        self.again_at = None

    def _goes_on_from(self) -> dict[str, Any]:
        """What makes the next server begin behind what has come already."""
        if self.method == _RESUME and self._cursor is not None:
            return {"after": self._cursor, "snapshot": False}
        if self.method == _SUBSCRIBE and self._seq is not None:
            return {"after_seq": self._seq}
        return {}

    # ---------------------------------------------------------------------------- events

    @property
    def held(self) -> int:
        """The bytes of its events that were passed on, and that nobody has taken yet."""
        return self._given - self.taken

    def hear(self, told: dict[str, Any], size: int) -> None:
        """Passes an event on, numbered in this stream, if it is one that has not come before.
        `size`: the bytes of its line.
        """
        if self._came_before(told):
            return
        if told.get("type") == "init" and self._index:
            told = {"type": "warning", "request_id": self.id, "message": _ANEW}
        event = {**told, "index": self._index}
        self._index += 1
        if self._heard is not None:
            self._given += size
            self._heard(cast(Event, event), size)

    def _came_before(self, told: dict[str, Any]) -> bool:
        """An answer comes in the same pieces again, up to the cursor of the last one that came."""
        if told.get("type") == "item":
            if self._items_to_pass:
                self._items_to_pass -= 1
                return True
            self._items += 1
            item = told.get("item")
            if self.method == _SUBSCRIBE and isinstance(item, dict):
                self._seq = item.get("seq", self._seq)
        cursor = told.get("cursor") if self.method in _ANSWERS else None
        if cursor is None:
            return False
        if self._passing_over:
            self._passing_over = cursor != self._cursor
            return True
        self._cursor = cursor
        return False


def _writes(method: str) -> bool:
    return METHODS[method][0] if method in METHODS else False


def cancel_line(id: int) -> bytes:
    message = {"jsonrpc": "2.0", "method": "$/cancel", "params": {"id": id}}
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"
