"""A local OpenAI-compatible endpoint whose answers a test scripts.

Its reply depends on the question: see `Script`.
"""

from __future__ import annotations

import contextlib
import http.server
import json
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from kbproc.base.settings.config import Llm
from kbproc.engine.models.answering.interface import AnswerPart
from tests.kit.patience import LIVES

# Called with the reply in progress; raises `Cut` to drop the connection.
Step = Callable[["Reply"], None]
Script = Callable[[str], Sequence[Step]]
KEY = "sk-a-secret-that-nobody-may-read"


class Cut(Exception):
    """The endpoint drops the connection."""


class Reply:
    """One reply in progress."""

    def __init__(self, handler: http.server.BaseHTTPRequestHandler, endpoint: Endpoint) -> None:
        self._handler = handler
        self.endpoint = endpoint
        self._begun = False

    def status(self, code: int, headers: dict[str, str], body: bytes = b"") -> None:
        self._begun = True
        handler = self._handler
        dated = "Date" in headers
        (handler.send_response_only if dated else handler.send_response)(code)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self._handler.send_header(name, value)
        self._handler.end_headers()
        self._handler.wfile.write(body)

    def write(self, data: bytes) -> None:
        if not self._begun:
            self._begun = True
            self._handler.send_response(200)
            self._handler.send_header("Content-Type", "text/event-stream")
            self._handler.end_headers()
        self._handler.wfile.write(data)
        self._handler.wfile.flush()

    def event(self, value: Any) -> None:
        self.write(b"data: " + json.dumps(value).encode() + b"\n\n")


def say(text: str) -> Step:
    return lambda reply: reply.event({"choices": [{"delta": {"content": text}}]})


def finish(reason: str = "stop", **usage: int) -> Step:
    def step(reply: Reply) -> None:
        more = {"usage": usage} if usage else {}
        reply.event({"choices": [{"delta": {}, "finish_reason": reason}], **more})
        reply.write(b"data: [DONE]\n\n")

    return step


def refuse(code: int, body: bytes = b"", **headers: str) -> Step:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda reply: reply.status(code, named, body)


def raw(data: bytes) -> Step:
    return lambda reply: reply.write(data)


def cut(reply: Reply) -> None:
    raise Cut


def hang(reply: Reply) -> None:
    """Sends nothing more until the test is over."""
    reply.write(b": wait\n\n")
    reply.endpoint.released.wait(LIVES)
    raise Cut


def endlessly(text: str) -> Step:
    def step(reply: Reply) -> None:
        while not reply.endpoint.released.is_set():
            say(text)(reply)
        raise Cut

    return step


class Listener:
    """Accepts what an answerer reports; never cancels."""

    is_over = False

    def __init__(self) -> None:
        self.text = ""

    def say(self, parts: Sequence[AnswerPart]) -> None:
        self.text += "".join(part.text for part in parts)

    def warn(self, text: str) -> None:
        pass

    def when_over(self, act: Callable[[], object]) -> None:
        pass


class Endpoint:
    """The endpoint's script, its requests, and the times of its sends."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.asked: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.released = threading.Event()
        self.url = ""

    @property
    def llm(self) -> Llm:
        return Llm(url=self.url, model="toy", api_key=KEY)


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256
    endpoint: Endpoint

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignores the error: the client has closed its connection."""


class _Handler(http.server.BaseHTTPRequestHandler):
    server: _Server

    def do_POST(self) -> None:
        endpoint = self.server.endpoint
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        endpoint.asked.append(request)
        endpoint.keys.append(self.headers.get("Authorization"))
        question = request["messages"][-1]["content"].rpartition("Question: ")[2]
        reply = Reply(self, endpoint)
        with contextlib.suppress(Cut, OSError):
            for step in endpoint.script(question):
                step(reply)
        self.close_connection = True

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextlib.contextmanager
def endpoint(script: Script) -> Iterator[Endpoint]:
    server = _Server(("127.0.0.1", 0), _Handler)
    server.endpoint = Endpoint(script)
    server.endpoint.url = f"http://127.0.0.1:{server.server_port}/v1"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield server.endpoint
    finally:
        server.endpoint.released.set()
        server.shutdown()
        thread.join()
        server.server_close()
