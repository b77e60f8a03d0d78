"""The coprocess: lines in, lines out, many requests at once.

Owns: connections, requests in flight, cancellation, batches, which thread runs
what, ending.
Refuses to know: what a message means (rpc.py) and what a method does.
"""

from __future__ import annotations

import functools
import logging
import threading
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from kbproc.base.errors import KbprocError
from kbproc.calls.call import Peer
from kbproc.wire import messages
from kbproc.wire.in_flight import Flight, Reply
from kbproc.wire.lines import Lines, Stop, size_skipped
from kbproc.wire.outbox import Outbox
from kbproc.wire.pool import Pool
from kbproc.wire.service import Service

DRAIN_SECONDS = 10.0
_logger = logging.getLogger(__name__)


class Connection:
    """One client: its requests in flight, its outgoing lines."""

    def __init__(
        self,
        service: Service,
        peer: Peer,
        outbox: Outbox,
        *,
        wire: messages.Wire | None = None,
        max_in_flight: int | None = None,
        settings: dict[str, Any] | None = None,
    ) -> None:
        """`wire`, `max_in_flight`, `settings`: this connection's own, else the service's."""
        self.service = service
        self.peer = peer
        self.outbox = outbox
        self.wire = wire or service.wire
        self.max_in_flight = service.max_in_flight if max_in_flight is None else max_in_flight
        self.settings = settings or {}
        self.cancelled: set[messages.Id] = set()
        self.ending = False
        self._refusing = False
        self._in_flight: dict[messages.Id | Flight, Flight] = {}
        self._unanswered = 0
        self._writer = Pool(1)  # one thread: short writes commit in arrival order
        # Its own: streams that wait for a client to read must not hold up another's.
        self._streams = Pool(self.max_in_flight)
        self._changed = threading.Condition()

    def receive(self, line: bytes) -> None:
        """One line from the client."""
        if not line.strip() or self._refusing:
            return
        parsed = messages.parse(line)
        if isinstance(parsed, list):
            batch = Batch(self, len(parsed))
            for place, message in enumerate(parsed):
                self._take(message, functools.partial(batch.answer, place, message.id))
        else:
            self._take(parsed, self._reply)

    def _reply(self, line: bytes | None) -> None:
        if line is not None:
            self.outbox.send(line)

    def _take(self, message: messages.Message, answer: Reply) -> None:
        if isinstance(message, messages.Malformed):
            answer(self.wire.error(message.id, message.error))
        elif message.id is UNSET:
            self._notified(message)
            answer(None)
        else:
            self._start(message, message.id, answer)

    def _notified(self, message: messages.Request) -> None:
        """Whoever sends a notification hears nothing, not even that it was dropped."""
        if message.method == "$/cancel":
            self._cancel(message)
        elif message.method in self.service.registry.methods:
            refusal = self._launch(Flight(self, message, None, lambda line: None))
            if refusal is not None:
                _logger.warning("a notification was dropped: %s", refusal.message)

    def _cancel(self, message: messages.Request) -> None:
        try:
            id = msgspec.json.decode(message.params, type=dict[str, messages.Id]).get("id")
        except (msgspec.DecodeError, UnicodeDecodeError):
            return
        with self._changed:
            flight = self._in_flight.get(id) if id is not None else None
            if flight is None or id is None:
                return
            self.cancelled.add(id)
        self.service.waiting.wake()

    def _start(self, message: messages.Request, id: messages.Id, answer: Reply) -> None:
        refusal = self._launch(Flight(self, message, id, answer))
        if refusal is not None:
            answer(self.wire.error(id, refusal))

    def _launch(self, flight: Flight) -> KbprocError | None:
        """Takes a place and a thread, or says why not."""
        with self._changed:
            if flight.key in self._in_flight:
                return KbprocError(
                    "input.invalid_request",
                    f"A request with id {messages.shortened(str(flight.id))} is in flight.",
                    field="$.id",
                    hint="Give each request an id of its own, at least until it is answered.",
                )
            if self._places_taken() >= self.max_in_flight:
                return KbprocError(
                    "server.overloaded",
                    f"A connection may have {self.max_in_flight} requests in flight.",
                    retry_after_ms=100,
                )
            self._in_flight[flight.key] = flight
            self._unanswered += 1
        self.pool_for(flight.method).submit(flight.run)
        return None

    def _places_taken(self) -> int:
        return sum(not flight.parked for flight in self._in_flight.values())

    def pool_for(self, name: str) -> Pool:
        found = self.service.registry.methods.get(name)
        if found is None or (found.kind == "read" and not found.streams):
            return self.service.pool
        return self._streams if found.streams else self._writer

    def finished(self, flight: Flight) -> None:
        """Its id and its place are free."""
        with self._changed:
            self._in_flight.pop(flight.key, None)
            if flight.id is not None:
                self.cancelled.discard(flight.id)

    def answered(self) -> None:
        """A finished flight's answer is on its way out."""
        with self._changed:
            self._unanswered -= 1
            self._changed.notify_all()

    def end(self, timeout_s: float) -> None:
        """After the last line: waits end now, the rest gets `timeout_s`, then flush."""
        self.ending = True
        self.service.waiting.wake()
        with self._changed:
            in_time = self._changed.wait_for(self._all_answered, timeout_s)
            if not in_time:
                self.cancelled |= {
                    flight.id for flight in self._in_flight.values() if flight.id is not None
                }
                self._changed.wait_for(self._all_answered, 1.0)
        self._writer.close()
        self._streams.close()
        self.outbox.flush(timeout_s if in_time else 0.0)

    def hand_over(self, timeout_s: float) -> None:
        """What can be answered in time is; the rest is dropped without a word.

        Another process will be asked again: whoever waits must not hear of an end.
        """
        with self._changed:
            self._refusing = True
            self._changed.wait_for(lambda: not self._places_taken(), timeout_s)
        self.outbox.flush(timeout_s)
        self.outbox.close()
        self.end(0.0)

    def _all_answered(self) -> bool:
        return self._unanswered == 0


