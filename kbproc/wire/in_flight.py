"""One request in flight, from its line to its answer, and its events on the way.

Owns: running a request, what it does while it waits, its one answer, and the order of
its events.
Refuses to know: who else is in flight, which thread runs a request, and what a method does.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Protocol

from kbproc.base.errors import KbprocError, bare
from kbproc.calls.call import Call, Emit
from kbproc.calls.reply import Answer, Entered, Parked
from kbproc.calls.retry import led_on
from kbproc.calls.run import run
from kbproc.wire import messages
from kbproc.wire.deadlines import timeout_of
from kbproc.wire.outbox import Outbox
from kbproc.wire.pool import End, Job
from kbproc.wire.stream import Stream

Respond = Callable[[bytes | None], None]
_LONG = 1 << 13  # bytes of params
Step = Callable[[], Answer | Parked | Entered]


class Opening:
    """Requests wait until the store is open, or why it is not is known. Their time runs."""

    def __init__(self) -> None:
        self._is_over = threading.Event()
        self._is_over.set()
        self._is_held = False

    def hold(self) -> None:
        self._is_held = True
        self._is_over.clear()

    def end(self) -> None:
        self._is_held = False
        self._is_over.set()

    def give_up(self) -> None:
        """The client goes before the store is open."""
        self._is_over.set()

    def wait(self) -> bool:
        """False if it was given up."""
        self._is_over.wait()
        return not self._is_held


class Client(Protocol):
    """The client that has sent a request, as the request knows it."""

    @property
    def wire(self) -> messages.Wire: ...
    @property
    def outbox(self) -> Outbox: ...
    @property
    def opening(self) -> Opening: ...
    @property
    def ending(self) -> bool:
        """True once the client has sent its last line: nothing waits for it any more."""
        ...

    def has_gone(self) -> bool:
        """True once the client hears no answer any more."""
        ...

    def call(
        self,
        emit: Emit,
        cancelled: Callable[[], bool],
        begin_turn: Callable[[], None],
    ) -> Call:
        """What a method may use while it answers one of the client's requests."""
        ...

    def submit(self, request: InFlight, job: Job) -> None:
        """Runs `job` on a thread that suits the request's method."""
        ...

    def park(self, request: InFlight, timeout_ms: int | None) -> None:
        """Lets the request wait without a thread: from now on it is polled."""
        ...

    def answer(self, request: InFlight, line: bytes | None) -> None:
        """Ends the request. `line` is its response; None for a notification."""
        ...


