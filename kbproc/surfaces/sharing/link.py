"""Reaching the process that owns a store.

Owns: connecting to the owner, the first line in each direction, whole lines after it,
and taking the lease where nobody listens.
Refuses to know: what is said after the first lines, and how long one waits (waiting.py).
Light: an attached process imports no more.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import stat
import struct
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct

from kbproc import __version__
from kbproc.base.errors import KbprocError
from kbproc.base.paths import printable
from kbproc.base.values import as_json, decoder
from kbproc.log.lease import FileLease, Lease
from kbproc.settings.config import MAX_IN_FLIGHT, SCOPES, Config
from kbproc.sharing.waiting import TICK_SECONDS, Waiting
from kbproc.store.folder import check_links, is_read_only, take_folder

SOCKET = "kbproc.sock"
SHARE = 1  # the protocol between processes; no other number is understood
HELLO_BYTES = 1 << 16
_MAX_LINE_BYTES = 1 << 30  # an answer of any size may be printed
_PAUSE = 0.01
_BLOCK = 1 << 16

# Called again and again while one waits; it ends the waiting by raising.
Check = Callable[[], None]


class Hello(Struct, frozen=True, kw_only=True):
    """A client and its limits; relative paths mean `cwd`.

    `folder`: the identity of the store's folder as the client has found it; see `folder_number`.
    `odd_cwd` and `odd_root`: the bytes of a path that is not UTF-8, which JSON only spells.
    """

    share: int
    version: str
    surface: str
    folder: str = ""
    cwd: str
    actor: str
    kb: str
    scopes: list[str]
    root: str | None = None
    max_line_bytes: int
    max_in_flight: int
    allow_private_addresses: bool = False
    named_by: str | None = None  # what said that `actor` is an agent's, which must be there
    scoped: bool = False  # somebody said which scopes it has
    is_self_named: bool = False  # `actor` is the client's own name, which means no agent
    profile: str | None = None
    odd_cwd: bytes | None = None
    odd_root: bytes | None = None


class Welcome(Struct, frozen=True, kw_only=True):
    """The owner's answer to a hello; `error` says why it is not `ok`.

    `writes`: methods that must carry a token, so that they happen once, whichever owner
    answers them. `reads`: methods that do nothing but answer.
    """

    share: int
    ok: bool
    pid: int = 0
    writes: list[str] = []
    reads: list[str] = []
    error: dict[str, Any] | None = None


decode_hello = decoder(Hello).decode
_decode_welcome = decoder(Welcome).decode


class Gone(Exception):
    """The owner ended or died; another will take its place."""


def hello(config: Config, cwd: Path) -> Hello:
    """What a command of this version says of itself; `serve` says more (serving.py)."""
    return Hello(
        share=SHARE,
        version=__version__,
        surface="call",
        folder=folder_number(config.store),
        cwd=str(cwd),
        odd_cwd=odd_bytes(cwd),
        actor=config.actor,
        kb=config.kb,
        scopes=sorted(SCOPES),
        max_line_bytes=_MAX_LINE_BYTES,
        max_in_flight=MAX_IN_FLIGHT,
        named_by=config.agent_named_by,
        profile=config.profile,
    )


def odd_bytes(path: Path) -> bytes | None:
    """The bytes of a path that is not UTF-8."""
    return None if printable(path) == str(path) else os.fsencode(path)


def folder_number(store: Path) -> str:
    """What a folder has in common with itself alone, also where it is mounted elsewhere.

    "" for what is not a folder: a store may be made there later.
    """
    with contextlib.suppress(OSError):
        found = store.stat()
        return str(found.st_ino) if stat.S_ISDIR(found.st_mode) else ""
    return ""


def connect(store: Path) -> socket.socket | None:
    """A connection to the owner; None if nobody listens.

    Raises store.locked if the owner is another user's: it would let nobody in.
    """
    connection = next(filter(None, map(connect_to, _addresses(store))), None)
    if connection is not None and not _is_ours(connection):
        connection.close()
        raise KbprocError(
            "store.locked",
            f"The store {store} is open in a process of another user.",
            hint="Use the store as that user, or end that process first.",
        )
    return connection


def _addresses(store: Path) -> Iterator[Path]:
    """Where the owner of this very folder may listen, whatever name the folder has."""
    inside = store / SOCKET
    yield inside
    announced = FileLease(store).holder().address
    if announced is not None and announced != inside:
        yield announced


def _is_ours(connection: socket.socket) -> bool:
    """True, too, for an owner that has just gone: its end is noticed soon enough."""
    try:
        return peer(connection).uid == os.getuid()
    except OSError:
        return True


def connect_to(path: Path) -> socket.socket | None:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        found = path.lstat()
        if not stat.S_ISSOCK(found.st_mode) or found.st_nlink > 1:  # a link of another store's
            raise FileNotFoundError
        connection.connect(str(path))
    except OSError:
        connection.close()
        return None
    return connection


def reach(store: Path, pid: int, check: Check) -> socket.socket | Lease | None:
    """A connection to the owner, or the lease, with which this process may be the owner.

    None: the store is read-only, and every process opens it for itself.
    While another process holds the lease and does not listen, `check` is called again and
    again, and may raise. Raises store.io.
    """
    while True:
        connection = connect(store)
        if connection is not None:
            return connection
        check_links(store)
        if is_read_only(store):
            return None
        try:
            return take_folder(store, pid)
        except KbprocError as error:
            if error.type != "store.locked":
                raise
        check()
        time.sleep(_PAUSE)


def greet(connection: socket.socket, hello: Hello, check: Check) -> tuple[Welcome, bytes]:
    """The owner's welcome, and the bytes that came after it.

    Raises Gone, and what the owner refused with or `check` raises; then the connection is
    closed.
    """
    try:
        send(connection, as_json(msgspec.to_builtins(hello)) + b"\n", check)
        line, rest = first_line(connection, check)
        if not line:
            raise Gone
        welcome = _decode_welcome(line)
        if not welcome.ok:
            raise refusal(welcome.error or {})
    except BaseException:
        connection.close()
        raise
    return welcome, rest


def send(connection: socket.socket, data: bytes, check: Check) -> None:
    """All of `data`; `check` is called while the other side reads nothing, and may raise.

    Raises Gone.
    """
    rest = memoryview(data)
    while rest:
        _wait(connection, select.POLLOUT, check)
        try:
            rest = rest[connection.send(rest, socket.MSG_DONTWAIT) :]
        except BlockingIOError:
            continue
        except OSError as error:
            raise Gone from error


def receive(connection: socket.socket, check: Check, most: int = _BLOCK) -> bytes:
    """The next bytes, none at the end; `check` is called while none come, and may raise.

    Raises Gone.
    """
    _wait(connection, select.POLLIN, check)
    try:
        return connection.recv(most)
    except OSError as error:
        raise Gone from error


def _wait(connection: socket.socket, event: int, check: Check) -> None:
    poll = select.poll()
    poll.register(connection, event)
    while not poll.poll(TICK_SECONDS * 1000):
        check()


def first_line(connection: socket.socket, check: Check) -> tuple[bytes, bytes]:
    """The line without its newline, and what came after it.

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


