"""Holds the link between the owner of a store and a process that asks it.

A link is a connected socket. The asking process sends a hello, the owner a welcome; then both
send whole lines.
"""

from __future__ import annotations

import contextlib
import os
import select
import stat
import struct
import sys
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from kbproc import __version__
from kbproc.base import sockets
from kbproc.base.errors import KbprocError
from kbproc.base.lines import LineCutter
from kbproc.base.paths import printable
from kbproc.base.settings.config import MAX_IN_FLIGHT, SCOPES, Config
from kbproc.base.values import as_json, decoder
from kbproc.client.asker import Asker
from kbproc.client.asker import cancellation as cancellation_message
from kbproc.client.in_flight import MOST_DEATHS

if TYPE_CHECKING:
    from kbproc.methods.calls import call as calls

SHARE = 1  # the protocol between processes; no other number is understood
HELLO_BYTES = 1 << 16
TICK_SECONDS = 0.25  # between two checks during a wait
# The warning where the next owner begins a stream again.
RESTART = "The process that owned the store has ended; another goes on."
_MAX_LINE_BYTES = 1 << 30  # an answer of any size may be printed
_BLOCK = 1 << 16

# An owner's last line to a client that it hands over; an owner that dies sends none.
LEAVING = b'{"share":"leaving"}'

# Called again and again during a wait, which it ends by raising.
Check = Callable[[], None]


class Gone(Exception):
    """The process at the other end has ended; another owner will take an owner's place."""


class Hello(Struct, frozen=True, kw_only=True):
    """A client and its limits; relative paths start at `cwd`.

    `folder`: the identity of the store's folder that the client sees; see `folder_number`.
    `odd_cwd` and `odd_root`: the bytes of a path that is not UTF-8, because JSON holds only text.
    """

    share: int
    version: str
    surface: str
    folder: str = ""
    cwd: str
    runtime: str
    actor: str
    kb: str
    scopes: list[str]
    root: str | None = None
    max_line_bytes: int
    max_in_flight: int
    allow_private_addresses: bool = False
    approved_addresses: list[str] = []  # private ones
    named_by: str | None = None  # the setting that names `actor` as an agent, which must exist
    scoped: bool = False  # the scopes were set explicitly
    is_self_named: bool = False  # `actor` is the client's own name, which means no agent
    profile: str | None = None
    odd_cwd: bytes | None = None
    odd_root: bytes | None = None
    awaits_approval: bool = False


class Welcome(Struct, frozen=True, kw_only=True):
    """The owner's answer to a hello; `error` says why it is not `ok`.

    `writes`: methods that must carry a token, so that they happen once, whichever owner
    answers them. `lasting`: writes that generate an answer, which goes on without a reader.
    `reads`: methods that only read.
    """

    share: int
    ok: bool
    pid: int = 0
    writes: list[str] = []
    lasting: list[str] = []
    reads: list[str] = []
    error: dict[str, Any] | None = None


decode_hello = decoder(Hello).decode
_decode_welcome = decoder(Welcome).decode


def hello(config: Config, cwd: Path) -> Hello:
    """Returns the hello of a command of this version; `serve` adds to it."""
    return Hello(
        share=SHARE,
        version=__version__,
        surface="call",
        folder=folder_number(config.store),
        cwd=str(cwd),
        odd_cwd=odd_bytes(cwd),
        runtime=printable(config.runtime),
        actor=config.actor,
        kb=config.kb,
        scopes=sorted(SCOPES),
        max_line_bytes=_MAX_LINE_BYTES,
        max_in_flight=MAX_IN_FLIGHT,
        named_by=config.agent_named_by,
        profile=config.profile,
    )


def peer_of(hello: Hello, scopes: frozenset[str], profiles: tuple[str, ...] = ()) -> calls.Peer:
    """Returns the peer of requests that a hello introduces; `scopes`: all that methods need."""
    from kbproc.methods.calls import call as calls  # not above: an attached process needs none

    return calls.Peer(
        actor=hello.actor,
        scopes=frozenset(hello.scopes) & scopes,
        cwd=_path(hello.cwd, hello.odd_cwd),
        runtime=Path(hello.runtime),
        root=None if hello.root is None else _path(hello.root, hello.odd_root),
        kb=hello.kb,
        surface=hello.surface,
        named_by=hello.named_by,
        scoped=hello.scoped,
        is_self_named=hello.is_self_named,
        profile=hello.profile,
        profiles=profiles,
        allow_private_addresses=hello.allow_private_addresses,
        approved_addresses=frozenset(hello.approved_addresses),
        awaits_approval=hello.awaits_approval,
    )


def _path(spelled: str, odd: bytes | None) -> Path:
    return Path(spelled if odd is None else os.fsdecode(odd))


def odd_bytes(path: Path) -> bytes | None:
    """Returns the bytes of a path that is not UTF-8; None for any other path."""
    return None if printable(path) == str(path) else os.fsencode(path)


def folder_number(store: Path) -> str:
    """Returns a folder's inode number, which stays the same where it is mounted elsewhere.

    Returns "" where there is no folder, because a store may be made there later.
    """
    with contextlib.suppress(OSError):
        status = store.stat()
        return str(status.st_ino) if stat.S_ISDIR(status.st_mode) else ""
    return ""


def cancellation(id: int | str) -> bytes:
    """Returns the line that cancels a request."""
    return msgspec.json.encode(cancellation_message(id))


def refusal(error: dict[str, Any]) -> KbprocError:
    """Returns the error that another process has sent as JSON."""
    retryable = error.get("retryable")
    return KbprocError(
        error.get("type", "internal.error"),
        error.get("message", "The owner of the store refused the connection."),
        hint=error.get("hint"),
        field=error.get("field"),
        valid_values=error.get("valid_values"),
        retry_after_ms=error.get("retry_after_ms"),
        detail=error.get("detail", {}),
        lasting=retryable is False,
        passing=retryable is True,
    )


