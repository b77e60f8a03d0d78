"""Finds the user of the process at the other end of a connection over the loopback.

Any user of a machine can connect to a port of the loopback. On Linux the kernel lists each
connection with its user; elsewhere the token alone keeps others out.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import sys
from pathlib import Path

# The second lists sockets that reach an address of version 4 by version 6.
_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_MAPPED = "0000000000000000FFFF0000"
_USER = 7  # the index of the column

End = tuple[str, int]  # address and port


def is_of_another_user(peer: End, own: End) -> bool:
    """Returns true unless the kernel names this process's user, or root, at the other end.

    Root reads the store's files anyway, and may forward a port for this user. Returns false where
    the kernel does not list this connection at all, as on macOS.
    """
    users = _users() if sys.platform == "linux" else {}
    if (_shown(own), _shown(peer)) not in users:
        return False
    return users.get((_shown(peer), _shown(own))) not in {os.getuid(), 0}


def _users() -> dict[tuple[str, str], int]:
    """Returns (local end, remote end) → the user of the socket."""
    users: dict[tuple[str, str], int] = {}
    for table in _TABLES:
        with contextlib.suppress(OSError, ValueError, IndexError):
            for row in table.read_text("ascii").splitlines()[1:]:
                columns = row.split()
                users[_short(columns[1]), _short(columns[2])] = int(columns[_USER])
    return users


def _short(end: str) -> str:
    """Returns an end by its address of version 4, if it has one."""
    return end.removeprefix(_MAPPED)


def _shown(end: End) -> str:
    """Returns an end as the kernel's table shows it."""
    (number,) = struct.unpack("=I", socket.inet_aton(end[0]))
    return f"{number:08X}:{end[1]:04X}"