def peer_pid(connection: socket.socket) -> int:
    """0 where it has gone, or is not told."""
    with contextlib.suppress(OSError):
        return peer(connection).pid
    return 0


class Link:
    """A connection to an owner that has let this process in. Any method may raise Gone.

    `waiting` says for how long the owner may keep silent; a method raises what that raises.
    """

    def __init__(self, connection: socket.socket, hello: Hello, waiting: Waiting) -> None:
        """Raises what the owner refuses with."""
        self._socket = connection
        self._pid = peer_pid(connection)
        self.waiting = waiting
        self.welcome, rest = greet(connection, hello, self._check)
        self._parts = [rest]

    def _check(self) -> None:
        self.waiting.for_answer(self._pid)

    def send(self, message: dict[str, Any]) -> None:
        send(self._socket, msgspec.json.encode(message) + b"\n", self._check)

    def line(self) -> bytes:
        """The next line, without its newline."""
        while b"\n" not in self._parts[-1]:
            block = receive(self._socket, self._check)
            if not block:
                raise Gone
            self._parts.append(block)
        line, _, rest = b"".join(self._parts).partition(b"\n")
        self._parts = [rest]
        return line

    def close(self) -> None:
        self._socket.close()


def refusal(error: dict[str, Any]) -> KbprocError:
    """The error that another process has put into JSON."""
    return KbprocError(
        error.get("type", "internal.error"),
        error.get("message", "The owner of the store refused the connection."),
        hint=error.get("hint"),
        field=error.get("field"),
        valid_values=error.get("valid_values"),
        detail=error.get("detail", {}),
    )


class Peer(NamedTuple):
    """The process at the other end; `pid` is 0 where the system does not tell it."""

    pid: int
    uid: int


def peer(connection: socket.socket) -> Peer:
    """Of a connection to a listening socket: the process that has begun to listen there.

    Raises OSError.
    """
    if sys.platform == "linux":
        ucred = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        pid, uid, _ = struct.unpack("3i", ucred)
        return Peer(pid, uid)
    # macOS: struct xucred of LOCAL_PEERCRED begins with its version and the uid; LOCAL_PEERPID.
    xucred = connection.getsockopt(0, 1, 76)
    pid = connection.getsockopt(0, 2)
    return Peer(pid, struct.unpack_from("2I", xucred)[1])
