"""Answers the browser's HTTP requests: the page's own files, one request of the wire, its events.

The standard library's server suffices, because it serves one person: a few files, one POST for each
request, and one long answer for each window. It keeps what arrives within bounds, and every answer
carries the headers that keep the page apart from others.
"""

from __future__ import annotations

import contextlib
import hashlib
import html
import io
import logging
import select
import socket
import threading
import time
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from kbproc.base.threads import start_thread
from kbproc.base.values import decoder
from kbproc.surfaces.page.access import Access, PageRefusal
from kbproc.surfaces.page.bridge import Bridge, Message, encoded
from kbproc.surfaces.page.neighbours import is_of_this_user, names_users

WINDOW = "X-Kbproc-Window"
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
_MOST_BODY = 4 << 20
MOST_CONNECTIONS = 64
REQUEST_SECONDS = 30.0  # for a whole request, from the answer before it
_SILENT_SECONDS = 30.0  # for a browser that does not read its answer
_LOOK_SECONDS = 0.25
_BEAT_SECONDS = 15.0
_LONGEST_NAME = 64
_STATIC = Path(__file__).with_name("static")
_logger = logging.getLogger(__name__)


class PageFile(Struct, frozen=True):
    """A file of the page; `tag` changes with its content."""

    data: bytes
    type: str
    tag: str


class Login(Struct, forbid_unknown_fields=True):
    token: str


class PageRequest(Struct, forbid_unknown_fields=True):
    """One JSON-RPC request."""

    jsonrpc: str
    id: int | str
    method: str
    params: dict[str, Any] = {}


_login = decoder(Login).decode
_request = decoder(PageRequest).decode


def page_files() -> dict[str, PageFile]:
    """Returns path → file, of everything that the browser may load."""
    files = {}
    for path in sorted(_STATIC.iterdir()):
        if path.suffix in _TYPES:
            data = path.read_bytes()
            tag = f'"{hashlib.sha256(data).hexdigest()[:32]}"'
            files[f"/{path.name}"] = PageFile(data, _TYPES[path.suffix], tag)
    files["/"] = files["/index.html"]
    return files


class Places:
    """The connections that are open, at most so many. Any thread may use it.

    Where all places are taken, the oldest connection without the key makes room, so that
    strangers can't keep the person out.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._connections: dict[socket.socket, bool] = {}  # → whether it has shown the key
        self._lock = threading.Lock()

    def take(self, connection: socket.socket) -> bool:
        """Takes a place; returns false if every place belongs to a connection with the key."""
        with self._lock:
            if len(self._connections) >= self._most:
                stranger = next(
                    (one for one, knows in self._connections.items() if not knows), None
                )
                if stranger is None:
                    return False
                del self._connections[stranger]
                with contextlib.suppress(OSError):  # the stranger's thread closes the socket
                    stranger.shutdown(socket.SHUT_RDWR)
            self._connections[connection] = False
            return True

    def keep(self, connection: socket.socket) -> None:
        """Lets a connection stay that has shown the key."""
        with self._lock:
            if connection in self._connections:
                self._connections[connection] = True

    def leave(self, connection: socket.socket) -> None:
        with self._lock:
            self._connections.pop(connection, None)


class PageServer(ThreadingHTTPServer):
    """The server of one `kbproc open`, on the loopback."""

    daemon_threads = True
    block_on_close = False
    allow_reuse_address = False
    # A client that finds the queue full tries again only after a second.
    request_queue_size = 2 * MOST_CONNECTIONS

    def __init__(self, port: int) -> None:
        """Binds the port; 0 takes a free one. Raises OSError."""
        super().__init__(("127.0.0.1", port), _Handler)
        self.files = page_files()
        self.refusal_page = self.files.pop("/refused.html").data
        self.places = Places(MOST_CONNECTIONS)
        self._names_users = names_users(self.socket)

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    def begin(self, access: Access, bridge: Bridge, about: Message) -> None:
        """Answers from now on, in threads. `about`: what the page learns with its key."""
        self.access, self.bridge, self.about = access, bridge, about
        start_thread(self.serve_forever, "page")

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Returns false unless the connection is this user's, where the kernel says whose it is."""
        return not self._names_users or is_of_this_user(request, client_address)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serves the connection in a thread; closes it if no place is free."""
        if not self.places.take(request):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except RuntimeError:  # no thread could be started
            self.places.leave(request)
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.places.leave(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        _logger.debug("a browser's connection ended", exc_info=True)


class _Arrivals(io.RawIOBase):
    """The bytes that a browser sends. A request that takes too long ends with TimeoutError."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self.begin()

    def begin(self) -> None:
        """Begins the time of the next request, so that single bytes do not prolong it."""
        self._end = time.monotonic() + REQUEST_SECONDS

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._connection.settimeout(max(1e-3, self._end - time.monotonic()))
        try:
            return self._connection.recv_into(buffer)
        finally:
            self._connection.settimeout(_SILENT_SECONDS)


