"""What the client of an attached process has asked and not been answered yet.

Owns: the requests that the next owner is asked again if this one ends, the tokens of
writes that have none, one unbroken stream of events for each request, and which requests
have waited long enough.
Refuses to know: sockets and threads, and who owns the store. Light: an attached process
imports no more.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import deque
from collections.abc import Iterator
from typing import Any, Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType

from kbproc.base.params import MADE_BY_US
from kbproc.base.values import decoder
from kbproc.settings.config import MAX_BATCH, MAX_ID
from kbproc.sharing.waiting import GRACE_MS
from kbproc.wire.deadlines import timeout_of

_SUBSCRIBE = "events.subscribe"
_RESUME = "session.resume"
_NEXT_OWNER = "The process that owned the store has ended; another goes on."


class _ClientLine(Struct, forbid_unknown_fields=True):
    """What of a client's line must be known; a request is what the owner takes for one."""

    jsonrpc: Literal["2.0"]
    method: str
    params: msgspec.Raw = msgspec.Raw(b"{}")
    id: int | str | UnsetType | None = UNSET


class _Item(Struct):
    seq: int = 0


class _Params(Struct):
    type: str = ""
    request_id: int | str | None = None
    index: int = 0
    item: msgspec.Raw = msgspec.Raw(b"null")
    seq: int = 0
    cursor: str | None = None


class _OwnerLine(Struct):
    """What of an owner's line must be known."""

    id: int | str | UnsetType | None = UNSET
    params: _Params | UnsetType = UNSET


_client_line = decoder(_ClientLine).decode
_client_batch = decoder(list[msgspec.Raw]).decode
_owner_line = decoder(_OwnerLine).decode
_owner_batch = decoder(list[_OwnerLine]).decode
_item = decoder(_Item).decode
_NOT_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

# A request's id, or the ids of a batch's requests.
Key = int | str | tuple[Any, ...] | None


class Asked:
    """One line that waits for its answer, and what of its stream the client has got.

    `given_up`: the client has been answered already; what the owner still says is dropped.
    """

    def __init__(self, line: bytes, method: str, timeout_ms: int | None = None) -> None:
        self.line = line
        self.method = method
        self.timeout_ms = timeout_ms
        self.since = time.monotonic()
        self.cancelled: bytes | None = None
        self.given_up = False
        self.seq = 0
        self._cursor: str | None = None
        self._next_index = 0
        self._items = 0
        self._pass_over = 0
        self._again = False

    def asked_again(self, known_seq: int) -> bytes:
        """The line for the next owner; `known_seq`: the last position that was heard of."""
        self._again, self._pass_over = self._next_index > 0, self._items
        goes_on = self.method == _SUBSCRIBE or (self.method == _RESUME and self._cursor)
        if not goes_on:
            return self.line
        self._pass_over = 0
        try:
            message = msgspec.json.decode(self.line)
        except _NOT_JSON:
            return self.line  # refused, like the first time
        params = message.setdefault("params", {})
        if not isinstance(params, dict):
            return self.line
        params.update(self._goes_on_from(params, known_seq))
        return msgspec.json.encode(message)

    def _goes_on_from(self, params: dict[str, Any], known_seq: int) -> dict[str, Any]:
        """A snapshot would not come in the same pieces again: all goes on from the last cursor."""
        if self.method == _RESUME:
            return {"after": self._cursor, "snapshot": False}
        after = params.get("after_seq")
        return {"after_seq": max(self.seq, after if isinstance(after, int) else known_seq)}

    def write_of(self, id: object) -> tuple[str, dict[str, Any]] | None:
        """Method and params of the request with this id, if it has a token: it may be done."""
        for member in _members(self.line):
            request = _read(member)
            if request.id == id and request.method:
                with contextlib.suppress(*_NOT_JSON):
                    params = msgspec.json.decode(request.params)
                    if isinstance(params, dict) and params.get("client_token") is not None:
                        return request.method, params
        return None

    @property
    def is_due(self) -> bool:
        """Whether the owner has had the time that the request gives it, and some more."""
        if self.timeout_ms is None or self.given_up:
            return False
        return time.monotonic() - self.since > (self.timeout_ms + GRACE_MS) / 1000

    def take_event(self, line: bytes, params: _Params) -> list[bytes]:
        """What the client gets of an event, whose stream another owner may have begun."""
        if params.type == "item" or params.cursor is not None:
            if self._pass_over:  # kept in the log, it comes in the same pieces from its beginning
                self._pass_over -= 1
                return []
            self._items += 1
            self._cursor = params.cursor
            if self.method == _SUBSCRIBE:
                self.seq = max(self.seq, _item(params.item).seq)
        index = self._next_index
        self._next_index += 1
        if not self._again and params.index == index:
            return [line]
        if params.type == "init":
            return [_event(_warning(params, index))]
        return [_event({**msgspec.json.decode(line)["params"], "index": index})]


