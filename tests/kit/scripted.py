"""A scripted model for coding agents: it calls the tools that a test lists.

Each request shows the progress of the script, because an agent sends the whole conversation with
the results of earlier calls. So a repeated request gets the same answer.
"""

from __future__ import annotations

import contextlib
import http.server
import json
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from tests.kit.dialects import DIALECTS, Ask, Message, Reply, Tool

# Each agent has its own way to prefix a tool's name with the server's.
_PREFIX = re.compile(r"^(mcp_+)?kbproc_*")
# Claude Code's tool that waits for slow servers.
_WAIT = "WaitForMcpServers"


class Call(NamedTuple):
    """A tool call of the script. `before` runs before the model requests it.

    `is_native`: the tool is the agent's own.
    """

    tool: str
    arguments: Message = {}
    before: Callable[[], object] = lambda: None
    is_native: bool = False


class Model:
    """A scripted model that records its tools and the results of its calls.

    `bodies`: the requests. `offers`: the tool names in each request. `tools`: kbproc's tools by
    kbproc's names. `results`: of calls of kbproc's tools, and of the agent's that the script names.
    `is_prefixed`: the agent prefixes the server's name.
    """

    def __init__(self, script: Sequence[Call], *, is_prefixed: bool) -> None:
        self.script = script
        self.results: list[str] = []
        self.tools: dict[str, Tool] = {}
        self.bodies: list[str] = []
        self.offers: list[list[str]] = []
        self.first_offer: float | None = None
        self._failure: BaseException | None = None
        self._is_prefixed = is_prefixed
        self._native = {call.tool for call in script if call.is_native}
        self._done: set[int] = set()
        self._answering = threading.Lock()

    @property
    def is_finished(self) -> bool:
        return len(self.results) >= len(self.script)

    def check(self) -> None:
        """Raises the exception of a failed step of the script."""
        if self._failure is not None:
            raise self._failure

    def report(self) -> str:
        return f"tools offered: {self.offers}; results: {self.results}"

    def declared(self) -> list[Message]:
        """Returns the declarations of kbproc's tools as the model received them."""
        return [tool.declaration for tool in self.tools.values()]

    def answer(self, ask: Ask) -> Reply:
        """Answers one request at a time, because the steps of a script are sequential."""
        with self._answering:
            self.offers.append([tool.name for tool in ask.tools])
            own = {
                _PREFIX.sub("", tool.name): tool
                for tool in ask.tools
                if self._is_own(tool.namespace or tool.name)
            }
            results = [text for name, text in ask.results if self._is_own(name)]
            if not own.keys() - self._native and not results:
                return self._other(ask)
            self.tools |= {name: tool for name, tool in own.items() if name not in self._native}
            if self.first_offer is None:
                self.first_offer = time.time()
            self.results = results
            number = len(results)
            if not own or number >= len(self.script):
                return Reply("Done.")
            call = self.script[number]
            if number not in self._done:
                self._done.add(number)
                self._prepare(call)
            if call.tool not in own:
                return Reply(f"There is no tool {call.tool}.")
            return Reply("", own[call.tool], call.arguments)

    def _prepare(self, call: Call) -> None:
        try:
            call.before()
        except BaseException as failure:
            self._failure = failure
            raise

    def _other(self, ask: Ask) -> Reply:
        """Answers a request without kbproc's tools, such as one for a title.

        If the agent has a tool that waits for the server, the answer calls it.
        """
        waiting = [tool for tool in ask.tools if tool.name == _WAIT]
        return Reply("", waiting[0]) if waiting else Reply("{}")

    def _is_own(self, name: str) -> bool:
        is_own = not self._is_prefixed or _PREFIX.match(name) is not None
        return is_own or name in self._native


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    model: Model

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignores the error: the agent has closed its connection."""


class _Handler(http.server.BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:
        self._send({"data": [{"id": "scripted", "object": "model"}], "object": "list"})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}")
        dialect = next((one for one in DIALECTS if one.path.search(self.path)), None)
        if dialect is None:
            self._send({"input_tokens": 1, "totalTokens": 1})
            return
        self.server.model.bodies.append(json.dumps(body))
        ask = dialect.read(body, self.path)
        reply = self.server.model.answer(ask)
        if not ask.is_streamed:
            self._send(dialect.whole(reply))
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        for name, value in dialect.stream(reply):
            head = "" if name is None else f"event: {name}\n"
            data = value if isinstance(value, str) else json.dumps(value)
            self.wfile.write(f"{head}data: {data}\n\n".encode())
        self.close_connection = True

    def _send(self, value: Any) -> None:
        data = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextlib.contextmanager
def serving(model: Model, listening: socket.socket) -> Iterator[None]:
    """Serves the model on a socket that already listens."""
    server = _Server(("127.0.0.1", 0), _Handler, bind_and_activate=False)
    server.socket.close()
    server.socket = listening
    server.model = model
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