class _Handler(BaseHTTPRequestHandler):
    """The requests of one connection."""

    server: PageServer
    protocol_version = "HTTP/1.1"
    server_version = "kbproc"
    sys_version = ""
    timeout = _SILENT_SECONDS
    disable_nagle_algorithm = True

    def setup(self) -> None:
        super().setup()
        self._arrivals = _Arrivals(self.connection)
        self.rfile = io.BufferedReader(self._arrivals)

    def handle_one_request(self) -> None:
        self._arrivals.begin()
        super().handle_one_request()

    def do_GET(self) -> None:
        self._answer(self._get)

    def do_POST(self) -> None:
        self._answer(self._post)

    def _answer(self, act: Callable[[], None]) -> None:
        try:
            self.server.access.check_host(self._headers)
            act()
        except PageRefusal as refusal:
            self.close_connection = True  # because the body may not have been read
            self._refuse(refusal.status, refusal.reason)
        except (ConnectionError, TimeoutError):
            self.close_connection = True

    @property
    def _headers(self) -> dict[str, str]:
        """Returns the headers; of one that is sent twice, a value that fits nothing."""
        names = [name.lower() for name in self.headers]
        return _AnyCase(
            {
                name: value if names.count(name.lower()) == 1 else "\0"
                for name, value in self.headers.items()
            }
        )

    # -------------------------------------------------------------------------- reads

    def _get(self) -> None:
        self.server.access.check_origin(self._headers, required=False)
        if self.path == "/events":
            self._check_key()
            self._stream_events()
            return
        file = self.server.files.get(self.path.partition("?")[0])
        if file is None:
            raise PageRefusal(404, "There is no such page: the address is cut short, or mistyped.")
        more = {"ETag": file.tag, "Cache-Control": "no-cache"}
        if self.headers.get("If-None-Match") == file.tag:
            self._send(304, b"", file.type, more)
        else:
            self._send(200, file.data, file.type, more)

    def _stream_events(self) -> None:
        name = self._window_name()
        window = self.server.bridge.window(name)
        self.close_connection = True
        self.send_response(200)
        self._send_headers("text/event-stream", {"Cache-Control": "no-store"})
        self.send_header("Connection", "close")
        self.end_headers()
        try:
            self.wfile.write(b": \n\n")
            while window.is_open:
                events = window.take(_BEAT_SECONDS)
                self.wfile.write(b"".join(map(encoded, events)) or b": \n\n")
                if self._has_gone():
                    return
        except OSError:
            return
        finally:
            self.server.bridge.forget(name, window)

    def _window_name(self) -> str:
        name = self._headers.get(WINDOW, "")
        if not name.isalnum() or len(name) > _LONGEST_NAME:
            raise PageRefusal(400, "The request names no window.")
        return name

    # ------------------------------------------------------------------------- writes

    def _post(self) -> None:
        self.server.access.check_origin(self._headers, required=True)
        if self._headers.get("Content-Type", "") != "application/json":
            raise PageRefusal(415, "A request is JSON.")
        if self.path == "/login":
            self._login()
        elif self.path == "/api":
            self._check_key()
            self._ask()
        else:
            raise PageRefusal(404, "There is no such address.")

    def _check_key(self) -> None:
        self.server.access.check_key(self._headers)
        self.server.places.keep(self.connection)

    def _login(self) -> None:
        access = self.server.access
        grant = access.exchange(self._body(_login).token)
        body = msgspec.json.encode({"key": grant.key, **self.server.about})
        more = {"Set-Cookie": access.set_cookie(grant), "Cache-Control": "no-store"}
        self._send(200, body, "application/json", more)

    def _ask(self) -> None:
        """Sends the request on the wire, and answers with its response."""
        request = self._body(_request)
        reason = self.server.bridge.refusal(request.method, request.params)
        if reason is not None:
            raise PageRefusal(403, reason)
        answered = threading.Event()
        answers: list[Message] = []

        def done(answer: Message) -> None:
            answers.append(answer)
            answered.set()

        window = self._window_name()
        cancel = self.server.bridge.ask(window, request.id, request.method, request.params, done)
        while not answered.wait(_LOOK_SECONDS):
            if self._has_gone():
                cancel()
                self.close_connection = True
                return
        body = msgspec.json.encode({**answers[0], "id": request.id})
        self._send(200, body, "application/json", {"Cache-Control": "no-store"})

    def _body(self, decode: Callable[[bytes], Any]) -> Any:
        """Returns the body, decoded.

        Raises PageRefusal; ConnectionError if the browser has closed its end.
        """
        length = self._headers.get("Content-Length", "")
        if not length.isdecimal() or len(length) > 9 or "Transfer-Encoding" in self._headers:
            raise PageRefusal(411, "A request states its length.")
        if int(length) > _MOST_BODY:
            raise PageRefusal(413, f"A request has at most {_MOST_BODY} bytes.")
        try:
            body = decode(self.rfile.read(int(length)))
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            raise PageRefusal(400, "The body is not such a request.") from None
        if self._has_gone():
            raise ConnectionError
        return body

    def _has_gone(self) -> bool:
        """Returns true once the browser has closed its end."""
        poll = select.poll()
        poll.register(self.connection, select.POLLIN)
        if not poll.poll(0):
            return False
        try:
            return not self.connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True

    # ------------------------------------------------------------------------ answers

    def _refuse(self, status: int, reason: str) -> None:
        """Answers with the reason: a person's browser gets a page, a script JSON."""
        if "text/html" in (self.headers.get("Accept") or ""):
            page = self.server.refusal_page.replace(b"REASON", html.escape(reason).encode())
            self._send(status, page, _TYPES[".html"])
        else:
            self._send(status, msgspec.json.encode({"error": reason}), "application/json")

    def _send(
        self, status: int, body: bytes, type: str, more: dict[str, str] | None = None
    ) -> None:
        self.send_response(status)
        self._send_headers(type, more or {"Cache-Control": "no-store"})
        self.send_header("Content-Length", str(len(body)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def _send_headers(self, type: str, more: dict[str, str]) -> None:
        for name, value in {**_HEADERS, "Content-Type": type, **more}.items():
            self.send_header(name, value)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answers a request that is no HTTP, or of another method, without repeating it."""
        self.close_connection = True
        body = msgspec.json.encode({"error": HTTPStatus(code).phrase})
        self._send(code, body, "application/json")

    def log_message(self, format: str, *args: Any) -> None:
        _logger.debug(format, *args)


class _AnyCase(dict[str, str]):
    """Headers by name, in any case."""

    def __init__(self, headers: dict[str, str]) -> None:
        super().__init__({name.lower(): value for name, value in headers.items()})

    def get(self, name: str, default: Any = None) -> Any:
        return super().get(name.lower(), default)

    def __contains__(self, name: object) -> bool:
        return super().__contains__(str(name).lower())
