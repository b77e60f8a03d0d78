"""Reaching the process that owns a store.

Owns: where the owner listens, the first line each way, and taking the lock where
nobody listens.
Refuses to know: what is said afterwards. Light: whoever attaches imports no more.
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

from kbproc.errors import KbprocError
from kbproc.readonly import is_read_only
from kbproc.storefiles import holder, take_folder

SHARE = 1  # what is spoken between processes; no other number is understood
HELLO_BYTES = 1 << 16
_LONGEST_PATH = 100  # bytes; the kernel takes 107
_PATIENCE = 30.0  # for an owner that has named its socket and does not answer: it is ending
_SHORT_PATIENCE = 2.0  # for one that has named none: whoever means to share does so at once
_PAUSE = 0.01


class Hello(Struct, frozen=True, kw_only=True):
    """Who attaches; relative paths mean `cwd`."""

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


class Welcome(Struct, frozen=True, kw_only=True):
    """`writes`: methods that must carry a token, to happen once whoever answers them."""

    share: int
    ok: bool
    pid: int = 0
    writes: list[str] = []
    error: dict[str, Any] | None = None


class Gone(Exception):
    """The owner ended or died; another will take its place."""


def socket_path(store: Path, runtime: Path) -> Path:
    """In the store, or where a path is short enough."""
    path = store / "kbproc.sock"
    if len(os.fsencode(path)) <= _LONGEST_PATH:
        return path
    return other_path(store, runtime)


def other_path(store: Path, runtime: Path) -> Path:
    """For a store whose path is too long, or whose file system has no sockets."""
    from hashlib import sha256

    runtime.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = runtime.stat()
    if found.st_uid != os.getuid():
        raise KbprocError("store.io", f"{runtime} belongs to another user.")
    runtime.chmod(0o700)
    name = sha256(os.fsencode(os.path.realpath(store))).hexdigest()[:24]
    return runtime / f"{name}.sock"


def connect(store: Path) -> socket.socket | None:
    """A connection to the owner; None if nobody listens."""
    path = holder(store)[1]
    return None if path is None else connect_to(path)


def connect_to(path: Path) -> socket.socket | None:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.connect(str(path))
    except OSError:
        connection.close()
        return None
    return connection


def reach(store: Path, pid: int) -> socket.socket | int | None:
    """A connection to the owner, or the lock: then this process is the owner.

    None: the store is read-only, and every process opens it for itself.
    Raises store.io; store.locked if somebody holds the lock for long and does not listen.
    """
    started = time.monotonic()
    while True:
        connection = connect(store)
        if connection is not None:
            return connection
        if is_read_only(store):
            return None
        try:
            return take_folder(store, pid)
        except KbprocError as error:
            patience = _PATIENCE if holder(store)[1] else _SHORT_PATIENCE
            if error.type != "store.locked" or time.monotonic() > started + patience:
                raise
        time.sleep(_PAUSE)


def greet(connection: socket.socket, hello: Hello) -> tuple[Welcome, bytes]:
    """What the owner answers, and what it has said since.

    Raises Gone, and what the owner refused with.
    """
    try:
        connection.sendall(msgspec.json.encode(hello) + b"\n")
        line, rest = first_line(connection)
    except OSError as error:
        raise Gone from error
    if not line:
        raise Gone
    welcome = msgspec.json.decode(line, type=Welcome)
    if not welcome.ok:
        raise refusal(welcome.error or {})
    return welcome, rest


def first_line(connection: socket.socket) -> tuple[bytes, bytes]:
    """Without its newline, and what came with it; empty at the end or after too many bytes."""
    data = b""
    while b"\n" not in data:
        block = connection.recv(HELLO_BYTES)
        data += block
        if not block or len(data) > HELLO_BYTES:
            return b"", b""
    line, _, rest = data.partition(b"\n")
    return line, rest


def refusal(error: dict[str, Any]) -> KbprocError:
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
        told = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        return int(struct.unpack("3i", told)[1])
    # macOS: struct xucred of LOCAL_PEERCRED begins with its version and the uid.
    told = connection.getsockopt(0, 1, 76)
    return int(struct.unpack_from("2I", told)[1])
