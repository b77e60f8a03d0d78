"""A proxy that can lose what a server says."""

from __future__ import annotations

import contextlib
import socket
import threading


class Proxy:
    """Between clients and one port; each connection has two threads, which end with it.

    While `deaf` is set, what the server says is lost, and what clients say arrives. A connection
    that has lost something stays deaf for ever; one that is made once `deaf` is unset hears.
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
            while said := client.recv(1 << 16):
                server.sendall(said)
        _shut(client, server)

    def _tell(self, server: socket.socket, client: socket.socket) -> None:
        is_lost = False
        with contextlib.suppress(OSError):
            while said := server.recv(1 << 16):
                is_lost = is_lost or self.deaf
                if is_lost:
                    self.lost.set()
                    continue
                client.sendall(said)
        _shut(client, server)

    def close(self) -> None:
        _shut(*self._open)
        for one in self._open:
            one.close()


def _shut(*sockets: socket.socket) -> None:
    for one in sockets:
        with contextlib.suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)
