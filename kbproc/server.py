"""The coprocess: lines in, lines out, many requests at once.

Owns: reading lines with a limit, the pool, requests in flight, cancellation,
waiting requests, the order of a stream's events, the outgoing queue, ending.
Refuses to know: what a message means (rpc.py) and what a method does.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import select
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from kbproc import registry as reg
from kbproc import rpc
from kbproc.config import MAX_IN_FLIGHT
from kbproc.errors import KbprocError
from kbproc.host import Host
from kbproc.pipes import write_all
from kbproc.store import Store

WORKERS = 8
DRAIN_SECONDS = 10.0
_ATOMIC = select.PIPE_BUF
_CONGESTED = 256
_FULL_BYTES = 32 << 20
_PROGRESS_EVERY_MS = 100.0
_logger = logging.getLogger(__name__)


class Outbox:
    """Lines on their way out, in order. A short one goes at once if the pipe has room."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._lines: deque[bytes] = deque()
        self._bytes = 0
        self._changed = threading.Condition()
        self._writing = False
        self._closed = False
        self._thread: threading.Thread | None = None
        self._poll = select.poll()
        self._poll.register(fd, select.POLLOUT)

    def send(self, line: bytes) -> None:
        data = line + b"\n"
        with self._changed:
            if self._closed:
                return
            if not self._lines and not self._writing and len(data) <= _ATOMIC and self._has_room():
                self._write(data)
                return
            self._lines.append(data)
            self._bytes += len(data)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="outbox", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    @property
    def congested(self) -> bool:
        return len(self._lines) > _CONGESTED

    @property
    def full(self) -> bool:
        return self._bytes > _FULL_BYTES

    def wait_for_room(self, given_up: Callable[[], bool]) -> None:
        """Holds back a stream until the client has read on."""
        self._wait_while(lambda: self.congested, given_up)

    def wait_until_not_full(self, given_up: Callable[[], bool]) -> None:
        """Holds back a client that asks and asks, but doesn't read."""
        self._wait_while(lambda: self.full, given_up)

    def _wait_while(self, blocked: Callable[[], bool], given_up: Callable[[], bool]) -> None:
        with self._changed:
            while blocked() and not self._closed and not given_up():
                self._changed.wait(0.1)

    def flush(self, timeout_s: float) -> None:
        with self._changed:
            self._changed.wait_for(
                lambda: self._closed or (not self._lines and not self._writing), timeout_s
            )

    def close(self) -> None:
        """Ends the thread; what is not written by now is lost."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(1.0)

    def _has_room(self) -> bool:
        """A pipe that polls writable takes PIPE_BUF bytes without blocking."""
        return any(event & select.POLLOUT for _, event in self._poll.poll(0))

    def _write(self, data: bytes) -> None:
        try:
            write_all(self._fd, data)
        except OSError:  # the reader is gone: nobody is left to tell
            self._closed = True

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: bool(self._lines) or self._closed)
                if self._closed:
                    return
                data = b"".join(self._lines)
                self._lines.clear()
                self._bytes = 0
                self._writing = True
                self._changed.notify_all()
            self._write(data)
            with self._changed:
                self._writing = False
                self._changed.notify_all()


class Pool:
    """Threads that run requests; made as they are needed."""

    def __init__(self, size: int) -> None:
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._size = size
        self._idle = threading.Semaphore(0)
        self._threads: list[threading.Thread] = []

    def submit(self, job: Callable[[], None]) -> None:
        if not self._idle.acquire(blocking=False) and len(self._threads) < self._size:
            thread = threading.Thread(target=self._run, name="worker", daemon=True)
            self._threads.append(thread)
            thread.start()
        self._jobs.put(job)

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
            self._idle.release()

    def close(self, timeout_s: float = 1.0) -> None:
        """Ends the threads once they have done what was submitted, as far as time allows."""
        deadline = time.monotonic() + timeout_s
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))


class Stream:
    """The events of one request, numbered without a gap."""

    def __init__(self, connection: Connection, id: rpc.Id, host: Host) -> None:
        self._connection = connection
        self._id = id
        self._host = host
        self._index = 0
        self._started = self._last_progress = host.monotonic_ms()

    def _eta(self, now: float, current: int, total: int | None) -> int | None:
        """Milliseconds that are left if it goes on as it went."""
        if not current or total is None:
            return None
        return round((now - self._started) / current * (total - current))

    def emit(self, name: str, fields: dict[str, Any]) -> None:
        """Progress is thinned out before it is numbered; other events wait for room."""
        outbox = self._connection.outbox
        if name == "progress":
            now, last = self._host.monotonic_ms(), fields.pop("last", False)
            if not last and (outbox.congested or now - self._last_progress < _PROGRESS_EVERY_MS):
                return
            self._last_progress = now
            fields["eta_ms"] = self._eta(now, fields["current"], fields["total"])
        elif outbox.congested:
            outbox.wait_for_room(lambda: self._id in self._connection.cancelled)
        stamped = {"request_id": self._id, "index": self._index, **fields}
        line = self._connection.service.wire.event(name, stamped)
        if line is not None:
            self._index += 1
            outbox.send(line)


class Service:
    """What all connections of a process share."""

    def __init__(
        self,
        *,
        registry: reg.Registry,
        host: Host,
        open_store: Callable[[], Store],
        wire: rpc.Wire,
        max_in_flight: int = MAX_IN_FLIGHT,
        settings: dict[str, Any] | None = None,
    ) -> None:
        self.registry = registry
        self.host = host
        self.open_store = open_store
        self.wire = wire
        self.max_in_flight = max_in_flight
        self.settings = settings or {}
        self.pool = Pool(WORKERS)
        self.waiting = Waiting(self)

    def close(self) -> None:
        for part in (self.waiting, self.pool):
            part.close()

    def call(self, peer: reg.Peer, emit: reg.Emit, cancelled: Callable[[], bool]) -> reg.Call:
        return reg.Call(
            registry=self.registry,
            host=self.host,
            peer=peer,
            open_store=self.open_store,
            emit=emit,
            now=self.host.now(),
            cancelled=cancelled,
            settings=self.settings,
        )


Reply = Callable[[bytes | None], None]


class Connection:
    """One client: its requests in flight, its outgoing lines."""

    def __init__(self, service: Service, peer: reg.Peer, outbox: Outbox) -> None:
        self.service = service
        self.peer = peer
        self.outbox = outbox
        self.cancelled: set[rpc.Id] = set()
        self.ending = False
        self._in_flight: dict[rpc.Id | Flight, Flight] = {}
        self._unanswered = 0
        self._writer = Pool(1)  # one thread: short writes commit in arrival order
        # Its own: streams that wait for a client to read must not hold up another's.
        self._streams = Pool(service.max_in_flight)
        self._changed = threading.Condition()

    def receive(self, line: bytes) -> None:
        """One line from the client."""
        if not line.strip():
            return
        parsed = rpc.parse(line)
        if isinstance(parsed, list):
            batch = Batch(self, len(parsed))
            for place, message in enumerate(parsed):
                self._take(message, functools.partial(batch.answer, place, message.id))
        else:
            self._take(parsed, self._reply)

    def _reply(self, line: bytes | None) -> None:
        if line is not None:
            self.outbox.send(line)

    def _take(self, message: rpc.Message, answer: Reply) -> None:
        if isinstance(message, rpc.Malformed):
            answer(self.service.wire.error(message.id, message.error))
        elif message.id is UNSET:
            self._notified(message)
            answer(None)
        else:
            self._start(message, message.id, answer)

    def _notified(self, message: rpc.Request) -> None:
        """Whoever sends a notification hears nothing, not even that it was dropped."""
        if message.method == "$/cancel":
            self._cancel(message)
        elif message.method in self.service.registry.methods:
            refusal = self._launch(Flight(self, message, None, lambda line: None))
            if refusal is not None:
                _logger.warning("a notification was dropped: %s", refusal.message)

    def _cancel(self, message: rpc.Request) -> None:
        try:
            id = msgspec.json.decode(message.params, type=dict[str, rpc.Id]).get("id")
        except (msgspec.DecodeError, UnicodeDecodeError):
            return
        with self._changed:
            flight = self._in_flight.get(id) if id is not None else None
            if flight is None or id is None:
                return
            self.cancelled.add(id)
        self.service.waiting.wake()

    def _start(self, message: rpc.Request, id: rpc.Id, answer: Reply) -> None:
        refusal = self._launch(Flight(self, message, id, answer))
        if refusal is not None:
            answer(self.service.wire.error(id, refusal))

    def _launch(self, flight: Flight) -> KbprocError | None:
        """Takes a place and a thread, or says why not."""
        with self._changed:
            if flight.key in self._in_flight:
                return KbprocError(
                    "input.invalid_request",
                    f"A request with id {rpc.shortened(str(flight.id))} is in flight.",
                    field="$.id",
                    hint="Give each request an id of its own, at least until it is answered.",
                )
            if self._places_taken() >= self.service.max_in_flight:
                return KbprocError(
                    "server.overloaded",
                    f"A connection may have {self.service.max_in_flight} requests in flight.",
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
                self.cancelled |= {flight.id for flight in self._in_flight.values()
                                   if flight.id is not None}  # fmt: skip
                self._changed.wait_for(self._all_answered, 1.0)
        self._writer.close()
        self._streams.close()
        self.outbox.flush(timeout_s if in_time else 0.0)

    def _all_answered(self) -> bool:
        return self._unanswered == 0


class Batch:
    """Gathers the responses of one batch into one array, in the order of its requests."""

    def __init__(self, connection: Connection, size: int) -> None:
        self._connection = connection
        self._open = size
        self._answers: dict[int, tuple[rpc.Id | None, bytes]] = {}
        self._lock = threading.Lock()

    def answer(self, place: int, id: rpc.Id | UnsetType | None, line: bytes | None) -> None:
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
        wire = self._connection.service.wire
        size = 1 + sum(len(line) + 1 for _, line in self._answers.values())
        for place in sorted(self._answers, key=lambda place: -len(self._answers[place][1])):
            if size <= wire.max_line_bytes:
                return
            id, line = self._answers[place]
            short = wire.too_long(id, len(line))
            if len(short) < len(line):
                self._answers[place] = (id, short)
                size -= len(line) - len(short)


class Flight:
    """One request from its line to its answer."""

    def __init__(
        self,
        connection: Connection,
        message: rpc.Request,
        id: rpc.Id | None,
        answer: Reply,
    ) -> None:
        self._connection = connection
        self._message = message
        self._answer = answer
        self.id = id
        self.key: rpc.Id | Flight = self if id is None else id
        self.method = message.method
        self.parked = False
        service = connection.service
        emit: reg.Emit = _silent
        if id is not None:
            self._stream = Stream(connection, id, service.host)
            emit = self._stream.emit
        self.call = service.call(connection.peer, emit, self.is_cancelled)

    def is_cancelled(self) -> bool:
        return self.id in self._connection.cancelled

    def check_waiting(self) -> None:
        """Raises operation.cancelled: what waits ends with its connection."""
        if self._connection.ending:
            raise KbprocError("operation.cancelled", "The connection ended meanwhile.")
        self.call.check_cancelled()

    def run(self) -> None:
        self._settle(self._begin)

    def resume(self, step: Callable[[], reg.Answer | reg.Parked]) -> None:
        """Back from waiting."""
        self._connection.pool_for(self.method).submit(lambda: self._settle(step))

    def _begin(self) -> reg.Answer | reg.Parked:
        self.call.check_cancelled()
        found = self.call.registry.find(self.method)
        if found.streams and self.id is not None:
            self._stream.emit("init", {})
        return reg.run(self.call, self.method, self._message.params)

    def _settle(self, step: Callable[[], reg.Answer | reg.Parked]) -> None:
        try:
            reached = step()
        except KbprocError as error:
            self.fail(error)
        except Exception as error:  # noqa: BLE001  the boundary: see rpc.unexpected
            self.fail(rpc.unexpected(error))
        else:
            if isinstance(reached, reg.Parked):
                self.parked = True
                self._connection.service.waiting.add(self, reached)
            else:
                self._succeed(reached)

    def _succeed(self, answer: reg.Answer) -> None:
        line = None
        if self.id is not None:
            line = self._connection.service.wire.result(
                self.id, self.call.registry.methods[self.method], answer
            )
        self._deliver(line)

    def fail(self, error: KbprocError) -> None:
        line = None
        if self.id is not None:
            line = self._connection.service.wire.error(self.id, error)
        self._deliver(line)

    def _deliver(self, line: bytes | None) -> None:
        """The place is free before the answer can be read: the client may use the id again."""
        self._connection.finished(self)
        self._answer(line)
        self._connection.answered()


def _silent(name: str, fields: dict[str, Any]) -> None:
    """A notification's events go nowhere."""


