"""Asks over lines: sends each request, and passes on its events and its answer.

An asker has one link at a time, to a server or to the owner of a store; the next link gets the
requests in flight again. It neither encodes, reads nor waits, because links differ in that: a pipe
or a socket, one request awaited or many at once. It imports little, so that commands begin fast.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from .in_flight import SUBSCRIBE, InFlight, renumbered

Message = dict[str, Any]
Send = Callable[[Message], None]  # may raise, if the link has ended
OnMessage = Callable[[Message], None]


class AskedRequest(InFlight):
    """A request, and where its events and its response go. It waits for a link to be sent."""

    def __init__(
        self,
        id: int,
        method: str,
        params: Any,
        on_answer: OnMessage,
        on_event: OnMessage | None = None,
        timeout_s: float | None = None,
    ) -> None:
        super().__init__(method, timeout_s)
        self.id = id
        self.params = params
        self.on_answer = on_answer
        self.on_event = on_event

    def message(self) -> Message:
        """Returns the request for the current link, after `begin`."""
        params = self.params_now(self.params)
        return {"jsonrpc": "2.0", "id": self.id, "method": self.method, "params": params}

    def new_event(self, event: Message, restart: str) -> Message | None:
        """Returns the event with its index for the reader; None if an earlier link brought it.

        `restart`: see `renumbered`.
        """
        item = event.get("item")
        seq = item.get("seq") if self.method == SUBSCRIBE and isinstance(item, dict) else None
        index = self.index_of(event["type"], event.get("cursor"), seq)
        return None if index is None else renumbered(event, index, restart)


def cancellation(id: int | str) -> Message:
    """Returns the notification that cancels a request."""
    return {"jsonrpc": "2.0", "method": "$/cancel", "params": {"id": id}}


R = TypeVar("R", bound=AskedRequest)


class BaseAsker(Generic[R]):
    """The requests in flight over one link after another. Any thread may add and cancel some.

    A thread holds `_sending` while a link takes lines, which may last, and `_lock` only for
    moments, because the thread that reads answers waits for it. `_sending` is taken first.
    """

    def __init__(self, restart: str = "", on_event: OnMessage | None = None) -> None:
        """`restart`: the warning where a later link begins a stream again.

        `on_event` gets the events that belong to no request.
        """
        self.last_id = 0
        self.events: dict[str, Message] = {}  # the link's events of no request, by type
        self._restart = restart
        self._on_event = on_event
        self._seq: int | None = None  # the last position of the store that a link has named
        self._in_flight: dict[int, R] = {}
        self._to_cancel: set[int] = set()
        self._send: Send | None = None
        self._sending = threading.Lock()
        self._lock = threading.RLock()  # because a signal handler may cancel, in any thread

    def __len__(self) -> int:
        return len(self._in_flight)

    # ---------------------------------------------------------------------------- sending

    def begin(self, send: Send) -> None:
        """Takes a new link, and sends it all requests in flight, in their order."""
        with self._sending:
            self._send = send
            for request in list(self._in_flight.values()):
                self._give(request)
                if request.is_cancelled:
                    self._to_cancel.add(request.id)
        self._send_cancellations()

    def end(self) -> None:
        """Notes that the link has ended; nothing is sent to it any more."""
        with self._sending:
            self._send = None

    def _add(self, request: R) -> None:
        """Sends a new request, or keeps it until there is a link. The caller holds `_sending`."""
        self.last_id = request.id
        with self._lock:
            self._in_flight[request.id] = request
        self._give(request)

    def _give(self, request: R) -> None:
        if self._send is not None:
            request.begin(self._seq)
            self._send(request.message())

    def cancel(self, id: int) -> None:
        """Cancels a request: its answer still comes, and finished work stays.

        A signal handler may call this while its own thread sends.
        """
        with self._lock:
            request = self._in_flight.get(id)
            if request is None or request.is_cancelled:
                return
            request.is_cancelled = True
        self._to_cancel.add(id)
        self._send_cancellations()

    def _send_cancellations(self) -> None:
        """Sends the cancellations, unless a thread is sending: that one sends them afterwards."""
        while self._to_cancel and self._sending.acquire(blocking=False):
            try:
                while self._to_cancel:
                    id = self._to_cancel.pop()
                    if self._send is not None:
                        self._send(cancellation(id))
            finally:
                self._sending.release()

    def drop(self, request: R) -> None:
        """Forgets a request: what still comes for it is passed over."""
        with self._lock:
            self._in_flight.pop(request.id, None)

    # ---------------------------------------------------------------------------- hearing

    def hear(self, message: Message, size: int = 0) -> None:
        """Applies a message; passes over unknown ones, which a later version may send.

        `size`: the bytes of its line.
        """
        if message.get("method") == "event":
            self._hear_event(message["params"], size)
        elif "method" not in message:
            self._hear_answer(message)

    def _hear_event(self, event: Message, size: int) -> None:
        id = event.get("request_id")
        if id is not None:
            request = self._in_flight.get(id)
            if request is not None and (new := request.new_event(event, self._restart)):
                self._pass_on(request, new, size)
            return
        self.events[str(event.get("type"))] = event
        if isinstance(seq := event.get("seq"), int):
            self._note_position(seq)
        if self._on_event is not None:
            self._on_event(event)

    def _pass_on(self, request: R, event: Message, size: int) -> None:
        if request.on_event is not None:
            request.on_event(event)

    def _note_position(self, seq: int) -> None:
        """Notes the store's position, for subscriptions that name none."""
        self._seq = max(self._seq or 0, seq)
        with self._lock:
            for request in self._in_flight.values():
                request.note_position(seq)

    def _hear_answer(self, message: Message) -> None:
        with self._lock:
            request = self._ended_by(message)
            if request is None:
                return
            del self._in_flight[request.id]
        request.on_answer(message)

    def _ended_by(self, message: Message) -> R | None:
        """Returns the request that a response ends; None for a late one.

        An error without an id belongs to a line that was not understood: to the only request in
        flight.
        """
        id: Any = message.get("id")
        if id is None and len(self._in_flight) == 1:
            return next(iter(self._in_flight.values()))
        return self._in_flight.get(id)


class Asker(BaseAsker[AskedRequest]):
    """An asker of requests whose answers are taken as they come."""

    def ask(
        self,
        method: str,
        params: Any,
        on_answer: OnMessage,
        on_event: OnMessage | None = None,
        timeout_s: float | None = None,
    ) -> AskedRequest:
        """Sends a request, or keeps it until there is a link. `on_answer` gets the response."""
        with self._sending:
            id = self.last_id + 1
            request = AskedRequest(id, method, params, on_answer, on_event, timeout_s)
            self._add(request)
        self._send_cancellations()
        return request
