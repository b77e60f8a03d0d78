"""Finds the user of the process at the other end of a connection over the loopback.

Any user of a machine can connect to a port of the loopback. On Linux the kernel lists each
connection with its user; elsewhere the token alone keeps others out.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from pathlib import Path
from typing import NamedTuple

# The second lists sockets that reach an address of version 4 by version 6.
_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_MAPPED = "0000000000000000FFFF0000"
_USER, _INODE = 7, 9  # the indices of the columns
_NO_INODE = 0  # a closed socket has none, and its user reads as root

End = tuple[str, int]  # address and port


class Listed(NamedTuple):
    """A socket as the kernel lists it."""

    user: int
    inode: int


def names_users(listener: socket.socket) -> bool:
    """Returns true where the kernel lists sockets with their users; macOS does not."""
    inode = os.fstat(listener.fileno()).st_ino
    return any(listed.inode == inode for table in _TABLES for listed in _sockets(table).values())


def is_of_this_user(connection: socket.socket, peer: End) -> bool:
    """Returns true if the kernel names this process's user, or root, at the other end.

    Root reads the store's files anyway, and may forward a port for this user. The kernel shows a
    closed socket as root's. It does not list a connection that was reset, and the same ports may
    belong to another one by then.
    """
    own, other = _shown(connection.getsockname()), _shown(peer)
    here = there = None
    for table in _TABLES:
        if here is None or there is None:  # each table takes the kernel two milliseconds
            sockets = _sockets(table)
            here, there = here or sockets.get((own, other)), there or sockets.get((other, own))
    if here is None or here.inode != os.fstat(connection.fileno()).st_ino:
        return False
    return there is not None and there.inode != _NO_INODE and there.user in {os.getuid(), 0}


def _sockets(table: Path) -> dict[tuple[str, str], Listed]:
    """Returns (local end, remote end) → the socket."""
    sockets: dict[tuple[str, str], Listed] = {}
    with contextlib.suppress(OSError, ValueError, IndexError):
        for row in table.read_text("ascii").splitlines()[1:]:
            columns = row.split()
            ends = _short(columns[1]), _short(columns[2])
            sockets[ends] = Listed(int(columns[_USER]), int(columns[_INODE]))
    return sockets


def _short(end: str) -> str:
    """Returns an end by its address of version 4, if it has one."""
    return end.removeprefix(_MAPPED)


def _shown(end: End) -> str:
    """Returns an end as the kernel's table shows it."""
    (number,) = struct.unpack("=I", socket.inet_aton(end[0]))
    return f"{number:08X}:{end[1]:04X}"