class Waiting:
    """Requests that wait, all on one thread, woken by whatever the store shows."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._parked: list[tuple[Flight, reg.Parked, float | None]] = []
        self._changed = threading.Condition()
        self._woken = False
        self._closing = False
        self._thread: threading.Thread | None = None

    def add(self, flight: Flight, parked: reg.Parked) -> None:
        deadline = None
        if parked.timeout_ms is not None:
            deadline = self._service.host.monotonic_ms() + parked.timeout_ms
        with self._changed:
            self._parked.append((flight, parked, deadline))
            if self._thread is None:
                flight.call.store.on_change(self.wake)
                self._thread = threading.Thread(target=self._run, name="waiting", daemon=True)
                self._thread.start()
            self._woken = True
            self._changed.notify_all()

    def wake(self) -> None:
        with self._changed:
            self._woken = True
            self._changed.notify_all()

    def close(self) -> None:
        self._closing = True
        self.wake()
        if self._thread is not None:
            self._thread.join(1.0)

    def _run(self) -> None:
        while not self._closing:
            with self._changed:
                self._changed.wait_for(lambda: self._woken, self._patience())
                self._woken = False
                parked, self._parked = self._parked, []
            still = [entry for entry in parked if not self._settled(*entry)]
            with self._changed:
                self._parked += still

    def _patience(self) -> float | None:
        """Seconds until the next deadline."""
        deadlines = [deadline for _, _, deadline in self._parked if deadline is not None]
        if not deadlines:
            return None
        return max(0.0, (min(deadlines) - self._service.host.monotonic_ms()) / 1000)

    def _settled(self, flight: Flight, parked: reg.Parked, deadline: float | None) -> bool:
        try:
            flight.check_waiting()
            if parked.ready():
                flight.parked = False
                flight.resume(parked.resume)
                return True
            if deadline is not None and self._service.host.monotonic_ms() >= deadline:
                raise parked.expired()
        except KbprocError as error:
            flight.fail(error)
            return True
        except Exception as error:  # noqa: BLE001  the boundary: see rpc.unexpected
            flight.fail(rpc.unexpected(error))
            return True
        return False


class Stop(BaseException):
    """SIGTERM or SIGINT, raised in the main thread where it lets it in."""

    def __init__(self, signum: int) -> None:
        super().__init__(signum)
        self.signum = signum

    @property
    def exit_code(self) -> int:
        return 130 if self.signum == signal.SIGINT else 0


class Signals:
    """SIGTERM and SIGINT: the first one counts, and it waits until it can tear nothing.

    A request must not be cut between taking its place and being run.
    """

    def __init__(self) -> None:
        self.pending: int | None = None
        self._open = False

    def install(self) -> None:
        for signum in (signal.SIGTERM, signal.SIGINT):
            signal.signal(signum, self._handle)

    def _handle(self, signum: int, frame: object) -> None:
        if self.pending is None:
            self.pending = signum
            if self._open:
                raise Stop(signum)

    @contextlib.contextmanager
    def let_in(self) -> Iterator[None]:
        """Raises Stop for a signal that has come, or comes while in here."""
        self._open = True
        try:
            if self.pending is not None:
                raise Stop(self.pending)
            yield
        finally:
            self._open = False


class Lines:
    """Splits a descriptor into lines; one over the limit is dropped, not kept in memory."""

    def __init__(self, fd: int, limit: int, signals: Signals) -> None:
        self._fd = fd
        self._limit = limit
        self._signals = signals
        self._poll = select.poll()
        self._poll.register(fd, 0)

    def ended(self) -> bool:
        """True if the client has closed its end, or a signal has come."""
        return self._signals.pending is not None or bool(self._poll.poll(0))

    def _read(self) -> bytes:
        with self._signals.let_in():
            return os.read(self._fd, 1 << 16)

    def __iter__(self) -> Iterator[bytes | int]:
        """Lines without newline; for one that was too long, its size so far as an int.

        Raises Stop.
        """
        parts: list[bytes] = []
        size = 0
        while block := self._read():
            *ends, rest = block.split(b"\n")
            for end in ends:
                size += len(end)
                yield size if size > self._limit else b"".join([*parts, end])
                parts, size = [], 0
            size += len(rest)
            if size > self._limit:
                parts = []
            elif rest:
                parts.append(rest)
        if size:
            yield size if size > self._limit else b"".join(parts)


def serve_lines(connection: Connection, lines: Lines) -> int:
    """Until the client's last line or a signal; returns the exit code."""
    code = 0
    try:
        for line in lines:
            connection.outbox.wait_until_not_full(lines.ended)
            if isinstance(line, int):
                connection.outbox.send(_too_large(connection.service, line))
            else:
                connection.receive(line)
    except Stop as stop:
        code = stop.exit_code
    connection.end(DRAIN_SECONDS)
    return code


def _too_large(service: Service, size: int) -> bytes:
    limit = service.wire.max_line_bytes
    return service.wire.error(
        None,
        KbprocError(
            "input.too_large",
            f"The line has more than {limit} bytes and was skipped.",
            hint="Send less at once; documents on disk are read by doc.ingest.",
            detail={"max_line_bytes": limit},
        ),
    )
