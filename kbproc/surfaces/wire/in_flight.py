"""Runs one request, from its line to its only response, with its events in order.

A request that waits is parked, so that it holds no thread: one thread polls all parked requests.
Another ends requests whose time is up. The responses of a batch are gathered into one line.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from msgspec import UNSET, Struct, UnsetType

from kbproc.base.errors import KbprocError, bare
from kbproc.base.workers import Worker
from kbproc.methods.calls.plans import PendingPlan, Waiter, refused, with_confirmation
from kbproc.methods.calls.reply import Answer, Entered, Parked
from kbproc.methods.calls.run import run
from kbproc.surfaces.wire import messages
from kbproc.surfaces.wire.jsonrpc import Id, Request, timeout_of

if TYPE_CHECKING:
    from kbproc.base.host import Host
    from kbproc.base.pool import End, Job
    from kbproc.methods.calls.call import Call, Emit
    from kbproc.surfaces.wire.outbox import Outbox

_logger = logging.getLogger(__name__)
Respond = Callable[[bytes | None], None]
_LONG = 1 << 13  # bytes of params
_PROGRESS_EVERY_MS = 100.0
Step = Callable[[], Answer | Parked | Entered]


class Opening:
    """A gate for requests until the store is open or its error is known; timeouts run."""

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
        """Ends the wait, because the client has gone before the store is open."""
        self._is_over.set()

    def wait(self) -> bool:
        """Waits for the store; returns false if the wait was given up."""
        self._is_over.wait()
        return not self._is_held


class Requester(Protocol):
    """The client of a request, with the methods that the request needs."""

    @property
    def wire(self) -> messages.Wire: ...
    @property
    def outbox(self) -> Outbox: ...
    @property
    def opening(self) -> Opening: ...
    @property
    def ending(self) -> bool:
        """Returns true once the client has sent its last line, so that no request may wait."""
        ...

    def has_gone(self) -> bool:
        """Returns true once no response can reach the client."""
        ...

    def call(
        self,
        emit: Emit,
        cancelled: Callable[[], bool],
        begin_turn: Callable[[], None],
    ) -> Call:
        """Returns the call, with which a method answers one of the client's requests."""
        ...

    def submit(self, request: InFlight, job: Job) -> None:
        """Runs `job` on a thread that suits the request's method."""
        ...

    def park(self, request: InFlight, timeout_ms: int | None) -> None:
        """Parks the request, which is polled from now on and holds no thread."""
        ...

    def answer(self, request: InFlight, line: bytes | None) -> None:
        """Ends the request with its response; `line` is None for a notification."""
        ...


