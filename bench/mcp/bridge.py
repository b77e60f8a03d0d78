"""Serves Streamable HTTP on the loopback for a server that speaks on stdin and stdout.

A session of the older era gets a process of its own; one process answers all requests of the newer
era. Headers are compared with bodies, other hosts are refused, and an answer is JSON or a stream of
events. The suite tests by URL only; kbproc itself serves no HTTP.
"""

from __future__ import annotations

import itertools
import json
import queue
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Message = dict[str, Any]
_LOCAL = {"localhost", "127.0.0.1", "[::1]"}
_NAMED = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
_VERSION = "io.modelcontextprotocol/protocolVersion"
_STATUS = {
    -32601: 404,
    -32700: 400,
    -32600: 400,
    -32602: 400,
    -32020: 400,
    -32021: 400,
    -32022: 400,
}


class Behind:
    """A server process; the bridge numbers its requests, because many clients share it."""

    def __init__(self, command: list[str]) -> None:
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._ids = itertools.count(1)
        self._waiting: dict[int, tuple[Any, Any, queue.Queue[Message]]] = {}
        self._lock = threading.Lock()
        self.beside: queue.Queue[Message] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def send(self, message: Message) -> tuple[int, queue.Queue[Message]]:
        answers: queue.Queue[Message] = queue.Queue()
        number = next(self._ids)
        if "method" in message and "id" in message:
            token = (message.get("params", {}).get("_meta") or {}).get("progressToken")
            with self._lock:
                self._waiting[number] = message["id"], token, answers
            message = {**message, "id": number}
        self.write(message)
        return number, answers

    def write(self, message: Message) -> None:
        assert self._process.stdin
        with self._lock:
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
            self._process.stdin.flush()

    def cancel(self, number: int) -> None:
        self.write(
            {
                "jsonrpc": "2.0",
                "method": "notifications/cancelled",
                "params": {"requestId": number},
            }
        )

    def number_of(self, id: Any) -> int | None:
        with self._lock:
            return next((n for n, waiting in self._waiting.items() if waiting[0] == id), None)

    def _read(self) -> None:
        assert self._process.stdout
        for line in self._process.stdout:
            self._take(json.loads(line))

    def _take(self, message: Message) -> None:
        if "method" not in message and message.get("id") in self._waiting:
            with self._lock:
                id, _, answers = self._waiting.pop(message["id"])
            answers.put({**message, "id": id})
            return
        with self._lock:
            number = self._belongs(message)
            waiting = self._waiting.get(number) if number is not None else None
        (self.beside if waiting is None else waiting[2]).put(self._as_theirs(message, waiting))

    def _belongs(self, message: Message) -> int | None:
        """Returns the request to which a message other than an answer belongs."""
        params = message.get("params", {})
        stream = (params.get("_meta") or {}).get("io.modelcontextprotocol/subscriptionId")
        if stream is not None:
            return int(stream)
        if "progressToken" in params:
            token = params["progressToken"]
            return next((n for n, one in self._waiting.items() if one[1] == token), None)
        return max(self._waiting, default=None)  # a log, or a request to the client

    @staticmethod
    def _as_theirs(message: Message, waiting: Any) -> Message:
        meta = message.get("params", {}).get("_meta") or {}
        if waiting is not None and "io.modelcontextprotocol/subscriptionId" in meta:
            meta["io.modelcontextprotocol/subscriptionId"] = waiting[0]
        return message

    def close(self) -> None:
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait()


