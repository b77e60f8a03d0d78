"""Runs `kbproc serve` attached: passes lines between its client and the store's owner.

Lines keep their order in both directions. If the owner ends, the next one gets the requests in
flight again. If an owner stays silent for too long, this process answers instead.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from kbproc.base import sockets
from kbproc.base.errors import KbprocError
from kbproc.base.params import MADE_BY_US
from kbproc.base.threads import start_thread
from kbproc.base.values import NOT_READABLE, decoder, without_halves
from kbproc.client.in_flight import RESUME, SUBSCRIBE, InFlight, renumbered, with_token
from kbproc.surfaces.sharing.link import (
    RESTART,
    TICK_SECONDS,
    Check,
    Gone,
    Hello,
    Link,
    cancellation,
    deadly,
)
from kbproc.surfaces.sharing.reach import GRACE_SECONDS, Waiting, silent, state_of
from kbproc.surfaces.wire.jsonrpc import (
    Message,
    Request,
    cancelled_id,
    parse,
    timeout_of,
)
from kbproc.surfaces.wire.lines import InputLines, Stop, skipped

if TYPE_CHECKING:
    from kbproc.surfaces.sharing.takeover import Takeover
    from kbproc.surfaces.wire.outbox import Outbox

END_SECONDS = 12.0  # for the owner to answer what is in flight at the end
_MOST_HELD = 1000  # lines that wait for an owner; then no more are read until one attaches
_PING = "ping"


# ------------------------------------------------------------------------- lines in flight


class _BatchItem(Struct):
    seq: int = 0


class _EventParams(Struct):
    type: str = ""
    request_id: int | str | None = None
    index: int = 0
    item: Raw = Raw(b"null")
    seq: int = 0
    cursor: str | None = None


class _OwnerLine(Struct):
    """The members of an owner's line that are needed here."""

    id: int | str | UnsetType | None = UNSET
    params: _EventParams | UnsetType = UNSET


_owner_line = decoder(_OwnerLine).decode
_owner_batch = decoder(list[_OwnerLine]).decode
_client_batch = decoder(list[Raw]).decode
_item = decoder(_BatchItem).decode

# A request's id, or the ids of a batch's messages.
Key = int | str | tuple[Any, ...] | None


class InUse(Exception):
    """The owner still works on an earlier line with the same id or ids, which was given up."""

    def __init__(self, key: Key) -> None:
        self.key = key


class InFlightLine(InFlight):
    """A client's line in flight: a request, or a batch, which has no method.

    `given_up`: the client already has an answer; what the owner still sends is dropped.
    """

    cancellation: bytes | None = None
    given_up = False

    def __init__(self, line: bytes, method: str = "", timeout_ms: int | None = None) -> None:
        super().__init__(method, None if timeout_ms is None else timeout_ms / 1000)
        self.data = line
        self.timeout_ms = timeout_ms

    def for_next_owner(self) -> bytes:
        """Returns the line for the next owner, after `begin`."""
        if self.method not in {SUBSCRIBE, RESUME} and (not self.method or self.timeout_ms is None):
            return self.data
        request = parse(self.data)
        if not isinstance(request, Request):
            return self.data  # refused, like the first time
        try:
            params = msgspec.json.decode(request.params)
        except NOT_READABLE:
            return self.data
        now = self.params_now(params)
        return self.data if now is params else _with_params(request, now)

    def take_event(self, line: bytes, params: _EventParams) -> list[bytes]:
        """Returns the event's line for the client, or none."""
        is_item = params.type == "item" and self.method == SUBSCRIBE
        seq = _item(params.item).seq if is_item else None
        index = self.index_of(params.type, params.cursor, seq)
        if index is None:
            return []
        if index == params.index:
            return [line]
        event = renumbered(msgspec.json.decode(line)["params"], index, RESTART)
        return [msgspec.json.encode({"jsonrpc": "2.0", "method": "event", "params": event})]

    @property
    def requests(self) -> list[Request]:
        """Returns the requests of the line that have an id."""
        messages = _messages(self.data)
        return [one for one in messages if isinstance(one, Request) and one.id is not UNSET]

    def write_of(self, id: object) -> tuple[str, dict[str, Any]] | None:
        """Returns method and params of the request with this id; None if it has no token."""
        for request in self.requests:
            if request.id == id:
                with contextlib.suppress(*NOT_READABLE):
                    params = msgspec.json.decode(request.params)
                    if params.get("client_token") is not None:
                        return request.method, params
        return None

    @property
    def may_be_done(self) -> bool:
        """Returns whether an owner may have done a write of this line."""
        return self.was_sent and any(self.write_of(request.id) for request in self.requests)

    @property
    def only_waits(self) -> bool:
        """Returns whether the line only waits for later writes, which no owner dies of."""
        return all(isinstance(one, Request) and _only_waits(one) for one in _messages(self.data))

    def to_cancel(self, writes: Collection[str], lasting: Collection[str]) -> list[Any]:
        """Returns the ids of the line's requests that an owner should not begin any more.

        A write that has begun goes on. So does a generated answer: a stopped one would stay
        incomplete, and a retry with the same token would return it.
        """
        continuing = {*lasting, *writes} if self.has_events else lasting
        return [request.id for request in self.requests if request.method not in continuing]

    @property
    def is_due(self) -> bool:
        """Returns whether the owner has used the request's timeout and a grace period."""
        due = None if self.given_up else self.due(GRACE_SECONDS)
        return due is not None and time.monotonic() > due


