"""What the client of an attached process has asked and not been answered yet.

Owns: the requests that the next owner is asked again if this one ends, the tokens of
writes that have none, and one unbroken stream of events for each request.
Refuses to know: sockets and threads, and who owns the store. Light: an attached process
imports no more.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections import deque
from typing import Any

import msgspec
from msgspec import UNSET, Struct, UnsetType

from kbproc.base.values import decoder
from kbproc.settings.config import MAX_ID

_SUBSCRIBE = "events.subscribe"
_NEXT_OWNER = "The process that owned the store has ended; another goes on."


class _ClientLine(Struct):
    """What of a client's line must be known."""

    id: int | str | UnsetType | None = UNSET
    method: str = ""


class _Item(Struct):
    seq: int = 0


class _Params(Struct):
    type: str = ""
    request_id: int | str | None = None
    index: int = 0
    item: msgspec.Raw = msgspec.Raw(b"null")
    seq: int = 0


class _OwnerLine(Struct):
    """What of an owner's line must be known."""

    id: int | str | UnsetType | None = UNSET
    params: _Params | UnsetType = UNSET


_client_line = decoder(_ClientLine).decode
_owner_line = decoder(_OwnerLine).decode
_owner_batch = decoder(list[_OwnerLine]).decode
_item = decoder(_Item).decode

# A request's id, or the ids of a batch's requests.
Key = int | str | tuple[Any, ...] | None


class Asked:
    """One line that waits for its answer, and what of its stream the client has got."""

    def __init__(self, line: bytes, method: str) -> None:
        self.line = line
        self.method = method
        self.cancelled: bytes | None = None
        self.seq = 0
        self._next_index = 0
        self._items = 0
        self._pass_over = 0
        self._again = False

    def asked_again(self, known_seq: int) -> bytes:
        """The line for the next owner; `known_seq`: the last position that was heard of."""
        self._again, self._pass_over = self._next_index > 0, self._items
        if self.method != _SUBSCRIBE:
            return self.line
        self._pass_over = 0
        message = msgspec.json.decode(self.line)
        params = message.setdefault("params", {})
        if not isinstance(params, dict):
            return self.line
        after = params.get("after_seq")
        params["after_seq"] = max(self.seq, after if isinstance(after, int) else known_seq)
        return msgspec.json.encode(message)

    def take_event(self, line: bytes, params: _Params) -> list[bytes]:
        """What the client gets of an event, whose stream another owner may have begun."""
        if params.type == "item":
            if self._pass_over:
                self._pass_over -= 1
                return []
            self._items += 1
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
        self._token = f"attached-{os.urandom(8).hex()}"
        self._known_seq = 0
        self._was_ready = False

    def __bool__(self) -> bool:
        return bool(self._asked)

    # ---------------------------------------------------------------- from the client

    def from_client(self, line: bytes) -> bytes:
        """The line as the owner gets it: with a token, if it writes and has none."""
        try:
            if line.lstrip()[:1] == b"[":
                return self._take_batch(line)
            asked = _client_line(line)
            if asked.method == "$/cancel":
                self._take_cancel(line)
            if asked.id is UNSET or asked.id is None:
                return line
            line = self._with_token(line, asked.method)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return line  # the owner refuses such a line, under an id that is not known here
        if isinstance(asked.id, int) or len(asked.id) <= MAX_ID:
            self._add(asked.id, line, asked.method)
        return line

    def _take_batch(self, line: bytes) -> bytes:
        members = msgspec.json.decode(line, type=list[msgspec.Raw])
        asked = [_client_line(member) for member in members]
        given = [
            self._with_token(bytes(member), one.method)
            for member, one in zip(members, asked, strict=True)
        ]
        line = b"[" + b",".join(given) + b"]"
        key = tuple(one.id for one in asked if one.id is not UNSET)
        if key:
            self._add(key, line, "")
        return line

    def _add(self, key: Key, line: bytes, method: str) -> None:
        with self._lock:
            self._asked.setdefault(key, deque()).append(Asked(line, method))

    def _take_cancel(self, line: bytes) -> None:
        with contextlib.suppress(KeyError, TypeError), self._lock:
            id = msgspec.json.decode(line)["params"]["id"]
            for asked in self._asked.get(id, ()):
                asked.cancelled = line

    def _with_token(self, line: bytes, method: str) -> bytes:
        if method not in self.writes:
            return line
        message = msgspec.json.decode(line)
        params = message.setdefault("params", {})
        if not isinstance(params, dict) or "client_token" in params or params.get("dry_run"):
            return line
        self._tokens += 1
        params["client_token"] = f"{self._token}-{self._tokens}"
        return msgspec.json.encode(message)

    # ----------------------------------------------------------------- from the owner

    def from_owner(self, line: bytes) -> list[bytes]:
        """What the client gets of the line: it, another index in it, or nothing."""
        with self._lock:
            if line[:1] == b"[":
                self._settle(tuple(answer.id for answer in _owner_batch(line)))
                return [line]
            read = _owner_line(line)
            if read.params is UNSET:
                self._settle(None if read.id is UNSET else read.id)
                return [line]
            if read.params.request_id is None:
                return self._of_the_process(line, read.params)
            asked = self._asked.get(read.params.request_id)
            return asked[0].take_event(line, read.params) if asked else [line]

    def _of_the_process(self, line: bytes, params: _Params) -> list[bytes]:
        """`ready` comes once, whichever owner sends it."""
        if params.type != "ready":
            return [line]
        self._known_seq = max(self._known_seq, params.seq)
        before, self._was_ready = self._was_ready, True
        return [] if before else [line]

    def _settle(self, key: Key) -> None:
        asked = self._asked.get(key)
        if asked:
            asked.popleft()
            if not asked:
                del self._asked[key]

    # -------------------------------------------------------------- between two owners

    def to_ask_again(self) -> list[bytes]:
        """The lines for the next owner, in the order in which each id was first used."""
        with self._lock:
            return [
                line
                for waiting in self._asked.values()
                for asked in waiting
                for line in (asked.asked_again(self._known_seq), asked.cancelled)
                if line
            ]

    def give_up(self) -> list[Key]:
        """Forgets every request; returns their keys."""
        with self._lock:
            keys = [key for key, waiting in self._asked.items() for _ in waiting]
            self._asked.clear()
        return keys
