"""One client's connection: lines in, lines out, many requests at once.

Owns: which requests are in flight and how many may be, cancellation, which thread runs
what, and how a connection ends.
Refuses to know: what a message says (messages.py), how one request is answered
(in_flight.py), and what a method does.
"""

from __future__ import annotations

import functools
import logging
import threading
import time
from collections.abc import Callable

from msgspec import UNSET

from kbproc.base.errors import KbprocError
from kbproc.calls.call import Call, Emit, Peer
from kbproc.calls.retry import led_on
from kbproc.wire import messages
from kbproc.wire.batch import Batch
from kbproc.wire.in_flight import InFlight, Opening, Respond
from kbproc.wire.lines import Lines, Stop, size_skipped
from kbproc.wire.outbox import Outbox
from kbproc.wire.pool import InTurn, Job, Pool
from kbproc.wire.service import Service

DRAIN_SECONDS = 10.0  # for what is in flight when the client has sent its last line
_SIGNAL_SECONDS = 0.05
_GIVEN_UP_SECONDS = 0.05  # for a request that another process will answer
_logger = logging.getLogger(__name__)


class Connection:
    """One client: its requests in flight, and its lines on their way out."""

    def __init__(
        self,
        service: Service,
        peer: Peer,
        outbox: Outbox,
        *,
        wire: messages.Wire | None = None,
        max_in_flight: int | None = None,
    ) -> None:
        """`wire` and `max_in_flight` are the service's, if they are left out."""
        self.service = service
        self.peer = peer
        self.outbox = outbox
        self.wire = wire or service.wire
        self.max_in_flight = service.max_in_flight if max_in_flight is None else max_in_flight
        self.has_gone: Callable[[], bool] = lambda: False
        self.ending = False
        self._refusing = False
        self._in_flight: dict[messages.Id | InFlight, InFlight] = {}
        self._unanswered = 0
        self._writers = InTurn()  # short writes commit in arrival order
        # Its own: streams that wait for a client to read must not hold up another's.
        self._streams = Pool(self.max_in_flight)
        self._changed = threading.Condition()
        self.opening = Opening()
        outbox.on_room = service.parking.wake

    # ------------------------------------------------------------------ lines that come in

    def receive(self, line: bytes) -> None:
        """One line from the client."""
        if not line.strip() or self._refusing:
            return
        parsed = messages.parse(line)
        if isinstance(parsed, list):
            batch = Batch(len(parsed), self.wire, self.outbox.send)
            for place, message in enumerate(parsed):
                self._take(message, functools.partial(batch.answer, place, message.id))
        else:
            self._take(parsed, self._respond)

    def _respond(self, line: bytes | None) -> None:
        if line is not None:
            self.outbox.send(line)

    def _take(self, message: messages.Message, respond: Respond) -> None:
        if isinstance(message, messages.Malformed):
            respond(self.wire.error(message.id, message.error))
        elif message.id is UNSET:
            self._take_notification(message)
            respond(None)
        else:
            refusal = self._start(InFlight(self, message, message.id, respond))
            if refusal is not None:
                led_on(refusal, self.service.registry, message.method, message.params)
                respond(self.wire.error(message.id, refusal))

    def _take_notification(self, message: messages.Request) -> None:
        """The sender of a notification hears nothing, not even that it was dropped."""
        if message.method == "$/cancel":
            self._cancel(message)
        elif message.method in self.service.registry.methods:
            refusal = self._start(InFlight(self, message, None, lambda line: None))
            if refusal is not None:
                _logger.warning("a notification was dropped: %s", refusal.message)

    def _cancel(self, message: messages.Request) -> None:
        id = messages.cancelled_id(message.params)
        with self._changed:
            request = None if id is None else self._in_flight.get(id)
        if request is not None:
            request.cancel()
            self.service.parking.wake()

    def _start(self, request: InFlight) -> KbprocError | None:
        """Gives the request a place and a thread, or says why it gets none."""
        with self._changed:
            if request.key in self._in_flight:
                return KbprocError(
                    "input.invalid_request",
                    f"A request with id {messages.shortened(str(request.id))} is in flight.",
                    field="$.id",
                    hint="Give each request an id of its own, at least until it is answered.",
                )
            if self._is_full():
                return KbprocError(
                    "server.overloaded",
                    f"A connection may have {self.max_in_flight} requests in flight.",
                    retry_after_ms=100,
                )
            self._in_flight[request.key] = request
            self._unanswered += 1
        try:
            if request.timeout_ms:
                self.service.deadlines.add(request, request.timeout_ms)
            self.submit(request, request.run)
        except RuntimeError as error:
            return self._without_thread(request, error)
        return None

    def _without_thread(self, request: InFlight, error: RuntimeError) -> KbprocError:
        """Takes the request's place back: nothing of it was begun."""
        if not messages.is_no_thread(error):
            raise error
        self.service.deadlines.remove(request)
        with self._changed:
            self._in_flight.pop(request.key, None)
            self._unanswered -= 1
            self._changed.notify_all()
        return messages.no_thread()

    def _is_full(self) -> bool:
        """The parked are counted only where that decides."""
        most = self.max_in_flight
        return self.in_flight >= most and self._places_taken() >= most

    def _places_taken(self) -> int:
        return self.in_flight - self.waiting

    @property
    def in_flight(self) -> int:
        """How many requests have no answer yet."""
        return len(self._in_flight)

    @property
    def waiting(self) -> int:
        """How many of them are parked: they take no place."""
        with self._changed:
            return sum(request.is_parked for request in self._in_flight.values())

    # -------------------------------------------------- what a request in flight asks for

    def call(
        self,
        emit: Emit,
        cancelled: Callable[[], bool],
        begin_turn: Callable[[], None],
    ) -> Call:
        """What a method may use while it answers one of this client's requests."""
        return self.service.call(
            self.peer,
            emit,
            cancelled,
            begin_turn=begin_turn,
            crowded=self._is_crowded,
            max_line_bytes=self.wire.max_line_bytes,
        )

    def _is_crowded(self) -> bool:
        return self.outbox.congested

    def submit(self, request: InFlight, job: Job) -> None:
        """Reads share threads with all connections; writes and streams have this one's own."""
        method = self.service.registry.methods.get(request.method)
        if method is None or (method.kind == "read" and not method.streams):
            self.service.pool.submit(job)
        elif method.streams:
            self._streams.submit(job)
        else:
            alone = method.looks_first or request.is_long
            self._writers.submit(job, request, alone=alone)

    def park(self, request: InFlight, timeout_ms: int | None) -> None:
        self.service.parking.add(request, timeout_ms)

    def answer(self, request: InFlight, line: bytes | None) -> None:
        """The place is free before the answer can be read: the client may use the id again."""
        if request.timeout_ms:
            self.service.deadlines.remove(request)
        with self._changed:
            self._in_flight.pop(request.key, None)
        request.respond(line)
        with self._changed:
            self._unanswered -= 1
            self._changed.notify_all()

    # --------------------------------------------------------------------------- the end

    def end(
        self,
        timeout_s: float,
        hurried: Callable[[], bool] = lambda: False,
        *,
        given_up_s: float = 1.0,
    ) -> None:
        """After the last line: waits end now, the rest gets `timeout_s`, then flush.

        Once `hurried`, what is still in flight then is given up; `given_up_s`: for each thread to
        notice that.
        """
        self.ending = True
        self.service.parking.wake()
        deadline = time.monotonic() + timeout_s
        in_time = self.wait_until_idle(min(timeout_s, _SIGNAL_SECONDS))
        while not in_time and not hurried() and time.monotonic() < deadline:
            in_time = self.wait_until_idle(_SIGNAL_SECONDS)
        if not in_time:
            self.opening.give_up()
            self._cancel_all()
            self.wait_until_idle(given_up_s)
        self._writers.close(given_up_s)
        self._streams.close(given_up_s)
        self.outbox.flush(timeout_s if in_time else 0.0)

    def wait_until_idle(self, timeout_s: float) -> bool:
        """Waits until every request is answered, notifications too; False if time is up."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._unanswered, timeout_s)

    def _cancel_all(self) -> None:
        with self._changed:
            for request in self._in_flight.values():
                if request.id is not None:
                    request.cancel(gone=True)

    def hand_over(self, timeout_s: float) -> None:
        """Answers what can be answered in time, and drops the rest without a word.

        Another process will be asked again: a request that waits must not hear of an end.
        """
        with self._changed:
            self._refusing = True
            self._changed.wait_for(lambda: not self._places_taken(), timeout_s)
        self.outbox.flush(timeout_s)
        self.outbox.close()
        self.end(0.0, given_up_s=_GIVEN_UP_SECONDS)


def serve_lines(
    connection: Connection, lines: Lines, wait_for_store: Callable[[], None] = lambda: None
) -> int:
    """Serves until the client's last line or a signal; returns the exit code.

    `wait_for_store`: what was asked before the store is open is answered once it is, even
    if the client has sent its last line by then. It may raise Stop.
    """
    code = 0
    try:
        for line in lines:
            connection.outbox.wait_until_not_full(lines.ended)
            size = line if isinstance(line, int) else size_skipped(line)
            if size is not None:
                connection.outbox.send(too_large(connection.wire, size))
            elif isinstance(line, bytes):
                connection.receive(line)
        wait_for_store()
    except Stop as stop:
        code = stop.exit_code
    connection.end(DRAIN_SECONDS, lines.signals.is_hurried)
    return code


def too_large(wire: messages.Wire, size: int) -> bytes:
    """The error for a line of `size` bytes that was skipped."""
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