class InFlightLines:
    """The client's lines in flight, by key. Any thread may use it."""

    def __init__(self) -> None:
        self.writes: frozenset[str] = frozenset()  # methods that must carry a token
        self.lasting: frozenset[str] = frozenset()  # writes that make an answer
        self.was_ready = False  # true once an owner has had the store open
        self._lock = threading.Lock()
        self._by_key: dict[Key, deque[InFlightLine]] = {}
        self._tokens = 0
        self._token = f"{MADE_BY_US}{os.urandom(8).hex()}"
        self._seq: int | None = None  # the last position that an owner has named

    def __bool__(self) -> bool:
        return len(self) > 0

    def __len__(self) -> int:
        """Returns how many lines the client still awaits an answer to."""
        with self._lock:
            return sum(not line.given_up for line in self._all())

    def _all(self) -> Iterator[InFlightLine]:
        return (line for queue in self._by_key.values() for line in queue)

    # ---------------------------------------------------------------- from the client

    def from_client(self, line: bytes, *, is_sent: bool = False) -> tuple[bytes, bool]:
        """Returns the line for the owner, and whether the line is now in flight.

        A write without a token gets one, as soon as an owner has named the methods that write.
        `is_sent`: the owner gets the line now. Raises InUse.
        """
        line = without_halves(line)  # so that its params can be read, and a write gets its token
        parsed = parse(line)
        line = self._with_tokens(line, parsed)
        if isinstance(parsed, list):
            key: Key = tuple(one.id for one in parsed if one.id is not UNSET)
            in_flight = InFlightLine(line, timeout_ms=_longest(parsed))
        elif isinstance(parsed, Request):
            self._note_cancellation(line, parsed)
            key = None if parsed.id is UNSET else parsed.id
            in_flight = InFlightLine(line, parsed.method, timeout_of(parsed.params))
        else:
            key, in_flight = parsed.id, InFlightLine(line)
        if key is None or key == ():  # no answer names the line
            return line, False
        self._add(key, in_flight, is_sent)
        return line, True

    def _add(self, key: Key, line: InFlightLine, is_sent: bool) -> None:
        """Raises InUse, because only the ids of an answer name its request."""
        with self._lock:
            if any(earlier.given_up for earlier in self._by_key.get(key, ())):
                raise InUse(key)
            if is_sent:
                line.begin(self._seq)
            self._by_key.setdefault(key, deque()).append(line)

    def _note_cancellation(self, line: bytes, message: Request) -> None:
        if message.method == "$/cancel" and message.id is UNSET:
            id = cancelled_id(message.params)
            with self._lock:
                for in_flight in self._by_key.get(id, ()) if id is not None else ():
                    in_flight.cancellation, in_flight.is_cancelled = line, True

    def _with_tokens(self, line: bytes, parsed: Message | list[Message]) -> bytes:
        """Returns the line, in which each write has a token."""
        if not isinstance(parsed, list):
            return self._with_token(line, parsed)
        members = [bytes(member) for member in _client_batch(line)]
        with_tokens = list(map(self._with_token, members, parsed))
        return line if with_tokens == members else b"[" + b",".join(with_tokens) + b"]"

    def _writes(self, message: Message) -> bool:
        return isinstance(message, Request) and message.method in self.writes

    def _with_token(self, line: bytes, message: Message) -> bytes:
        if not isinstance(message, Request) or message.id is UNSET or not self._writes(message):
            return line
        try:
            params = msgspec.json.decode(message.params)
        except NOT_READABLE:
            return line  # refused, under its id
        changed = with_token(params, f"{self._token}-{self._tokens + 1}")
        if changed is params:
            return line
        self._tokens += 1
        return _with_params(message, changed)

    # ----------------------------------------------------------------- from the owner

    def from_owner(self, line: bytes) -> list[bytes]:
        """Returns the lines for the client: the owner's line, also with another index, or none."""
        with self._lock:
            if line[:1] == b"[":
                return self._settled(line, tuple(answer.id for answer in _owner_batch(line)))
            message = _owner_line(line)
            if message.params is UNSET:
                return self._settled(line, None if message.id is UNSET else message.id)
            if message.params.request_id is None:
                return self._take_owner_event(line, message.params)
            queue = self._by_key.get(message.params.request_id)
            if not queue:
                return [line]
            return [] if queue[0].given_up else queue[0].take_event(line, message.params)

    def _take_owner_event(self, line: bytes, params: _EventParams) -> list[bytes]:
        """Returns the event for the client, which gets `ready` from the first owner only."""
        if params.type != "ready":
            return [line]
        self._seq = max(self._seq or 0, params.seq)
        for request in self._all():
            request.note_position(params.seq)
        before, self.was_ready = self.was_ready, True
        return [] if before else [line]

    def _settled(self, line: bytes, key: Key) -> list[bytes]:
        queue = self._by_key.get(key)
        if not queue:
            return [line]
        settled = queue.popleft()
        if not queue:
            del self._by_key[key]
        return [] if settled.given_up else [line]

    # -------------------------------------------------------------- between two owners

    def forget(self) -> None:
        """Removes the lines that were given up, because no other owner will answer them."""
        with self._lock:
            self._by_key = {
                key: deque(remaining)
                for key, queue in self._by_key.items()
                if (remaining := [line for line in queue if not line.given_up])
            }

    def for_next_owner(self) -> list[bytes]:
        """Returns the lines for the next owner, in the order in which each id was first used."""
        self.forget()
        lines: list[bytes] = []
        with self._lock:
            for line in self._all():
                # Some lines came before an owner named the methods that write.
                line.data = self._with_tokens(line.data, parse(line.data))
                line.begin(self._seq)
                lines.append(line.for_next_owner())
                if line.cancellation is not None:
                    lines.append(line.cancellation)
        return lines

    def owner_ended(self, *, died: bool) -> list[tuple[Key, InFlightLine]]:
        """Gives up the lines that no other owner is asked, and returns them.

        `died`: the owner has not handed its clients over. Lines that only wait end no owner.
        """
        with self._lock:
            for line in self._all():
                line.note_end(died=died and not line.only_waits)
        return self._give_up(lambda line: line.is_deadly and not line.given_up)

    def take(self) -> list[tuple[Key, InFlightLine]]:
        """Removes and returns all lines without an answer; the caller answers them."""
        self.forget()
        with self._lock:
            lines = [(key, line) for key, queue in self._by_key.items() for line in queue]
            self._by_key.clear()
        return lines

    def give_up(self, *, only_due: bool = False) -> list[tuple[Key, InFlightLine]]:
        """Gives up all lines, or those whose time is over, and returns them."""
        return self._give_up(lambda line: line.is_due if only_due else not line.given_up)

    def _give_up(self, is_over: Callable[[InFlightLine], bool]) -> list[tuple[Key, InFlightLine]]:
        with self._lock:
            lines = [
                (key, line)
                for key, queue in self._by_key.items()
                for line in queue
                if is_over(line)
            ]
            for _, line in lines:
                line.given_up = True
        return lines