class Bridge(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Bridged

    def log_message(self, *args: Any) -> None: ...

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if not self._is_local():
            self._plain(403, None)
            return
        try:
            message = json.loads(body)
        except ValueError:
            self._error(None, -32700, "That is not JSON.")
            return
        params = message.get("params") if isinstance(message.get("params"), dict) else {}
        meta = params.get("_meta") if isinstance(params.get("_meta"), dict) else {}
        version = self.headers.get("MCP-Protocol-Version")
        is_modern = _VERSION in meta or version not in (None, *OLDER)
        if is_modern:
            wrong = self._mismatch(message, params, meta)
            if wrong is not None:
                self._error(message.get("id"), *wrong)
                return
            self._serve(self.server.shared, message, is_modern=True)
            return
        self._older(message)

    def _older(self, message: Message) -> None:
        if message.get("method") == "initialize":
            session = self.server.begin()
            self._serve(self.server.sessions[session], message, session=session)
            return
        behind = self.server.sessions.get(self.headers.get("Mcp-Session-Id", ""))
        if behind is None:
            self._error(message.get("id"), -32600, "There is no such session.", 400)
            return
        self._serve(behind, message)

    def _mismatch(self, message: Message, params: Message, meta: Message) -> tuple[int, str] | None:
        """Returns an error's code and text if the headers differ from the body."""
        if "method" not in message or "id" not in message:
            return None
        version = self.headers.get("MCP-Protocol-Version")
        if version is None or (_VERSION in meta and meta[_VERSION] != version):
            return -32020, "MCP-Protocol-Version is not what the body says."
        if self.headers.get("Mcp-Method") != message["method"]:
            return -32020, "Mcp-Method is not what the body says."
        name = _NAMED.get(message["method"])
        if name and self.headers.get("Mcp-Name") != params.get(name):
            return -32020, "Mcp-Name is not what the body says."
        return None

    def _serve(
        self, behind: Behind, message: Message, *, session: str = "", is_modern: bool = False
    ) -> None:
        if "method" in message and "id" not in message:
            if message["method"] == "notifications/cancelled":
                number = behind.number_of(message["params"].get("requestId"))
                message["params"]["requestId"] = number
            behind.write(message)
            self._plain(202, None)
            return
        if "method" not in message:
            behind.write(message)
            self._plain(202, None)
            return
        number, answers = behind.send(message)
        first = answers.get()
        if "method" not in first:
            code = first.get("error", {}).get("code")
            self._plain(_STATUS.get(code, 200) if is_modern else 200, first, session)
            return
        self._stream(behind, number, first, answers, session)

    def _stream(
        self,
        behind: Behind,
        number: int,
        message: Message,
        answers: queue.Queue[Message],
        session: str,
    ) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Cache-Control", "no-cache")
        self.send_header("Connection", "close")
        if session:
            self.send_header("Mcp-Session-Id", session)
        self.end_headers()
        self.close_connection = True
        try:
            while True:
                self.wfile.write(f"event: message\ndata: {json.dumps(message)}\n\n".encode())
                self.wfile.flush()
                if "method" not in message:
                    return
                message = self._next(answers)
        except OSError:
            behind.cancel(number)

    def _next(self, answers: queue.Queue[Message]) -> Message:
        while True:
            try:
                return answers.get(timeout=0.5)
            except queue.Empty:  # without a reader, write raises OSError
                self.wfile.write(b": still here\n\n")
                self.wfile.flush()

    def do_GET(self) -> None:
        """Streams messages that a session of the older era sends unasked."""
        behind = self.server.sessions.get(self.headers.get("Mcp-Session-Id", ""))
        if not self._is_local() or behind is None:
            self._plain(405, None)
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        self.close_connection = True
        try:
            while True:
                message = self._next(behind.beside)
                self.wfile.write(f"event: message\ndata: {json.dumps(message)}\n\n".encode())
                self.wfile.flush()
        except OSError:
            return

    def do_DELETE(self) -> None:
        behind = self.server.sessions.pop(self.headers.get("Mcp-Session-Id", ""), None)
        if behind is not None:
            behind.close()
        self._plain(200 if behind is not None else 404, None)

    def _is_local(self) -> bool:
        origin = self.headers.get("Origin", "")
        hosts = [self.headers.get("Host", ""), origin.partition("://")[2] or "localhost"]
        return all(host.rpartition(":")[0] in _LOCAL or host in _LOCAL for host in hosts)

    def _error(self, id: Any, code: int, reason: str, status: int | None = None) -> None:
        message: Message = {"jsonrpc": "2.0", "error": {"code": code, "message": reason}}
        if isinstance(id, int | str):
            message["id"] = id
        self._plain(status or _STATUS[code], message)

    def _plain(self, status: int, message: Message | None, session: str = "") -> None:
        body = b"" if message is None else json.dumps(message).encode()
        self.send_response(status)
        if body:
            self.send_header("Content-Type", "application/json")
        if session:
            self.send_header("Mcp-Session-Id", session)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


OLDER = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")


class Bridged(ThreadingHTTPServer):
    """Serves the bridge; `command` starts a server."""

    daemon_threads = True

    def __init__(self, command: list[str], port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), Bridge)
        self._command = command
        self.shared = Behind(command)
        self.sessions: dict[str, Behind] = {}
        self._numbers = itertools.count(1)

    def begin(self) -> str:
        name = f"session-{next(self._numbers)}"
        self.sessions[name] = Behind(self._command)
        return name

    @property
    def url(self) -> str:
        return f"http://localhost:{self.server_address[1]}/mcp"


FIXTURE = [sys.executable, "-m", "bench.mcp.fixture"]