def _warning(params: _Params, index: int) -> dict[str, Any]:
    """What stands in the stream where the next owner begins it anew."""
    return {
        "type": "warning",
        "request_id": params.request_id,
        "index": index,
        "message": _NEXT_OWNER,
    }


def _event(params: dict[str, Any]) -> bytes:
    return msgspec.json.encode({"jsonrpc": "2.0", "method": "event", "params": params})


class Unanswered:
    """Every line of the client that waits for its answer. Any thread may use it."""

    def __init__(self) -> None:
        self.writes: frozenset[str] = frozenset()  # methods that must carry a token
        self._lock = threading.Lock()
        self._asked: dict[Key, deque[Asked]] = {}
        self._tokens = 0
        self._token = f"{MADE_BY_US}{os.urandom(8).hex()}"
        self._known_seq = 0
        self._was_ready = False

    @property
    def was_ready(self) -> bool:
        """Whether an owner has let this process in and had the store open."""
        return self._was_ready

    def __bool__(self) -> bool:
        return len(self) > 0

    def __len__(self) -> int:
        """How many lines the client still has to hear of."""
        with self._lock:
            return sum(not asked.given_up for asked in self._all())

    def _all(self) -> Iterator[Asked]:
        return (asked for waiting in self._asked.values() for asked in waiting)

    # ---------------------------------------------------------------- from the client

    def from_client(self, line: bytes) -> tuple[bytes, bool]:
        """The line as the owner gets it, and whether it waits for an answer here.

        A write that has no token gets one, as soon as it is known which methods write.
        """
        if line.lstrip()[:1] == b"[":
            return self._take_batch(line)
        asked = _read(line)
        if asked.method == "$/cancel" and asked.id is UNSET:
            self._take_cancel(line)
        line = self._with_token(line, asked)
        if asked.id is UNSET or _answered_id(asked.id) is None:
            return line, False
        self._add(asked.id, Asked(line, asked.method, timeout_of(asked.params)))
        return line, True

    def _take_batch(self, line: bytes) -> tuple[bytes, bool]:
        try:
            members = _client_batch(line)
        except _NOT_JSON:
            members = []
        if not members or len(members) > MAX_BATCH:
            return line, False  # it is refused as a whole
        asked = [_read(member) for member in members]
        key = tuple(_answered_id(one.id) for one in asked if one.id is not UNSET)
        line = self._batch_with_tokens(line)
        if key:
            self._add(key, Asked(line, "", _longest([timeout_of(one.params) for one in asked])))
        return line, bool(key)

    def _add(self, key: Key, asked: Asked) -> None:
        with self._lock:
            self._asked.setdefault(key, deque()).append(asked)

    def _batch_with_tokens(self, line: bytes) -> bytes:
        members = [bytes(member) for member in _client_batch(line)]
        given = [self._with_token(member, _read(member)) for member in members]
        return line if given == members else b"[" + b",".join(given) + b"]"

    def _take_cancel(self, line: bytes) -> None:
        with contextlib.suppress(KeyError, TypeError, *_NOT_JSON), self._lock:
            id = msgspec.json.decode(line)["params"]["id"]
            if type(id) not in (int, str):  # true and 1.0 would find 1
                return
            for asked in self._asked.get(id, ()):
                asked.cancelled = line

    def _with_token(self, line: bytes, asked: _ClientLine) -> bytes:
        if asked.id is UNSET or asked.id is None or asked.method not in self.writes:
            return line
        try:
            message = msgspec.json.decode(line)
        except _NOT_JSON:
            return line  # refused, under its id
        params = message.setdefault("params", {})
        if not isinstance(params, dict) or params.get("dry_run"):
            return line
        if params.get("client_token") is not None:
            return line
        self._tokens += 1
        params["client_token"] = f"{self._token}-{self._tokens}"
        return msgspec.json.encode(message)

    # ----------------------------------------------------------------- from the owner

    def from_owner(self, line: bytes) -> list[bytes]:
        """What the client gets of the line: it, another index in it, or nothing."""
        with self._lock:
            if line[:1] == b"[":
                return self._settled(line, tuple(answer.id for answer in _owner_batch(line)))
            read = _owner_line(line)
            if read.params is UNSET:
                return self._settled(line, None if read.id is UNSET else read.id)
            if read.params.request_id is None:
                return self._of_the_process(line, read.params)
            asked = self._asked.get(read.params.request_id)
            if not asked:
                return [line]
            return [] if asked[0].given_up else asked[0].take_event(line, read.params)

    def _of_the_process(self, line: bytes, params: _Params) -> list[bytes]:
        """`ready` comes once, whichever owner sends it."""
        if params.type != "ready":
            return [line]
        self._known_seq = max(self._known_seq, params.seq)
        before, self._was_ready = self._was_ready, True
        return [] if before else [line]

    def _settled(self, line: bytes, key: Key) -> list[bytes]:
        waiting = self._asked.get(key)
        if not waiting:
            return [line]
        asked = waiting.popleft()
        if not waiting:
            del self._asked[key]
        return [] if asked.given_up else [line]

    # -------------------------------------------------------------- between two owners

    def forget(self) -> None:
        """What the owner has not answered and was given up: no other will answer it."""
        with self._lock:
            self._asked = {
                key: deque(left)
                for key, waiting in self._asked.items()
                if (left := [asked for asked in waiting if not asked.given_up])
            }

    def to_ask_again(self) -> list[bytes]:
        """The lines for the next owner, in the order in which each id was first used."""
        self.forget()
        with self._lock:
            for asked in self._all():  # some may have come before it was known what writes
                is_batch = asked.line.lstrip()[:1] == b"["
                asked.line = (
                    self._batch_with_tokens(asked.line)
                    if is_batch
                    else self._with_token(asked.line, _read(asked.line))
                )
            return [
                line
                for asked in self._all()
                for line in (asked.asked_again(self._known_seq), asked.cancelled)
                if line
            ]

    def take(self) -> list[bytes]:
        """The lines, which are another's to answer from now on."""
        with self._lock:
            lines = [asked.line for asked in self._all() if not asked.given_up]
            self._asked.clear()
        return lines

    # --------------------------------------------------- when the owner does not answer

    def due(self) -> list[tuple[Key, Asked]]:
        """Gives up what has had its time."""
        return self._give_up(only_due=True)

    def give_up(self) -> list[tuple[Key, Asked]]:
        """Gives up everything."""
        return self._give_up(only_due=False)

    def _give_up(self, *, only_due: bool) -> list[tuple[Key, Asked]]:
        with self._lock:
            given = [
                (key, asked)
                for key, waiting in self._asked.items()
                for asked in waiting
                if (asked.is_due if only_due else not asked.given_up)
            ]
            for _, asked in given:
                asked.given_up = True
        return given


