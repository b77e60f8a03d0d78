"""An attached `kbproc serve`: its client's lines to the owner, and the owner's back.

Owns: what is in flight, so that it can be asked again; tokens for writes that have
none; one unbroken stream for the client, whoever owns the store; and taking over
when the owner ends.
Refuses to know: what requests mean. As long as another process owns the store,
nothing heavy is imported here.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET, Struct, UnsetType

from kbproc.base.errors import KbprocError
from kbproc.settings.config import MAX_ID
from kbproc.sharing import reach as share
from kbproc.sharing.reach import Gone, Hello
from kbproc.wire.lines import Lines, Stop, skipped
from kbproc.wire.outbox import Outbox

if TYPE_CHECKING:
    from kbproc.sharing.owner import Owner

_BLOCK = 1 << 16
_END_SECONDS = 12.0
_SUBSCRIBE = "events.subscribe"


class _Asked(Struct):
    """What of a client's line must be known."""

    id: int | str | UnsetType | None = UNSET
    method: str = ""
    params: msgspec.Raw = msgspec.Raw(b"{}")


class _Item(Struct):
    seq: int = 0


class _Params(Struct):
    type: str = ""
    request_id: int | str | None = None
    index: int = 0
    item: msgspec.Raw = msgspec.Raw(b"null")
    seq: int = 0


class _Said(Struct):
    """What of an owner's line must be known."""

    id: int | str | UnsetType | None = UNSET
    params: _Params | UnsetType = UNSET


_asked = msgspec.json.Decoder(_Asked).decode
_said = msgspec.json.Decoder(_Said).decode
_batch = msgspec.json.Decoder(list[_Said]).decode
_item = msgspec.json.Decoder(_Item).decode
_Key = int | str | tuple[Any, ...] | None


class Request:
    """One line that waits for its answer, and what of its stream has been passed on."""

    def __init__(self, line: bytes, method: str) -> None:
        self.line = line
        self.method = method
        self.cancelled: bytes | None = None
        self.next_index = 0
        self.items = 0
        self.pass_over = 0
        self.again = False
        self.seq = 0

    def asked_again(self, known: int) -> bytes:
        """The line for another owner; `known`: the last position that was heard of."""
        self.again, self.pass_over = self.next_index > 0, self.items
        if self.method != _SUBSCRIBE:
            return self.line
        self.pass_over = 0
        message = msgspec.json.decode(self.line)
        params = message.setdefault("params", {})
        if not isinstance(params, dict):
            return self.line
        after = params.get("after_seq")
        params["after_seq"] = max(self.seq, after if isinstance(after, int) else known)
        return msgspec.json.encode(message)


