"""Reaching the process that owns a store.

Owns: connecting to the owner, the first line in each direction, whole lines after it,
and taking the lease where nobody listens.
Refuses to know: what is said after the first lines. Light: an attached process imports
no more.
"""

from __future__ import annotations

import os
import socket
import struct
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from kbproc import __version__
from kbproc.base.errors import KbprocError
from kbproc.base.values import decoder
from kbproc.log.lease import FileLease, Lease
from kbproc.settings.config import MAX_IN_FLIGHT, SCOPES, Config
from kbproc.store.folder import is_read_only, take_folder

SHARE = 1  # the protocol between processes; no other number is understood
HELLO_BYTES = 1 << 16
_MAX_LINE_BYTES = 1 << 30  # an answer of any size may be printed
_PATIENCE = 30.0  # for an owner that has named its socket and does not answer: it is ending
_SHORT_PATIENCE = 2.0  # for one that has named none, which every kbproc does at once
_PAUSE = 0.01
_BLOCK = 1 << 16


class Hello(Struct, frozen=True, kw_only=True):
    """A client and its limits; relative paths mean `cwd`."""

    share: int
    version: str
    surface: str
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
        cwd=str(cwd),
        actor=config.actor,
        kb=config.kb,
        scopes=sorted(SCOPES),
        max_line_bytes=_MAX_LINE_BYTES,
        max_in_flight=MAX_IN_FLIGHT,
        named_by=config.agent_named_by,
    )


def connect(store: Path) -> socket.socket | None:
    """A connection to the owner; None if nobody listens.

    Raises store.locked if the owner is another user's: it would let nobody in.
    """
    path = FileLease(store).holder().address
    connection = None if path is None else connect_to(path)
    if connection is not None and not _is_ours(connection):
        connection.close()
        raise KbprocError(
            "store.locked",
            f"The store {store} is open in a process of another user.",
            hint="Use the store as that user, or end that process first.",
        )
    return connection


def _is_ours(connection: socket.socket) -> bool:
    """True, too, for an owner that has just gone: its end is noticed soon enough."""
    try:
        return peer_uid(connection) == os.getuid()
    except OSError:
        return True


def connect_to(path: Path) -> socket.socket | None:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.connect(str(path))
    except OSError:
        connection.close()
        return None
    return connection


def reach(store: Path, pid: int) -> socket.socket | Lease | None:
    """A connection to the owner, or the lease, with which this process may be the owner.

    None: the store is read-only, and every process opens it for itself.
    Raises store.io; store.locked if somebody holds the lease for long and does not listen.
    """
    known, since = None, 0.0
    while True:
        connection = connect(store)
        if connection is not None:
            return connection
        if is_read_only(store):
            return None
        try:
            return take_folder(store, pid)
        except KbprocError as error:
            found, now = FileLease(store).holder(), time.monotonic()
            if found != known:  # each owner gets its time
                known, since = found, now
            patience = _PATIENCE if found.address else _SHORT_PATIENCE
            if error.type != "store.locked" or now > since + patience:
                raise
        time.sleep(_PAUSE)


def greet(connection: socket.socket, hello: Hello) -> tuple[Welcome, bytes]:
    """The owner's welcome, and the bytes that came after it.

    Raises Gone, and what the owner refused with; then the connection is closed.
    """
    try:
        return _greeted(connection, hello)
    except BaseException:
        connection.close()
        raise


def _greeted(connection: socket.socket, hello: Hello) -> tuple[Welcome, bytes]:
    try:
        connection.sendall(msgspec.json.encode(hello) + b"\n")
        line, rest = first_line(connection)
    except OSError as error:
        raise Gone from error
    if not line:
        raise Gone
    welcome = _decode_welcome(line)
    if not welcome.ok:
        raise _refusal(welcome.error or {})
    return welcome, rest


def first_line(connection: socket.socket) -> tuple[bytes, bytes]:
    """The line without its newline, and what came after it.

    Both are empty at the end of the connection, and after too many bytes.
    """
    data = b""
    while b"\n" not in data:
        block = connection.recv(HELLO_BYTES)
        data += block
        if not block or len(data) > HELLO_BYTES:
            return b"", b""
    line, _, rest = data.partition(b"\n")
    return line, rest


class Link:
    """A connection to an owner that has let this process in. Any method may raise Gone."""

    def __init__(self, connection: socket.socket, hello: Hello) -> None:
        """Raises what the owner refuses with."""
        self._socket = connection
        self.welcome, rest = greet(connection, hello)
        self._parts = [rest]

    def send(self, message: dict[str, Any]) -> None:
        try:
            self._socket.sendall(msgspec.json.encode(message) + b"\n")
        except OSError as error:
            raise Gone from error

    def line(self) -> bytes:
        """The next line, without its newline."""
        while b"\n" not in self._parts[-1]:
            try:
                block = self._socket.recv(_BLOCK)
            except OSError as error:
                raise Gone from error
            if not block:
                raise Gone
            self._parts.append(block)
        line, _, rest = b"".join(self._parts).partition(b"\n")
        self._parts = [rest]
        return line

    def close(self) -> None:
        self._socket.close()


def _refusal(error: dict[str, Any]) -> KbprocError:
    return KbprocError(
        error.get("type", "internal.error"),
        error.get("message", "The owner of the store refused the connection."),
        hint=error.get("hint"),
        field=error.get("field"),
        valid_values=error.get("valid_values"),
        detail=error.get("detail", {}),
    )


def peer_uid(connection: socket.socket) -> int:
    """The user at the other end. Raises OSError."""
    if sys.platform == "linux":
        ucred = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        return int(struct.unpack("3i", ucred)[1])
    # macOS: struct xucred of LOCAL_PEERCRED begins with its version and the uid.
    xucred = connection.getsockopt(0, 1, 76)
    return int(struct.unpack_from("2I", xucred)[1])
