"""One request in flight, whichever server answers it: what the next server is asked again.

A server, or the process that owns a store, may end before it has answered. The next one gets the
request again with the same client token, so that a write happens once. A stream continues after
the last event that its reader has, and its events keep one numbering.
"""

from __future__ import annotations

import time
from typing import Any

SUBSCRIBE = "events.subscribe"
RESUME = "session.resume"

MOST_DEATHS = 2  # after so many servers died with a request, no other server is asked

Params = dict[str, Any]


def with_token(params: Params, token: str) -> Params:
    """Returns the params of a write; one that names no client token gets `token`."""
    if params.get("dry_run") or params.get("client_token") is not None:
        return params
    return {**params, "client_token": token}


class InFlight:
    """A request in flight, and the part of its stream that its reader has.

    `is_cancelled`: the next server gets the cancellation, too.
    """

    # Defaults of the class, because most requests change none of them.
    is_cancelled = False
    _servers = 0
    _is_asked = False  # true while a server that lives may have the request
    _deaths = 0
    _index = 0
    _items = 0
    _items_to_skip = 0
    _last_cursor: str | None = None
    _skip_to_cursor: str | None = None
    _start_seq: int | None = None  # the store's position before the request
    _last_seq: int | None = None  # a subscription's last event has it

    def __init__(self, method: str, timeout_s: float | None = None) -> None:
        """`timeout_s`: begins now. The first server gets it whole, each later one the rest."""
        self.method = method
        self._began = time.monotonic()
        self._timeout_s = timeout_s

    @property
    def was_sent(self) -> bool:
        """Returns whether a server may have received the request."""
        return self._servers > 0

    @property
    def is_repeated(self) -> bool:
        """Returns whether an earlier server may have received the request, too."""
        return self._servers > 1

    @property
    def has_events(self) -> bool:
        """Returns whether the reader has an event of the stream."""
        return self._index > 0

    def due(self, grace_s: float) -> float | None:
        """Returns the monotonic moment at which the wait for an answer ends; None: it does not.

        `grace_s`: for the server's own answer after the timeout, which says what has been done.
        """
        return None if self._timeout_s is None else self._began + self._timeout_s + grace_s

    # ------------------------------------------------------------- what a server is asked

    def begin(self, seq: int | None) -> None:
        """Prepares the request for a server; called before each one gets it.

        `seq`: the last position of the store that a server has named.
        """
        if self._start_seq is None:
            self._start_seq = seq
        self._servers += 1
        self._is_asked = True
        if self._index:
            is_repeated = self.method not in {SUBSCRIBE, RESUME}
            self._items_to_skip = self._items if is_repeated else 0
            self._skip_to_cursor = self._last_cursor if is_repeated else None

    def note_end(self, *, died: bool) -> None:
        """Notes that the server has ended. `died`: it has not taken leave of its clients."""
        self._deaths += died and self._is_asked
        self._is_asked = False

    @property
    def is_deadly(self) -> bool:
        """Returns whether so many servers died while they had the request that no other is asked.

        The request may be why they died, and it would take the store away from everybody again.
        """
        return self._deaths >= MOST_DEATHS

    def note_position(self, seq: int) -> None:
        """Notes the store's position, unless one was named before the request was sent."""
        if self._servers and self._start_seq is None:
            self._start_seq = seq

    def params_now(self, params: Params) -> Params:
        """Returns the params for the server: where its part of the stream begins, the time left."""
        if self._servers <= 1:
            return params
        changes: Params = {}
        if self.method == RESUME and self._last_cursor is not None:
            # A snapshot would repeat text.
            changes = {"after": self._last_cursor, "snapshot": False}
        elif self.method == SUBSCRIBE:
            after = params.get("after_seq") if self._last_seq is None else self._last_seq
            after = self._start_seq if after is None else after
            changes = {} if after is None else {"after_seq": after}
        if self._timeout_s:  # because most methods take 0 for no timeout
            rest_s = self._timeout_s - (time.monotonic() - self._began)
            changes["timeout_ms"] = max(1, round(rest_s * 1000))
        return {**params, **changes} if changes else params

    # ------------------------------------------------------------ what its reader receives

    def index_of(self, type: str, cursor: str | None, seq: int | None) -> int | None:
        """Counts an event, and returns its index for the reader; None if the reader has it.

        `seq`: of the event's item, if that has one.
        """
        if self._is_repeated(type, cursor, seq):
            return None
        self._index += 1
        return self._index - 1

    def _is_repeated(self, type: str, cursor: str | None, seq: int | None) -> bool:
        """Returns whether an earlier server sent the event, because streams repeat from the log.

        A stream repeats in the same pieces, up to the cursor of the last event that has one.
        """
        if type == "item":
            if self._items_to_skip:
                self._items_to_skip -= 1
                return True
            self._items += 1
            self._last_seq = self._last_seq if seq is None else seq
        if cursor is None:
            return False
        if self._skip_to_cursor is not None:
            self._skip_to_cursor = None if cursor == self._skip_to_cursor else self._skip_to_cursor
            return True
        self._last_cursor = cursor
        return False


def renumbered(event: dict[str, Any], index: int, restart: str) -> dict[str, Any]:
    """Returns the event with its index for the reader.

    `restart`: the warning in place of the event with which a later server begins the stream.
    """
    if event.get("type") == "init" and index:
        return {
            "type": "warning",
            "request_id": event.get("request_id"),
            "index": index,
            "message": restart,
        }
    return {**event, "index": index}