class InFlight:
    """One request from its line to its answer; without `id` it is a notification."""

    def __init__(
        self,
        client: Client,
        message: messages.Request,
        id: messages.Id | None,
        respond: Respond,
    ) -> None:
        """`respond` gets the response as a line, None if there is none to send."""
        self._client = client
        self._message = message
        self._parked: Parked | None = None
        self._cancelled = False
        self._is_given_up = False
        self._is_expired = False
        self._is_answered = False
        self._works = False  # it may be changing something, or telling of it
        self._changing = threading.Lock()
        self.respond = respond
        self.id = id
        self.key: messages.Id | InFlight = self if id is None else id
        self.method = message.method
        self.is_long = len(memoryview(message.params)) > _LONG  # what it brings may take time
        self.end_those_before: Callable[[], None] = lambda: None
        self._call = client.call(self._emit, self.is_cancelled, self._begin_turn)
        self.timeout_ms = timeout_of(message.params)
        self._arrived = self._call.host.monotonic_ms()
        self._stream: Stream | None = None
        if id is not None:
            self._stream = Stream(
                wire=client.wire,
                id=id,
                host=self._call.host,
                send=client.outbox.send,
                crowded=self._is_crowded,
                wait=self._wait_for_room,
            )

    @property
    def is_parked(self) -> bool:
        """True while the request is parked: it holds no thread and takes no place."""
        return self._parked is not None

    def cancel(self, *, gone: bool = False) -> None:
        """Asks the request to stop; what it has committed stays.

        `gone`: its client has. Then what it has begun apart from itself may go on.
        """
        self._cancelled, self._is_given_up = True, gone

    def is_cancelled(self) -> bool:
        """Whether to stop at the next step, for whichever reason."""
        return self._cancelled or self._is_expired

    def expire(self) -> None:
        """Its time is up: it is answered now, or at its next step if it may be changing something.

        What waits is told by whoever polls it.
        """
        with self._changing:
            if self._is_answered or self.is_parked:
                return
            self._is_expired = True
            if self._works:
                return
        self._fail(late(self.method, self.timeout_ms))

    def _begin_turn(self) -> None:
        """From here on a short write is done.

        Raises operation.timeout if it is too late, and operation.cancelled for a client that has
        gone: it has told its own client that the request was given up, or will ask again.
        """
        if self._client.has_gone():
            raise KbprocError("operation.cancelled", "The client has gone.")
        with self._changing:
            if self._is_answered:
                raise late(self.method, self.timeout_ms)
            self._works = True

    def run(self) -> End | None:
        """Begins the request, on the thread that it was given; what is returned ends it."""
        return self._settle(self._begin)

    def _begin(self) -> Answer | Parked | Entered:
        if not self._client.opening.wait():
            raise KbprocError(
                "operation.cancelled", "The connection ended before the store was open."
            )
        self._call.check_cancelled()
        found = self._call.registry.find(self.method)
        if found.streams:
            self._begin_turn()
            if not found.from_log:
                self._emit("init", {})
        return run(self._call, self.method, self._message.params)

    def _settle(self, step: Step) -> End | None:
        reached = _reached(step)
        if isinstance(reached, Entered):
            return lambda: self._tell(_reached(reached.end))
        self.end_those_before()
        self._tell(reached)
        return None

    def _tell(self, reached: Answer | Parked | Entered | KbprocError) -> None:
        if isinstance(reached, KbprocError):
            self._fail(reached)
        elif isinstance(reached, Parked):
            self._parked = reached
            since = self._call.host.monotonic_ms() - self._arrived
            try:
                self._client.park(self, _left(reached.timeout_ms, since))
            except RuntimeError as error:  # no thread could be started
                self._parked = None
                self._fail(messages.unexpected(error))
        elif isinstance(reached, Answer):
            self._succeed(reached)

    # ------------------------------------------------------------------------- events

    def _emit(self, name: str, fields: dict[str, Any]) -> None:
        """A notification's events go nowhere."""
        if self._stream is not None:
            self._stream.emit(name, fields)

    def _is_crowded(self) -> bool:
        """True if the client has much to read before it gets to anything new."""
        return self._client.outbox.congested

    def _wait_for_room(self) -> None:
        """A parked request does not wait for room: all that is parked shares one thread."""
        if not self.is_parked:
            self._client.outbox.wait_for_room(self.is_cancelled)

    # ------------------------------------------------------------------------ waiting

    def has_more(self) -> bool:
        """True for a stream with more to send, to a client that can take it."""
        tail = None if self._parked is None else self._parked.tail
        return tail is not None and not self._is_crowded() and tail.more()

    def poll(self, *, expired: bool) -> bool:
        """Asks whether the waiting is over; True if it is. `expired`: its time is up."""
        parked = self._parked
        if parked is None:
            return True
        try:
            self._check_still_wanted(parked)
            unread = parked.tail is not None and self._is_crowded()
            if not unread and parked.ready():  # a stream is not even asked while nobody reads it
                self._resume(parked.resume)
                return True
            if expired:
                raise parked.expired()
        except KbprocError as error:
            self._fail(error)
            return True
        except Exception as error:  # noqa: BLE001  the boundary: see messages.unexpected
            self._fail(messages.unexpected(error))
            return True
        return False

    def _check_still_wanted(self, parked: Parked) -> None:
        """Raises operation.cancelled: what waits ends with its connection, unless it lasts."""
        if self._client.ending and not parked.lasts:
            raise KbprocError(
                "operation.cancelled", "The connection ended meanwhile.", detail=parked.detail()
            )
        if self._cancelled and parked.cancel is not None and not self._is_given_up:
            parked.cancel()
            return
        self._call.check_cancelled(**parked.detail())

    def _resume(self, step: Step) -> None:
        self._parked = None
        self._client.submit(self, lambda: self._settle(step))

    # ----------------------------------------------------------------------- the answer

    def _succeed(self, answer: Answer) -> None:
        wire, method = self._client.wire, self._call.registry.methods[self.method]
        self._answer(_line(wire, self.id, lambda id: wire.result(id, method, answer)))

    def _fail(self, error: KbprocError) -> None:
        if error.type == "operation.cancelled" and self._is_expired and not self._cancelled:
            error = late(self.method, self.timeout_ms, **error.detail)
        wire, registry, params = self._client.wire, self._call.registry, self._message.params

        def told(id: messages.Id) -> bytes:
            return wire.error(id, led_on(error, registry, self.method, params))

        self._answer(_line(wire, self.id, told))

    def _answer(self, line: bytes | None) -> None:
        """Once: what comes of a request whose time was up is dropped."""
        with self._changing:
            if self._is_answered:
                return
            self._is_answered = True
        method = self._call.registry.methods.get(self.method)
        if method is not None and method.from_log and self._stream is not None:
            self._stream.begin()  # it had no time to introduce itself
        self._client.answer(self, line)


def _reached(step: Step) -> Answer | Parked | Entered | KbprocError:
    try:
        return step()
    except KbprocError as error:
        return bare(error)
    except Exception as error:  # noqa: BLE001  the boundary: see messages.unexpected
        return messages.unexpected(error)


def _line(
    wire: messages.Wire, id: messages.Id | None, made: Callable[[messages.Id], bytes]
) -> bytes | None:
    """The response; None for a notification.

    An answer that can't be made is told, too: else nobody would answer, and the thread, a
    connection's only one for writes, would end.
    """
    if id is None:
        return None
    try:
        return made(id)
    except Exception as error:  # noqa: BLE001  the boundary: see messages.unexpected
        return wire.error(id, messages.unexpected(error))


def _left(timeout_ms: int | None, since: float) -> int | None:
    """The time counts from the request's arrival, `since` milliseconds ago."""
    return None if timeout_ms is None else max(0, round(timeout_ms - since))


def late(method: str, timeout_ms: int | None, **detail: Any) -> KbprocError:
    """A request's time is up; `detail` says what it has done by then, which stays."""
    return KbprocError(
        "operation.timeout",
        f"{method} was not done in {timeout_ms} ms.",
        field="$.params.timeout_ms",
        detail=detail,
    )