def deadly(method: str) -> KbprocError:
    """Returns the error of a request that no other owner is asked; see InFlight.is_deadly."""
    return KbprocError(
        "internal.error",
        f"{MOST_DEATHS} processes that owned the store ended while they worked on "
        f"{method or 'this batch'}, so no other one is asked.",
        hint="Look at the log on stderr for why they ended, and please report it. If they were "
        "ended for another reason, ask again; if they were not, ask for less at once.",
    )


class Link:
    """The asking process's end of a link. One thread may send while another receives.

    Each `check` is called while the other end is silent or reads nothing; it may raise. Any
    method may raise Gone.
    """

    def __init__(self, connection: sockets.Socket) -> None:
        self._socket = connection
        self.pid = peer_pid(connection)
        self._lines: deque[bytes] = deque()
        self._cutter = LineCutter()
        self.is_handed_over = False  # true once the owner has said that it leaves

    def greet(self, hello: Hello, check: Check) -> Welcome:
        """Sends the hello; returns the owner's welcome.

        Raises the owner's refusal. An error closes the link.
        """
        try:
            send(self._socket, as_json(msgspec.to_builtins(hello)) + b"\n", check)
            line, rest = first_line(self._socket, check)
            if not line:
                raise Gone
            welcome = _decode_welcome(line)
            if not welcome.ok:
                raise refusal(welcome.error or {})
        except BaseException:
            self.close()
            raise
        self._take(rest)
        return welcome

    def send(self, line: bytes, check: Check) -> None:
        send(self._socket, line + b"\n", check)

    def line(self, check: Check) -> bytes:
        """Returns the next line, without its newline."""
        while not self._lines:
            self._receive(check)
        return self._lines.popleft()

    def lines(self, check: Check) -> deque[bytes]:
        """Returns the lines that have come; waits while none has."""
        while not self._lines:
            self._receive(check)
        lines, self._lines = self._lines, deque()
        return lines

    def _receive(self, check: Check) -> None:
        block = receive(self._socket, check)
        if not block:  # a line that the owner's death has cut short is dropped
            raise Gone
        self._take(block)

    def _take(self, block: bytes) -> None:
        lines = self._cutter.take(block)
        self.is_handed_over = self.is_handed_over or LEAVING in lines
        self._lines.extend(line for line in lines if line != LEAVING)

    def end(self) -> None:
        """Tells the owner that no more lines come; answers still do."""
        try:
            self._socket.shutdown(sockets.SHUT_WR)
        except OSError as error:
            raise Gone from error

    def hang_up(self) -> None:
        """Ends the link in both directions, also while other threads use it."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(sockets.SHUT_RDWR)

    def close(self) -> None:
        self._socket.close()


def converse(asker: Asker, link: Link, check: Check) -> None:
    """Sends the asker's requests over the link, and returns once all are answered.

    Raises Gone, and the errors of `check`.
    """
    asker.begin(lambda message: link.send(msgspec.json.encode(message), check))
    while len(asker):
        asker.hear(msgspec.json.decode(link.line(check)))


def send(connection: sockets.Socket, data: bytes, check: Check) -> None:
    """Sends all of `data`; calls `check` while the other end reads nothing. Raises Gone."""
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[connection.send(rest, sockets.MSG_DONTWAIT) :]
        except BlockingIOError:
            _wait(connection, select.POLLOUT, check)
        except OSError as error:
            raise Gone from error


def receive(connection: sockets.Socket, check: Check, most: int = _BLOCK) -> bytes:
    """Returns the next bytes, none at the end; calls `check` while none come. Raises Gone."""
    _wait(connection, select.POLLIN, check)
    try:
        return connection.recv(most)
    except OSError as error:
        raise Gone from error


def _wait(connection: sockets.Socket, event: int, check: Check) -> None:
    poll = select.poll()
    poll.register(connection, event)
    while not poll.poll(TICK_SECONDS * 1000):
        check()


def first_line(connection: sockets.Socket, check: Check) -> tuple[bytes, bytes]:
    """Returns the first line without its newline, and the bytes after it.

    Both are empty at the end of the connection, and after too many bytes. Raises Gone.
    """
    data = b""
    while b"\n" not in data:
        block = receive(connection, check, HELLO_BYTES)
        data += block
        if not block or len(data) > HELLO_BYTES:
            return b"", b""
    line, _, rest = data.partition(b"\n")
    return line, rest


class SocketPeer(Struct, frozen=True):
    """The process at the other end of a socket; `pid` is 0 where the system does not name it."""

    pid: int
    uid: int


def peer(connection: sockets.Socket) -> SocketPeer:
    """Returns the process at the other end; for a listening socket, the one that listens.

    Raises OSError.
    """
    if sys.platform == "linux":
        from _socket import SO_PEERCRED

        ucred = connection.getsockopt(sockets.SOL_SOCKET, SO_PEERCRED, struct.calcsize("3i"))
        pid, uid, _ = struct.unpack("3i", ucred)
        return SocketPeer(pid, uid)
    # macOS: struct xucred of LOCAL_PEERCRED begins with its version and the uid; LOCAL_PEERPID.
    xucred = connection.getsockopt(0, 1, 76)
    pid = connection.getsockopt(0, 2)
    return SocketPeer(pid, struct.unpack_from("2I", xucred)[1])


def peer_pid(connection: sockets.Socket) -> int:
    """Returns the id of the process at the other end; 0 if it has gone or is unknown."""
    with contextlib.suppress(OSError):
        return peer(connection).pid
    return 0