class InFlight:
    """A request from its line to its response; without `id`, a notification."""

    def __init__(
        self,
        client: Requester,
        message: Request,
        id: Id | None,
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
        self._waiter: Waiter | None = None  # while a person is to decide on the plan
        self._works = False  # true once the request may have begun to write or to send events
        self._changing = threading.Lock()
        self.respond = respond
        self.id = id
        self.key: Id | InFlight = self if id is None else id
        self.method = message.method
        self.is_long = len(memoryview(message.params)) > _LONG  # so that it may take time
        self.end_earlier: Callable[[], None] = lambda: None
        self._call = client.call(self._emit, self.is_cancelled, self._begin_turn)
        self.timeout_ms = timeout_of(message.params)
        self._arrived = self._call.host.monotonic_ms()
        self._stream: EventStream | None = None
        if id is not None:
            self._stream = EventStream(
                wire=client.wire,
                id=id,
                host=self._call.host,
                send=client.outbox.send,
                crowded=self._is_crowded,
                wait=self._wait_for_room,
            )

    @property
    def is_parked(self) -> bool:
        """Returns true while the request is parked, so that it holds no thread and no place."""
        return self._parked is not None

    @property
    def is_stream(self) -> bool:
        """Returns true while the request is parked and follows the log."""
        return self._parked is not None and self._parked.tail is not None

    def cancel(self, *, by_leaving: bool = False) -> None:
        """Asks the request to stop; its commits stay.

        `by_leaving`: its client has gone. Then work that goes on apart from the request may go on.
        """
        self._cancelled, self._is_given_up = True, by_leaving

    def is_cancelled(self) -> bool:
        """Returns true if the request must stop at its next step."""
        return self._cancelled or self._is_expired

    def expire(self) -> None:
        """Answers with a timeout, now or, if the request may have begun to write, at its next step.

        A parked request is left to `poll`.
        """
        with self._changing:
            if self._is_answered or self.is_parked:
                return
            self._is_expired = True
            if self._works:
                return
        self._fail(late(self.method, self.timeout_ms))

    def _begin_turn(self) -> None:
        """Begins the commit of a write, which can't be stopped any more.

        Raises operation.timeout if the time is up, and operation.cancelled for a client that has
        gone, because it has given the request up, or sends it again.
        """
        if self._client.has_gone():
            raise KbprocError("operation.cancelled", "The client has gone.")
        with self._changing:
            if self._is_answered:
                raise late(self.method, self.timeout_ms)
            self._works = True

    def run(self) -> End | None:
        """Begins the request, on the current thread; returns its end, if that is still to do."""
        return self._settle(self._begin)

    def _begin(self) -> Answer | Parked | Entered:
        if not self._client.opening.wait():
            raise KbprocError(
                "operation.cancelled", "The connection ended before the store was open."
            )
        self._call.check_cancelled()
        method = self._call.registry.find(self.method)
        if method.streams:
            self._begin_turn()
            if not method.from_log:
                self._emit("init", {})
        return run(self._call, self.method, self._message.params)

    def _settle(self, step: Step) -> End | None:
        outcome = _outcome(step)
        if isinstance(outcome, Entered):
            return lambda: self._take(_outcome(outcome.end))
        self.end_earlier()
        self._take(outcome)
        return None

    def _take(self, outcome: Answer | Parked | Entered | KbprocError) -> None:
        if isinstance(outcome, KbprocError):
            self._fail(outcome)
        elif isinstance(outcome, Parked):
            self._parked = outcome
            since = self._call.host.monotonic_ms() - self._arrived
            try:
                self._client.park(self, _remaining_ms(outcome.timeout_ms, since))
            except RuntimeError as error:  # no thread could be started
                self._parked = None
                self._fail(messages.unexpected(error))
        elif isinstance(outcome, Answer):
            self._succeed(outcome)

    # ------------------------------------------------------------------------- events

    def _emit(self, name: str, fields: dict[str, Any]) -> None:
        """Sends an event; those of a notification are dropped."""
        if self._stream is not None:
            self._stream.emit(name, fields)

    def _is_crowded(self) -> bool:
        """Returns true if the client still has much to read."""
        return self._client.outbox.congested

    def _wait_for_room(self) -> None:
        """Waits for room, except for a parked request, because all parked ones share a thread."""
        if not self.is_parked:
            self._client.outbox.wait_for_room(self.is_cancelled)

    # ------------------------------------------------------------------------ waiting

    def has_more(self) -> bool:
        """Returns true for a stream with more to send, to a client that reads it."""
        tail = None if self._parked is None else self._parked.tail
        return tail is not None and not self._is_crowded() and tail.more()

    def poll(self, *, expired: bool) -> bool:
        """Resumes the request if it is ready; returns true if it waits no more.

        `expired`: its time is up.
        """
        parked = self._parked
        if parked is None:
            return True
        try:
            self._check_still_needed(parked)
            is_unread = parked.tail is not None and self._is_crowded()
            if not is_unread and parked.ready():  # a stream without a reader is not polled
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

    def _check_still_needed(self, parked: Parked) -> None:
        """Raises operation.cancelled at the end of the connection, unless the request lasts."""
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

    # ------------------------------------------------------------------------ approval

    def _awaits_person(self, error: KbprocError) -> bool:
        """Lists an unconfirmed plan; returns true if the request waits for a person.

        A plan that was approved and is stale by then waits again, as it is now.
        """
        peer, plans, waiter = self._call.peer, self._call.plans, self._waiter
        is_unconfirmed = error.type == "input.confirmation_required"
        is_stale = error.type == "resource.plan_stale" and waiter is not None
        if error.plan is None or not (is_unconfirmed or is_stale) or peer.surface == "page":
            return False
        waits = peer.awaits_approval and self.id is not None and not self._client.ending
        pending = PendingPlan(
            plan=error.plan,
            method=self.method,
            raw=bytes(self._message.params),
            peer=peer,
            asked_at=self._call.now,
        )
        self._waiter = Waiter() if waits else None
        plans.add(pending, self._waiter)
        if waiter is not None:
            plans.leave(waiter, error)
        if waits:
            self._park_for(self._waiter, error)
        return waits

    def _park_for(self, waiter: Waiter | None, error: KbprocError) -> None:
        """Parks the request until the waiter has a decision, or its time is up."""

        def decided() -> Answer | Parked | Entered:
            if waiter is None or not waiter.is_approved:
                raise refused(str(waiter and waiter.decided_by))
            raw = with_confirmation(bytes(self._message.params), error.plan.plan_hash)
            self._call.approved_by, self._call.now = waiter.decided_by, self._call.host.now()
            return run(self._call, self.method, raw)

        self._take(
            Parked(
                ready=lambda: waiter is not None and waiter.decided_by is not None,
                resume=decided,
                timeout_ms=self.timeout_ms,
                expired=lambda: late(self.method, self.timeout_ms),
            )
        )

    # ----------------------------------------------------------------------- the answer

    def _succeed(self, answer: Answer) -> None:
        self._note_outcome(answer)
        wire, method = self._client.wire, self._call.registry.methods[self.method]
        self._answer(_line(wire, self.id, lambda id: wire.result(id, method, answer)))

    def _fail(self, error: KbprocError) -> None:
        if self._awaits_person(error):
            return
        if error.type == "operation.cancelled" and self._is_expired and not self._cancelled:
            hint = error.hint if error.detail else None
            error = late(self.method, self.timeout_ms, hint=hint, **error.detail)
        self._note_outcome(error)
        wire, registry, params = self._client.wire, self._call.registry, self._message.params

        def error_line(id: Id) -> bytes:
            from kbproc.methods.calls.retry import with_retry

            return wire.error(id, with_retry(error, registry, self.method, params))

        self._answer(_line(wire, self.id, error_line))

    def _note_outcome(self, outcome: Answer | KbprocError) -> None:
        """Tells an approver how the request ended; removes a plan that was carried out."""
        waiter, self._waiter = self._waiter, None
        if waiter is not None:
            self._call.plans.leave(waiter, outcome)
        elif isinstance(outcome, Answer) and b'"confirm"' in bytes(self._message.params):
            confirmed = msgspec.json.decode(self._message.params).get("confirm")
            self._call.plans.confirmed(str(confirmed))

    def _answer(self, line: bytes | None) -> None:
        """Sends the response, only once, because a timeout may have answered before."""
        with self._changing:
            if self._is_answered:
                return
            self._is_answered = True
        method = self._call.registry.methods.get(self.method)
        if method is not None and method.from_log and self._stream is not None:
            self._stream.begin()  # because the request may have failed before its `init`
        self._client.answer(self, line)


def _outcome(step: Step) -> Answer | Parked | Entered | KbprocError:
    try:
        return step()
    except KbprocError as error:
        return bare(error)
    except Exception as error:  # noqa: BLE001  the boundary: see messages.unexpected
        return messages.unexpected(error)


def _line(wire: messages.Wire, id: Id | None, encode: Callable[[Id], bytes]) -> bytes | None:
    """Returns the response; None for a notification.

    A failure of `encode` becomes an error response. Without it the request would get no response,
    and the thread, a connection's only one for writes, would end.
    """
    if id is None:
        return None
    try:
        return encode(id)
    except Exception as error:  # noqa: BLE001  the boundary: see messages.unexpected
        return wire.error(id, messages.unexpected(error))


def _remaining_ms(timeout_ms: int | None, since: float) -> int | None:
    """Returns the rest of a timeout that began `since` milliseconds ago, with the request."""
    return None if timeout_ms is None else max(0, round(timeout_ms - since))


def late(
    method: str, timeout_ms: int | None, hint: str | None = None, **detail: Any
) -> KbprocError:
    """Returns the error of a timeout; `detail`: what the request has done, which stays."""
    done = "finished" if detail else "done"
    return KbprocError(
        "operation.timeout",
        f"{method} was not {done} in {timeout_ms} ms.",
        field="$.params.timeout_ms",
        hint=hint,
        detail=detail,
    )


class EventStream:
    """The events of one request.

    `send` gets each event as a line; while `crowded` returns true, progress is left out.
    """

    def __init__(
        self,
        *,
        wire: messages.Wire,
        id: Id,
        host: Host,
        send: Callable[[bytes], None],
        crowded: Callable[[], bool] = lambda: False,
        wait: Callable[[], None] = lambda: None,
    ) -> None:
        self._wire = wire
        self._id = id
        self._host = host
        self._send = send
        self._crowded = crowded
        self._wait = wait
        self._index = 0
        self._started = self._last_progress = host.monotonic_ms()

    def begin(self) -> None:
        """Sends `init` as the first event; does nothing after another event."""
        if not self._index:
            self.emit("init", {})

    def emit(self, name: str, fields: dict[str, Any]) -> None:
        """Sends an event; may leave progress out, unnumbered; other events `wait` for room."""
        if name == "progress":
            now, last = self._host.monotonic_ms(), fields.pop("last", False)
            if not last and (self._crowded() or now - self._last_progress < _PROGRESS_EVERY_MS):
                return
            self._last_progress = now
            fields["eta_ms"] = self._eta(now, fields["current"], fields["total"])
        elif self._crowded():
            self._wait()
        line = self._wire.event(name, {"request_id": self._id, "index": self._index, **fields})
        if line is not None:
            self._index += 1
            self._send(line)

    def _eta(self, now: float, current: int, total: int | None) -> int | None:
        """Returns the remaining milliseconds at the present speed; None if that is unknown."""
        if not current or total is None:
            return None
        return round((now - self._started) / current * (total - current))


class ResponseBatch:
    """The responses of one batch, sent as one array, in the order of its requests."""

    def __init__(self, size: int, wire: messages.Wire, send: Callable[[bytes], None]) -> None:
        """`send` gets the array once all `size` messages are done."""
        self._wire = wire
        self._send = send
        self._open = size
        self._answers: dict[int, tuple[Id | None, bytes]] = {}
        self._lock = threading.Lock()

    def answer(self, place: int, id: Id | UnsetType | None, line: bytes | None) -> None:
        """Takes the response of the message at `place`; `line` is None for one without."""
        with self._lock:
            self._open -= 1
            if line is not None:
                self._answers[place] = (None if id is UNSET else id, line)
            done = self._open == 0
        if done and self._answers:
            self._shrink()
            lines = [line for _, (_, line) in sorted(self._answers.items())]
            self._send(b"[" + b",".join(lines) + b"]")

    def _shrink(self) -> None:
        """Replaces the longest responses by errors until the array fits a line."""
        size = 1 + sum(len(line) + 1 for _, line in self._answers.values())
        for place in sorted(self._answers, key=lambda place: -len(self._answers[place][1])):
            if size <= self._wire.max_line_bytes:
                return
            id, line = self._answers[place]
            short = self._wire.too_long(id, len(line))
            if len(short) < len(line):
                self._answers[place] = (id, short)
                size -= len(line) - len(short)


class Parkable(Protocol):
    """A request that waits and can be polled."""

    def has_more(self) -> bool:
        """Returns true if it has something to send, even without a change."""
        ...

    def poll(self, *, expired: bool) -> bool:
        """Returns true once it waits no more; `expired`: its time is up. Never raises."""
        ...


class _ParkedPlace(Struct, frozen=True):
    request: Parkable
    deadline: float | None

    def is_due(self, now: float) -> bool:
        return self.deadline is not None and now >= self.deadline


class Parking:
    """Parked requests, polled by one thread, which every change wakes.

    Streams with a backlog take turns: each sends a part. Other requests are only polled after a
    change or at their deadline.
    """

    def __init__(self, host: Host, subscribe: Callable[[Callable[[], None]], None]) -> None:
        """`subscribe` gets, with the first request, the function to call at every change."""
        self._host = host
        self._subscribe = subscribe
        self._places: list[_ParkedPlace] = []
        self._guard = threading.Lock()
        self._worker = Worker("parking", self._poll, first_s=None)

    def add(self, request: Parkable, timeout_ms: int | None) -> None:
        """Parks the request: polls it soon, and then at every change."""
        deadline = None if timeout_ms is None else self._host.monotonic_ms() + timeout_ms
        with self._guard:
            if self._worker.start():
                self._subscribe(self.wake)
            self._places.append(_ParkedPlace(request, deadline))
        self.wake()

    def wake(self) -> None:
        """Has every request polled, because something has changed. Never blocks."""
        self._worker.wake()

    def close(self, timeout_s: float = 1.0) -> None:
        self._worker.close(timeout_s)

    def _poll(self, has_changed: bool) -> float | None:
        with self._guard:
            places, self._places = self._places, []
        now = self._host.monotonic_ms()
        waiting = [place for place in places if not self._is_done(place, now, has_changed)]
        with self._guard:
            self._places = waiting + self._places
            return self._seconds_to_next()

    def _is_done(self, place: _ParkedPlace, now: float, has_changed: bool) -> bool:
        due = place.is_due(now)
        if not (has_changed or due or place.request.has_more()):
            return False
        return place.request.poll(expired=due)

    def _seconds_to_next(self) -> float | None:
        """Returns the seconds until the next poll without a change; None if there is none."""
        if any(place.request.has_more() for place in self._places):
            return 0.0
        deadlines = [place.deadline for place in self._places if place.deadline is not None]
        if not deadlines:
            return None
        return max(0.0, (min(deadlines) - self._host.monotonic_ms()) / 1000)


class Deadlines:
    """Requests and their deadlines. Any thread may use it."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._due: dict[InFlight, float] = {}
        self._guard = threading.Lock()
        self._worker = Worker("deadlines", self._expire, first_s=None)

    def add(self, request: InFlight, timeout_ms: int) -> None:
        with self._guard:
            self._worker.start()
            self._due[request] = self._host.monotonic_ms() + timeout_ms
        self._worker.wake()

    def remove(self, request: InFlight) -> None:
        """Removes an answered request."""
        with self._guard:
            self._due.pop(request, None)

    def close(self) -> None:
        self._worker.stop()

    def _expire(self, is_woken: bool) -> float | None:
        """Ends the requests whose time is up; returns the seconds to the next deadline."""
        with self._guard:
            now = self._host.monotonic_ms()
            expired = [request for request, due in self._due.items() if due <= now]
            for request in expired:
                del self._due[request]
            next_due = min(self._due.values(), default=None)
        for request in expired:
            try:
                request.expire()
            except Exception:  # because other requests must expire, too
                _logger.exception("a request's time could not end")
        if expired:
            return 0.0
        return None if next_due is None else (next_due - now) / 1000