class Relay:
    """The client on one side, whoever owns the store on the other."""

    def __init__(
        self,
        outbox: Outbox,
        hello: Hello,
        *,
        reach: Callable[[], socket.socket | int],
        own: Callable[[int], Owner],
    ) -> None:
        """`reach` finds the owner or takes the lock; `own` opens the store under it."""
        self._outbox = outbox
        self._hello = hello
        self._reach = reach
        self._own = own
        self._owner: Owner | None = None
        self._link: socket.socket | None = None
        self._sending = threading.Lock()
        self._book = threading.Lock()
        self._in_flight: dict[_Key, deque[Request]] = {}
        self._writes: frozenset[str] = frozenset()
        self._tokens = 0
        self._name = os.urandom(8).hex()
        self._known_seq = 0
        self._was_ready = False
        self._ending = False
        self._ended = threading.Event()
        self._asked_again = threading.Event()
        self._asked_again.set()
        self._failed: KbprocError | None = None

    def run(self, first: socket.socket, lines: Lines) -> int:
        """Until the client's last line or a signal; returns the exit code.

        Raises what the first owner refused with; nothing has been read then.
        """
        try:
            rest = self._attach(first)
        except Gone:
            rest = self._attached_anew()
        threading.Thread(target=self._listen, args=(rest,), name="relay", daemon=True).start()
        code = 0
        try:
            for line in lines:
                self._outbox.wait_until_not_full(lines.ended)
                self._send(skipped(line) if isinstance(line, int) else line)
        except Stop as stop:
            code = stop.exit_code
        with self._sending:
            self._ending = True
            self._shut()
        self._ended.wait(_END_SECONDS)
        self._outbox.flush(1.0)
        if self._owner is not None:
            self._owner.close()
        return code

    # ------------------------------------------------------------------ to the owner

    def _send(self, line: bytes) -> None:
        """After whatever has to be asked again: writes commit in the order they came."""
        while True:
            self._asked_again.wait()
            with self._sending:
                if self._asked_again.is_set():
                    self._push(self._remember(line))
                    break
        if self._failed is not None:
            self._fail(self._failed)

    def _push(self, line: bytes) -> None:
        if self._link is not None:
            with contextlib.suppress(OSError):  # whoever listens notices the end
                self._link.sendall(line + b"\n")

    def _remember(self, line: bytes) -> bytes:
        """The line as it goes out: with a token, if it writes and has none."""
        try:
            if line.lstrip()[:1] == b"[":
                return self._remember_batch(line)
            asked = _asked(line)
            if asked.method == "$/cancel":
                self._note_cancel(line)
            if asked.id is UNSET or asked.id is None:
                return line
            line = self._with_token(line, asked.method)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return line  # it is refused, under an id that can't be told from here
        if isinstance(asked.id, int) or len(asked.id) <= MAX_ID:
            self._note(asked.id, line, asked.method)
        return line

    def _remember_batch(self, line: bytes) -> bytes:
        members = msgspec.json.decode(line, type=list[msgspec.Raw])
        asked = [_asked(member) for member in members]
        made = [
            self._with_token(bytes(member), one.method)
            for member, one in zip(members, asked, strict=True)
        ]
        line = b"[" + b",".join(made) + b"]"
        key = tuple(one.id for one in asked if one.id is not UNSET)
        if key:
            self._note(key, line, "")
        return line

    def _note(self, key: _Key, line: bytes, method: str) -> None:
        with self._book:
            request = Request(line, method)
            self._in_flight.setdefault(key, deque()).append(request)

    def _note_cancel(self, line: bytes) -> None:
        with contextlib.suppress(KeyError, TypeError), self._book:
            id = msgspec.json.decode(line)["params"]["id"]
            for request in self._in_flight.get(id, ()):
                request.cancelled = line

    def _with_token(self, line: bytes, method: str) -> bytes:
        if method not in self._writes:
            return line
        message = msgspec.json.decode(line)
        params = message.setdefault("params", {})
        if not isinstance(params, dict) or "client_token" in params or params.get("dry_run"):
            return line
        self._tokens += 1
        params["client_token"] = f"attached-{self._name}-{self._tokens}"
        return msgspec.json.encode(message)

    # ---------------------------------------------------------------- from the owner

    def _listen(self, rest: bytes) -> None:
        while True:
            self._pass_on(rest)
            if self._ending and not self._in_flight:
                break
            try:
                rest = self._take_over()
            except KbprocError as error:
                self._failed = error
                self._asked_again.set()
                self._fail(error)
                break
        self._ended.set()

    def _pass_on(self, data: bytes) -> None:
        """Whole lines only: one that the owner's death has torn was never answered."""
        link = self._link
        while link is not None:
            *lines, data = data.split(b"\n")
            for line in lines:
                self._outbox_line(line)
            self._outbox.wait_until_not_full(lambda: self._ending)
            try:
                block = link.recv(_BLOCK)
            except OSError:
                return
            if not block:
                return
            data += block

    def _outbox_line(self, line: bytes) -> None:
        with self._book:
            passed = self._seen(line)
        for made in passed:
            self._outbox.send(made)

    def _seen(self, line: bytes) -> list[bytes]:
        """What the client gets of it: the line, another number on it, or nothing."""
        if line[:1] == b"[":
            self._settle(tuple(said.id for said in _batch(line)))
            return [line]
        said = _said(line)
        if said.params is UNSET:
            self._settle(None if said.id is UNSET else said.id)
            return [line]
        params = said.params
        if params.request_id is None:
            return self._of_the_process(line, params)
        waiting = self._in_flight.get(params.request_id)
        return [line] if not waiting else _in_stream(waiting[0], line, params)

    def _of_the_process(self, line: bytes, params: _Params) -> list[bytes]:
        """`ready` is said once, whoever says it."""
        if params.type != "ready":
            return [line]
        self._known_seq = max(self._known_seq, params.seq)
        said, self._was_ready = self._was_ready, True
        return [] if said else [line]

    def _settle(self, key: _Key) -> None:
        waiting = self._in_flight.get(key)
        if waiting:
            waiting.popleft()
            if not waiting:
                del self._in_flight[key]

    # --------------------------------------------------------------------- taking over

    def _attach(self, link: socket.socket) -> bytes:
        welcome, rest = share.greet(link, self._hello)
        self._writes = frozenset(welcome.writes)
        self._link = link
        return rest

    def _take_over(self) -> bytes:
        """Finds the next owner, or becomes it, and asks again what was not answered.

        Raises KbprocError if the store can't be had any more.
        """
        with self._sending:
            self._asked_again.clear()
            if self._link is not None:
                self._link.close()
            rest = self._attached_anew()
            with self._book:
                again = [
                    line
                    for waiting in self._in_flight.values()
                    for request in waiting
                    for line in (request.asked_again(self._known_seq), request.cancelled)
                    if line
                ]
            # Another thread: the owner may not read on before its answers are read.
            threading.Thread(target=self._ask_again, args=(again,), daemon=True).start()
        return rest

    def _attached_anew(self) -> bytes:
        """Owners may come and go while one is looked for."""
        while True:
            try:
                return self._attach(self._reached())
            except Gone:
                continue

    def _ask_again(self, lines: list[bytes]) -> None:
        with self._sending:
            for line in lines:
                self._push(line)
            if self._ending:
                self._shut()
            self._asked_again.set()

    def _reached(self) -> socket.socket:
        """Raises Gone, KbprocError."""
        found = self._reach()
        if isinstance(found, socket.socket):
            return found
        self._owner = self._own(found)
        link = share.connect_to(self._owner.path)
        if link is None:
            raise Gone
        return link

    def _shut(self) -> None:
        if self._link is not None:
            with contextlib.suppress(OSError):
                self._link.shutdown(socket.SHUT_WR)

    def _fail(self, error: KbprocError) -> None:
        """Nobody can open the store: every request is told so."""
        from kbproc.wire.messages import Wire

        wire = Wire(self._hello.max_line_bytes)
        with self._book:
            keys = [key for key, waiting in self._in_flight.items() for _ in waiting]
            self._in_flight.clear()
        for key in keys:
            if isinstance(key, tuple):
                self._outbox.send(b"[" + b",".join(wire.error(id, error) for id in key) + b"]")
            else:
                self._outbox.send(wire.error(key, error))


def _in_stream(request: Request, line: bytes, params: _Params) -> list[bytes]:
    """An event of a stream that another owner may have begun."""
    if params.type == "item":
        if request.pass_over:
            request.pass_over -= 1
            return []
        request.items += 1
        if request.method == _SUBSCRIBE:
            request.seq = max(request.seq, _item(params.item).seq)
    if not request.again and params.index == request.next_index:
        request.next_index += 1
        return [line]
    if params.type == "init":
        warning = {
            "type": "warning",
            "request_id": params.request_id,
            "index": request.next_index,
            "message": "The process that owned the store has ended; another goes on.",
        }
        request.next_index += 1
        return [_event(warning)]
    fields = msgspec.json.decode(line)["params"]
    fields["index"] = request.next_index
    request.next_index += 1
    return [_event(fields)]


def _event(params: dict[str, Any]) -> bytes:
    return msgspec.json.encode({"jsonrpc": "2.0", "method": "event", "params": params})