class Batch:
    """Gathers the responses of one batch into one array, in the order of its requests."""

    def __init__(self, connection: Connection, size: int) -> None:
        self._connection = connection
        self._open = size
        self._answers: dict[int, tuple[messages.Id | None, bytes]] = {}
        self._lock = threading.Lock()

    def answer(self, place: int, id: messages.Id | UnsetType | None, line: bytes | None) -> None:
        with self._lock:
            self._open -= 1
            if line is not None:
                self._answers[place] = (None if id is UNSET else id, line)
            done = self._open == 0
        if done and self._answers:
            self._shrink()
            lines = [line for _, (_, line) in sorted(self._answers.items())]
            self._connection.outbox.send(b"[" + b",".join(lines) + b"]")

    def _shrink(self) -> None:
        """Where the array would be longer than a line may be, its longest answers go."""
        wire = self._connection.wire
        size = 1 + sum(len(line) + 1 for _, line in self._answers.values())
        for place in sorted(self._answers, key=lambda place: -len(self._answers[place][1])):
            if size <= wire.max_line_bytes:
                return
            id, line = self._answers[place]
            short = wire.too_long(id, len(line))
            if len(short) < len(line):
                self._answers[place] = (id, short)
                size -= len(line) - len(short)


def serve_lines(connection: Connection, lines: Lines) -> int:
    """Until the client's last line or a signal; returns the exit code."""
    code = 0
    try:
        for line in lines:
            connection.outbox.wait_until_not_full(lines.ended)
            size = line if isinstance(line, int) else size_skipped(line)
            if size is not None:
                connection.outbox.send(too_large(connection.wire, size))
            elif isinstance(line, bytes):
                connection.receive(line)
    except Stop as stop:
        code = stop.exit_code
    connection.end(DRAIN_SECONDS)
    return code


def too_large(wire: messages.Wire, size: int) -> bytes:
    limit = wire.max_line_bytes
    return wire.error(
        None,
        KbprocError(
            "input.too_large",
            f"The line has more than {limit} bytes and was skipped.",
            hint="Send less at once; documents on disk are read by doc.ingest.",
            detail={"max_line_bytes": limit},
        ),
    )