def _members(line: bytes) -> list[bytes]:
    """The messages of a line, which may be a batch."""
    if line.lstrip()[:1] != b"[":
        return [line]
    with contextlib.suppress(*_NOT_JSON):
        return [bytes(member) for member in _client_batch(line)]
    return []


def _read(line: bytes | msgspec.Raw) -> _ClientLine:
    """What the owner refuses has no method here, and the id under which it is refused.

    An id that the owner does not find must not be found here: nobody would ever answer it.
    """
    value: Any = None
    try:
        return _client_line(line)
    except msgspec.ValidationError:
        with contextlib.suppress(*_NOT_JSON):
            value = msgspec.json.decode(line)
    except _NOT_JSON:
        pass
    id = value.get("id") if isinstance(value, dict) else None
    return _ClientLine(jsonrpc="2.0", method="", id=id if type(id) in (int, str) else None)


def _answered_id(id: int | str | UnsetType | None) -> int | str | None:
    """The id under which the owner answers; None for one that it refuses."""
    if id is UNSET or (isinstance(id, str) and len(id) > MAX_ID):
        return None
    return id


def _longest(timeouts: list[int | None]) -> int | None:
    """A batch is answered as a whole: None as soon as one member may take for ever."""
    given = [timeout for timeout in timeouts if timeout is not None]
    return max(given) if given and len(given) == len(timeouts) else None
