"""Three servers; tests can cut the connections between them."""

from __future__ import annotations

import contextlib
import socket
import threading
from pathlib import Path

from tests.kit.nats import Server, Servers, free_ports

_NOWHERE = "127.0.0.1:1"  # servers advertise their addresses, but must use the wires


class Wire:
    """A port that forwards to another until it is cut."""

    def __init__(self, to: int) -> None:
        self.is_cut = False
        self._to = to
        self._open: list[socket.socket] = []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                try:
                    server = socket.create_connection(("127.0.0.1", self._to))
                except OSError:
                    client.close()
                    continue
                self._open += [client, server]
                if self.is_cut:
                    self.cut()
                for pair in ((client, server), (server, client)):
                    threading.Thread(target=_carry, args=pair, daemon=True).start()

    def cut(self) -> None:
        self.is_cut = True
        _shut(*self._open)

    def close(self) -> None:
        self.cut()
        _shut(self._listening)
        for one in (*self._open, self._listening):
            one.close()


def _carry(source: socket.socket, to: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while chunk := source.recv(1 << 16):
            to.sendall(chunk)
    _shut(source, to)


def _shut(*sockets: socket.socket) -> None:
    for one in sockets:
        with contextlib.suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)


class Parted(Servers):
    """Three servers. `wires`: from one server to another, by their indices."""

    wires: dict[tuple[int, int], Wire]

    @classmethod
    def wired(cls, folder: Path) -> Parted:
        ports = free_ports(9)
        at = [ports[3 * n : 3 * n + 3] for n in range(3)]
        wires = {(a, b): Wire(at[b][2]) for a in range(3) for b in range(3) if a != b}
        servers = cls()
        servers.wires = wires
        for n in range(3):
            routes = [f"nats://127.0.0.1:{wires[n, b].port}" for b in range(3) if b != n]
            urls = ", ".join(routes)
            servers.append(
                Server(folder / f"s{n}", at[n], f"s{n}", routes=urls, advertise=_NOWHERE)
            )
        return servers

    def part(self, alone: int) -> None:
        """Cuts this server off from the two others; clients still reach all three."""
        for pair, wire in self.wires.items():
            if alone in pair:
                wire.cut()

    def join(self) -> None:
        for wire in self.wires.values():
            wire.is_cut = False

    def kill(self) -> None:
        super().kill()
        for wire in self.wires.values():
            wire.close()