def _messages(line: bytes) -> list[Message]:
    """Returns the messages of a line, which may be a batch."""
    parsed = parse(line)
    return parsed if isinstance(parsed, list) else [parsed]


def _with_params(request: Request, params: dict[str, Any]) -> bytes:
    """Returns the request's line with other params."""
    return msgspec.json.encode(
        {"jsonrpc": "2.0", "id": request.id, "method": request.method, "params": params}
    )


def _only_waits(request: Request) -> bool:
    """Returns whether the request makes the owner wait, and do nothing else.

    A subscription from an earlier position reads the log first, and may end its owner by that.
    """
    if request.method in {_PING, SUBSCRIBE}:
        with contextlib.suppress(*NOT_READABLE):
            params = msgspec.json.decode(request.params)
            if request.method == _PING:
                return params.get("min_seq") is not None
            return params.get("after_seq") is None
    return False


def _longest(batch: list[Message]) -> int | None:
    """Returns the timeout of a batch, which has one answer; None if a member has no timeout."""
    timeouts = [timeout_of(one.params) if isinstance(one, Request) else None for one in batch]
    finite = [timeout for timeout in timeouts if timeout is not None]
    return max(finite) if finite and len(finite) == len(timeouts) else None


# ---------------------------------------------------------------------- the attached process


