"""Serves one client's connection: lines in, lines out, many requests at once.

A connection limits the requests in flight, cancels them, chooses their threads, and ends. The
service holds the parts that all connections of a process share, and makes each request's `Call`.
"""

from __future__ import annotations

import functools
import logging
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec import UNSET

from kbproc.base.errors import KbprocError
from kbproc.base.pool import InTurn, Job, Pool
from kbproc.base.settings.config import MAX_IN_FLIGHT
from kbproc.methods.calls.call import Call, Emit, Peer
from kbproc.methods.calls.plans import PendingPlans
from kbproc.surfaces.wire import messages
from kbproc.surfaces.wire.in_flight import (
    Deadlines,
    InFlight,
    Opening,
    Parking,
    Respond,
    ResponseBatch,
)
from kbproc.surfaces.wire.jsonrpc import (
    Id,
    Malformed,
    Message,
    Request,
    cancelled_id,
    parse,
    shortened,
)
from kbproc.surfaces.wire.lines import InputLines, Stop, size_skipped

if TYPE_CHECKING:
    from kbproc.base.host import Host
    from kbproc.knowledge.app.library import Library
    from kbproc.methods.calls.registry import Registry
    from kbproc.surfaces.wire.outbox import Outbox

WORKERS, AT_ONCE = 8, 2  # threads for reads: in all, and while none is stuck


class Service:
    """The shared parts of a process: methods, store, threads for reads, parking and deadlines.

    `open_library` returns the store, or raises the error why there is none.
    """

    def __init__(
        self,
        *,
        registry: Registry,
        host: Host,
        open_library: Callable[[], Library],
        wire: messages.Wire,
        max_in_flight: int = MAX_IN_FLIGHT,
    ) -> None:
        self.registry = registry
        self.host = host
        self.open_library = open_library
        self.wire = wire
        self.max_in_flight = max_in_flight
        self.pool = Pool(WORKERS, AT_ONCE)
        self.parking = Parking(host, self._on_change)
        self.deadlines = Deadlines(host)
        self.plans = PendingPlans(str(host.pid()), self.parking.wake)

    def _on_change(self, wake: Callable[[], None]) -> None:
        self.open_library().store.on_change(wake)

    def close(self, timeout_s: float = 1.0) -> None:
        """Ends the threads; `timeout_s`: for each of them."""
        self.parking.close(timeout_s)
        self.deadlines.close()
        self.pool.close(timeout_s)

    def call(
        self,
        peer: Peer,
        emit: Emit,
        cancelled: Callable[[], bool],
        *,
        begin_turn: Callable[[], None],
        crowded: Callable[[], bool],
        max_line_bytes: int,
    ) -> Call:
        return Call(
            registry=self.registry,
            host=self.host,
            peer=peer,
            open_library=self.open_library,
            emit=emit,
            now=self.host.now(),
            cancelled=cancelled,
            gathers=True,
            begin_turn=begin_turn,
            crowded=crowded,
            max_line_bytes=max_line_bytes,
            plans=self.plans,
        )


DRAIN_SECONDS = 10.0  # for requests in flight after the client's last line
_SIGNAL_SECONDS = 0.05
_GIVEN_UP_SECONDS = 0.05  # for a request that another process will answer
_logger = logging.getLogger(__name__)


