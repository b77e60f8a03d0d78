"""A proxy that can drop the bytes that a server sends."""

from __future__ import annotations

import contextlib
import socket
import threading


class Proxy:
    """Forwards clients to one port; each connection has two threads, which end with it.

    While `deaf` is set, the server's bytes are dropped and the clients' bytes arrive. A connection
    that lost bytes stays deaf; connections opened after `deaf` is unset are not.
    """

    def __init__(self, port: int) -> None:
        self.deaf = False
        self.lost = threading.Event()
        self._to = port
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._open: list[socket.socket] = [self._listening]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                server = socket.create_connection(("127.0.0.1", self._to))
                self._open += [client, server]
                threading.Thread(target=self._carry, args=(client, server), daemon=True).start()
                threading.Thread(target=self._tell, args=(server, client), daemon=True).start()

    def _carry(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while chunk := client.recv(1 << 16):
                server.sendall(chunk)
        _shut(client, server)

    def _tell(self, server: socket.socket, client: socket.socket) -> None:
        is_lost = False
        with contextlib.suppress(OSError):
            while chunk := server.recv(1 << 16):
                is_lost = is_lost or self.deaf
                if is_lost:
                    self.lost.set()
                    continue
                client.sendall(chunk)
        _shut(client, server)

    def close(self) -> None:
        _shut(*self._open)
        for one in self._open:
            one.close()


def _shut(*sockets: socket.socket) -> None:
    for one in sockets:
        with contextlib.suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)