class _LeftOwner(Gone):
    """This process has disconnected from an owner that is stopped."""


class _ClientGone(Exception):
    """The client has gone, so no more answers are needed."""


class Attached:
    """An attached process: its client on one side, the owner of the store on the other.

    One thread reads the client's lines, another finds the owner and reads its answers. The
    client's lines are read, and their timeouts run, whether there is an owner or not.
    """

    def __init__(self, outbox: Outbox, hello: Hello, takeover: Takeover) -> None:
        self._outbox = outbox
        self._hello = hello
        self._takeover = takeover
        self._in_flight = InFlightLines()
        self._link: Link | None = None
        self._is_attached = False  # true once the owner has all earlier lines
        self._notifications: list[bytes] = []  # lines that wait for an owner
        self._sending = threading.Lock()
        self._line_came = threading.Event()
        self._ending = False
        self._deadline = float("inf")
        self._ended = threading.Event()
        self._waiting = takeover.waiting()
        self._checked_at = 0.0

    def run(self, owner: sockets.Socket | None, lines: InputLines) -> int:
        """Serves until the client's last line or a signal; returns the exit code.

        `owner`: a connection to the first owner; None looks for it.
        """
        start_thread(partial(self._serve, owner), "attached")
        code = 0
        try:
            for line in lines:
                self._outbox.wait_until_not_full(lines.ended)
                self._send(skipped(line) if isinstance(line, int) else line, lines)
        except Stop as stop:
            code = stop.exit_code
        self._deadline = time.monotonic() + END_SECONDS
        self._ending = True
        self._line_came.set()
        if self._sending.acquire(timeout=END_SECONDS):
            self._send_end()
            self._sending.release()
        while not self._ended.wait(TICK_SECONDS):
            if lines.signals.hurried or time.monotonic() > self._deadline:
                break
        self._outbox.flush(1.0)
        return code

    # ------------------------------------------------------------------ to the owner

    def _send(self, line: bytes, lines: InputLines) -> None:
        """Sends the lines in the order of their arrival, those of an earlier owner first."""
        while not self._is_attached and self._held_count > _MOST_HELD:
            if lines.ended():
                break
            time.sleep(TICK_SECONDS)
        try:
            with self._sending:
                line, is_in_flight = self._in_flight.from_client(line, is_sent=self._is_attached)
                if self._is_attached:
                    self._push(line, lines.signals.check)
                elif not is_in_flight:
                    self._notifications.append(line)
        except InUse as used:
            self._answer([(used.key, InFlightLine(b""))], _in_use())
        self._line_came.set()

    @property
    def _held_count(self) -> int:
        return len(self._in_flight) + len(self._notifications)

    def _push(self, line: bytes, check: Check) -> None:
        """Sends the line; the thread that reads answers notices if the owner has gone."""
        if self._link is None:
            return
        try:
            self._link.send(line, check)
        except Gone:
            self._is_attached = False

    def _send_end(self) -> None:
        if self._link is not None and self._is_attached:
            try:
                self._link.end()
            except Gone:
                self._is_attached = False

    # ---------------------------------------------------------------- from the owner

    def _serve(self, owner: sockets.Socket | None) -> None:
        """Serves with one owner after the other, until the client has gone and has all answers."""
        try:
            while not (self._ending and not self._in_flight):
                try:
                    link = Link(owner or self._takeover.reach_owner(self._check_unattached))
                    owner = None
                    self._attach(link)
                    self._pass_on(link)
                except _LeftOwner:
                    self._detach(self._waiting)
                except Gone:
                    self._note_end()
                    self._detach()
                except KbprocError as error:
                    self._detach()
                    self._refuse(error)
                except _ClientGone:
                    raise
                except Exception:  # because without this thread no request gets an answer
                    import logging  # imported late, because it is rarely needed

                    logging.getLogger(__name__).exception("the owner's lines can't be passed on")
                    self._detach()
                    time.sleep(TICK_SECONDS)
        except _ClientGone:
            pass
        finally:
            self._ended.set()

    def _note_end(self) -> None:
        """Answers the requests that the owner may have died of, as others before it."""
        link = self._link
        died = link is not None and not link.is_handed_over
        for key, line in self._in_flight.owner_ended(died=died):
            self._answer([(key, line)], deadly(line.method))

    def _detach(self, waiting: Waiting | None = None) -> None:
        """Closes the link to the owner. `waiting`: goes on for the same owner."""
        with self._sending:
            if self._link is not None:
                self._link.close()
            self._link, self._is_attached = None, False
        self._in_flight.forget()
        self._waiting = waiting or self._takeover.waiting()

    def _attach(self, link: Link) -> None:
        """Greets the owner and sends it the lines in flight.

        Raises Gone, the owner's refusal, and the errors of `_check_unattached`.
        """
        with self._sending:
            self._link = link
        welcome = link.greet(self._hello, self._check_unattached)
        self._in_flight.writes = frozenset(welcome.writes)
        self._in_flight.lasting = frozenset(welcome.lasting)
        # Another thread sends, because the owner may only read on once its answers are read.
        start_thread(partial(self._send_again, link), "sending")

    def _send_again(self, link: Link) -> None:
        with self._sending:
            if link is not self._link:  # another owner has taken its place
                return
            self._is_attached = True
            notifications, self._notifications = self._notifications, []
            for line in [*self._in_flight.for_next_owner(), *notifications]:
                self._push(line, self._check_deadline)
            if self._ending:
                self._send_end()

    def _check_deadline(self) -> None:
        """Raises Gone after the deadline, when no client waits any more."""
        if time.monotonic() > self._deadline:
            raise Gone

    def _pass_on(self, link: Link) -> None:
        """Passes the owner's lines to the client, until the owner ends, which raises Gone."""
        while True:
            for line in link.lines(self._check_attached):
                for message in self._in_flight.from_owner(line):
                    self._outbox.send(message)
            self._outbox.wait_until_not_full(lambda: self._ending)

    # ------------------------------------------------- for an owner that does not answer

    @property
    def _pid(self) -> int:
        """Returns the owner's process id; 0 without an owner."""
        link = self._link
        return 0 if link is None else link.pid

    def _check_unattached(self) -> None:
        """Checks all timeouts while no owner is attached. Raises store.locked, _ClientGone."""
        now = time.monotonic()
        if now - self._checked_at < TICK_SECONDS:
            return
        self._checked_at = now
        if self._ending and (not self._in_flight or now > self._deadline):
            raise _ClientGone
        self._answer_late()
        if self._link is None:
            self._waiting.for_owner()
            return
        try:
            self._waiting.for_answer(self._pid)
        except KbprocError as error:
            if not self._in_flight.was_ready:
                raise
            self._answer(self._in_flight.give_up(), error)
            self._in_flight.forget()

    def _check_attached(self) -> None:
        """Checks all timeouts while an owner is attached, which may be stopped and go on later.

        Raises _ClientGone, _LeftOwner.
        """
        due = self._in_flight.give_up(only_due=True)
        late = [([entry], silent(self._pid, entry[1].timeout_ms or 0)) for entry in due]
        try:
            self._waiting.for_answer(self._pid)
        except KbprocError as error:
            late.append((self._in_flight.give_up(), error))
        given_up = [entry for entries, _ in late for entry in entries]
        withdrawn = not given_up or self._withdraw([line for _, line in given_up])
        for entries, reason in late:
            self._answer(entries, reason)
        if self._ending and time.monotonic() > self._deadline:
            raise _ClientGone
        if not withdrawn:
            raise _LeftOwner

    def _withdraw(self, given_up: list[InFlightLine]) -> bool:
        """Cancels the lines at the owner; returns false if this process disconnected instead.

        A stopped owner would read a cancellation too late. It begins no write of a process that
        has gone, so that it later finishes only what it was doing when it was stopped.
        """
        link = self._link
        if link is None:
            return True
        writes, lasting = self._in_flight.writes, self._in_flight.lasting
        ids = [id for line in given_up for id in line.to_cancel(writes, lasting)]
        if state_of(link.pid) != "stopped" and self._sending.acquire(timeout=TICK_SECONDS):
            try:
                for id in ids:
                    link.send(cancellation(id), _raise_gone)
                return True
            except Gone:
                pass
            finally:
                self._sending.release()
        link.hang_up()  # without the lock, which a sender may hold
        return False

    def _answer_late(self) -> None:
        for key, line in self._in_flight.give_up(only_due=True):
            self._answer([(key, line)], silent(self._pid, line.timeout_ms or 0))
        self._in_flight.forget()  # because no owner works on them

    def _refuse(self, error: KbprocError) -> None:
        """Answers in place of an owner, as no process can open the store; the next line retries."""
        self._line_came.clear()
        connection = self._takeover.without_store(error, self._hello, self._outbox)
        for key, line in self._in_flight.take():
            if line.may_be_done:
                self._answer([(key, line)], error)
            else:
                connection.receive(line.data)
        if self._ending:  # because no more lines come
            connection.wait_until_idle(END_SECONDS)
        else:
            self._line_came.wait()
        self._waiting = self._takeover.waiting()

    def _answer(self, given_up: list[tuple[Key, InFlightLine]], error: KbprocError) -> None:
        """Sends the error; a write's error holds its token, so that a retry happens once."""
        if not given_up:
            return
        from kbproc.methods.calls.retry import with_token_and_retry
        from kbproc.surfaces.wire.messages import Wire

        wire = Wire(self._hello.max_line_bytes, surface=self._hello.surface)

        def response(line: InFlightLine, id: int | str | None) -> bytes:
            write = line.write_of(id)
            return wire.error(id, error if write is None else with_token_and_retry(error, *write))

        for key, line in given_up:
            if isinstance(key, tuple):
                self._outbox.send(b"[" + b",".join(response(line, id) for id in key) + b"]")
            else:
                self._outbox.send(response(line, key))


def _raise_gone() -> None:
    """Treats an owner that reads nothing as gone."""
    raise Gone


def _in_use() -> KbprocError:
    return KbprocError(
        "input.invalid_request",
        "The owner of the store still works on an earlier request with this id.",
        field="$.id",
        hint="Give each request an id of its own.",
    )