class Connection:
    """A client's connection: its requests in flight, and its outgoing lines."""

    def __init__(
        self,
        service: Service,
        peer: Peer,
        outbox: Outbox,
        *,
        wire: messages.Wire | None = None,
        max_in_flight: int | None = None,
    ) -> None:
        """`wire` and `max_in_flight` default to the service's."""
        self.service = service
        self.peer = peer
        self.outbox = outbox
        self.wire = wire or service.wire
        self.max_in_flight = service.max_in_flight if max_in_flight is None else max_in_flight
        self.has_gone: Callable[[], bool] = lambda: False
        self.ending = False
        self._refusing = False
        self._in_flight: dict[Id | InFlight, InFlight] = {}
        self._unanswered = 0
        self._writers = InTurn()  # short writes commit in arrival order
        # Not shared, because streams that wait for their reader must not delay other clients.
        self._streams = Pool(self.max_in_flight)
        self._changed = threading.Condition()
        self.opening = Opening()
        outbox.on_room = service.parking.wake

    # ------------------------------------------------------------------ lines that come in

    def receive(self, line: bytes) -> None:
        """Handles one line from the client."""
        if not line.strip() or self._refusing:
            return
        parsed = parse(line)
        if isinstance(parsed, list):
            batch = ResponseBatch(len(parsed), self.wire, self.outbox.send)
            for place, message in enumerate(parsed):
                self._take(message, functools.partial(batch.answer, place, message.id))
        else:
            self._take(parsed, self._respond)

    def _respond(self, line: bytes | None) -> None:
        if line is not None:
            self.outbox.send(line)

    def _take(self, message: Message, respond: Respond) -> None:
        if isinstance(message, Malformed):
            respond(self.wire.error(message.id, message.error))
        elif message.id is UNSET:
            self._take_notification(message)
            respond(None)
        else:
            refusal = self._start(InFlight(self, message, message.id, respond))
            if refusal is not None:
                from kbproc.methods.calls.retry import with_retry

                with_retry(refusal, self.service.registry, message.method, message.params)
                respond(self.wire.error(message.id, refusal))

    def _take_notification(self, message: Request) -> None:
        """Handles a notification, whose sender gets no response, even if it is dropped."""
        if message.method == "$/cancel":
            self._cancel(message)
        elif message.method in self.service.registry.methods:
            refusal = self._start(InFlight(self, message, None, lambda line: None))
            if refusal is not None:
                _logger.warning("a notification was dropped: %s", refusal.message)

    def _cancel(self, message: Request) -> None:
        id = cancelled_id(message.params)
        with self._changed:
            request = None if id is None else self._in_flight.get(id)
        if request is not None:
            request.cancel()
            self.service.parking.wake()

    def _start(self, request: InFlight) -> KbprocError | None:
        """Starts the request; returns an error if it gets no place or no thread."""
        with self._changed:
            if request.key in self._in_flight:
                return KbprocError(
                    "input.invalid_request",
                    f"A request with id {shortened(str(request.id))} is in flight.",
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
        """Frees the place of a request that has not begun; returns its error."""
        if not messages.is_no_thread(error):
            raise error
        self.service.deadlines.remove(request)
        with self._changed:
            self._in_flight.pop(request.key, None)
            self._unanswered -= 1
            self._changed.notify_all()
        return messages.no_thread()

    def _is_full(self) -> bool:
        """Returns true if no place is free; counts parked requests only if that decides."""
        limit = self.max_in_flight
        return self.in_flight >= limit and self._places_taken() >= limit

    def _places_taken(self) -> int:
        return self.in_flight - self.waiting

    @property
    def in_flight(self) -> int:
        """Returns the number of requests without a response."""
        return len(self._in_flight)

    @property
    def waiting(self) -> int:
        """Returns the number of parked requests, which take no place."""
        with self._changed:
            return sum(request.is_parked for request in self._in_flight.values())

    # -------------------------------------------------- what a request in flight asks for

    def call(
        self,
        emit: Emit,
        cancelled: Callable[[], bool],
        begin_turn: Callable[[], None],
    ) -> Call:
        """Returns the call, with which a method answers one of this client's requests."""
        return self.service.call(
            self.peer,
            emit,
            cancelled,
            begin_turn=begin_turn,
            crowded=lambda: self.outbox.congested,
            max_line_bytes=self.wire.max_line_bytes,
        )

    def submit(self, request: InFlight, job: Job) -> None:
        """Runs the job; reads share the process's threads, writes and streams this client's."""
        method = self.service.registry.methods.get(request.method)
        if method is None or (method.kind == "read" and not method.streams):
            self.service.pool.submit(job)
        elif method.streams:
            self._streams.submit(job)
        else:
            request.end_earlier = self._writers.end_begun
            self._writers.submit(job, alone=method.looks_first or request.is_long)

    def park(self, request: InFlight, timeout_ms: int | None) -> None:
        self.service.parking.add(request, timeout_ms)

    def answer(self, request: InFlight, line: bytes | None) -> None:
        """Frees the place and sends the response, as the client may reuse the id at once."""
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
        """Ends the connection after the last line: parked requests now, others in `timeout_s`.

        Once `hurried`, requests in flight are cancelled; `given_up_s`: for each thread to end.
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
        """Waits until every request and notification is done; returns false if time is up."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._unanswered, timeout_s)

    def _cancel_all(self) -> None:
        with self._changed:
            for request in self._in_flight.values():
                if request.id is not None:
                    request.cancel(by_leaving=True)

    def hand_over(self, timeout_s: float) -> None:
        """Answers requests that end in time, and drops the others without a response.

        The client sends them to the next owner, so that they must not get an error here.
        """
        with self._changed:
            self._refusing = True
            self._changed.wait_for(lambda: not self._places_taken(), timeout_s)
        self.outbox.flush(timeout_s)
        self.outbox.close()
        self.end(0.0, given_up_s=_GIVEN_UP_SECONDS)


def serve_lines(
    connection: Connection, lines: InputLines, wait_for_store: Callable[[], None] = lambda: None
) -> int:
    """Serves until the client's last line or a signal; returns the exit code.

    `wait_for_store` waits, after the client's last line, until the store is open and earlier
    requests can be answered. It may raise Stop.
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
    """Returns the error for a skipped line of `size` bytes."""
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
