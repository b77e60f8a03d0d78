"""A local web server whose pages a test defines."""

from __future__ import annotations

import http.server
import socket
import threading
from collections.abc import Callable
from typing import Any


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True


class Server6(Server):
    address_family = socket.AF_INET6


_SERVERS = (Server, Server6)


class Site:
    """A local web server; `pages` maps a path to its handler."""

    def __init__(self, address: str = "127.0.0.1") -> None:
        self.pages: dict[str, Callable[[Any], None]] = {}
        self.ended = threading.Event()
        self.asked: list[tuple[str, str | None]] = []
        site = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                site.asked.append((self.path, self.headers["Host"]))
                try:
                    site.pages[self.path](self)
                except OSError:  # the client has closed the connection
                    self.close_connection = True

            def log_message(self, *arguments: Any) -> None:
                pass

        self._server = _SERVERS[":" in address]((address, 0), Handler)
        self.port = self._server.server_address[1]
        self.host = f"[{address}]:{self.port}" if ":" in address else f"{address}:{self.port}"
        self.url = f"http://{self.host}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def page(
        self,
        path: str,
        body: bytes = b"",
        *,
        status: int = 200,
        type: str | None = "text/html",
        **headers: str,
    ) -> str:
        def answer(handler: Any) -> None:
            handler.send_response(status)
            if type:
                handler.send_header("Content-Type", type)
            for name, value in headers.items():
                handler.send_header(name.replace("_", "-"), value)
            handler.send_header("Content-Length", str(len(body)))
            handler.end_headers()
            handler.wfile.write(body)

        self.pages[path] = answer
        return self.url + path

    def close(self) -> None:
        self.ended.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
