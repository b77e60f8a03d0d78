"""Sockets of this machine, without the module socket, whose names take longer to make than a link.

The module socket's own class is a subclass of `Socket`, so that both serve where one is asked for.
"""

from __future__ import annotations

from _socket import AF_UNIX, MSG_DONTWAIT, SHUT_RDWR, SHUT_WR, SOCK_STREAM, SOL_SOCKET, socketpair
from _socket import socket as Socket

__all__ = ["MSG_DONTWAIT", "SHUT_RDWR", "SHUT_WR", "SOL_SOCKET", "Socket"]


def unix() -> Socket:
    return Socket(AF_UNIX, SOCK_STREAM)


def pair() -> tuple[Socket, Socket]:
    """Returns two connected sockets."""
    return socketpair(AF_UNIX, SOCK_STREAM)


def accepted(listening: Socket) -> Socket:
    """Returns the next connection to a listening socket. Raises OSError."""
    fd, _ = listening._accept()  # type: ignore[attr-defined]
    return Socket(AF_UNIX, SOCK_STREAM, 0, fd)
