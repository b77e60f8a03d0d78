"""A local endpoint of embeddings that behaves as one of those that people use.

What each takes, refuses and answers is as its documentation or its issues tell; see the table in
docs/operations.md.
"""

from __future__ import annotations

import base64
import http.server
import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import numpy as np

from kbproc.engine.models.hashing import HashEmbedder

KEY = "sk-a-secret-that-nobody-may-read"
DIM = 32
_model = HashEmbedder(dim=DIM)


class Reply(NamedTuple):
    """An answer; `body` None: the connection is cut. `keep`: of its bytes, before it is cut."""

    status: int
    body: Any
    headers: dict[str, str] = {}
    keep: int | None = None


@dataclass(frozen=True, kw_only=True)
class Server:
    """How a kind of server behaves.

    `path`: of its requests, below the address; `suffix`: what the setting url has of it. `most`:
    texts that it takes at once. `most_bytes`: of a single text. `too_many`, `too_long`: the
    statuses of its refusals. `packs`: it knows base64; `refuses_packed`: it refuses to hear of it.
    """

    path: str = "/v1/embeddings"
    suffix: str = "/v1"
    texts: str = "input"
    most: int = 2048
    most_bytes: int = 4000
    too_many: int = 400
    too_long: int = 400
    says: str = "too long"
    packs: bool = True
    refuses_packed: bool = False
    is_wide: bool = False  # packs numbers of 64 bits
    key: str = "Authorization"
    wraps: Callable[[list[Any]], Any] = field(
        default=lambda vectors: {
            "data": [{"index": i, "embedding": v} for i, v in enumerate(vectors)][::-1]
        }
    )


SERVERS = {
    "OpenAI": Server(),
    "Azure OpenAI": Server(
        path="/openai/deployments/m/embeddings",
        suffix="/openai/deployments/m/embeddings?api-version=2024-10-21",
        key="api-key",
    ),
    "Ollama": Server(packs=False),
    "Ollama, /api/embed": Server(
        path="/api/embed",
        suffix="/api/embed",
        packs=False,
        wraps=lambda vectors: {"embeddings": vectors},
    ),
    "llama.cpp": Server(too_long=500, says="input is too large to process"),
    "text-embeddings-inference": Server(most=32, too_many=422, too_long=413),
    "text-embeddings-inference, /embed": Server(
        path="/embed",
        suffix="/embed",
        texts="inputs",
        most=32,
        too_many=422,
        too_long=413,
        packs=False,
        wraps=lambda vectors: vectors,
    ),
    "vLLM": Server(is_wide=True),
    "vLLM before 0.6": Server(refuses_packed=True),
    "LM Studio": Server(packs=False),
    "Infinity": Server(path="/embeddings", suffix="", too_many=422, too_long=422),
    "Voyage": Server(most=128),
    "Cohere": Server(
        path="/v2/embed",
        suffix="/v2/embed",
        texts="texts",
        most=96,
        wraps=lambda vectors: {
            "embeddings": {
                "base64" if vectors and isinstance(vectors[0], str) else "float": vectors
            }
        },
    ),
    "Jina": Server(most=64, too_many=422, too_long=422),
}


class Embeddings(http.server.ThreadingHTTPServer):
    """An endpoint. `script`: may answer a request first, by its texts; None: the server does."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, server: Server | None = None) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.server = server or Server()
        self.script: Callable[[list[str]], Reply | None] = lambda texts: None
        self.bodies: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.clients: list[Any] = []
        self.in_flight = self.peak = 0
        self.counting = threading.Lock()
        self.url = f"http://127.0.0.1:{self.server_port}{self.server.suffix}"
        self._thread = threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True)

    @property
    def batches(self) -> list[int]:
        """How many texts each request had."""
        return [len(body[self.server.texts]) for body in self.bodies]

    def __enter__(self) -> Embeddings:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.shutdown()
        self.server_close()
        self._thread.join()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignores the error: the client has closed its connection."""


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Embeddings

    def do_POST(self) -> None:
        server = self.server
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        with server.counting:
            server.bodies.append(body)
            server.keys.append(self.headers.get(server.server.key))
            server.clients.append(self.client_address)
            server.in_flight += 1
            server.peak = max(server.peak, server.in_flight)
        texts = body.get(server.server.texts, [])
        try:
            reply = server.script(texts) or self._reply(body, texts)
        finally:
            with server.counting:
                server.in_flight -= 1
        self._send(reply)

    def _reply(self, body: dict[str, Any], texts: list[str]) -> Reply:
        kind = self.server.server
        packed = "base64" in (body.get("encoding_format"), body.get("embedding_type")) or (
            "base64" in body.get("embedding_types", [])
        )
        if urlsplit(self.path).path != kind.path:
            return Reply(404, {"error": "no such route"})
        if packed and kind.refuses_packed:
            return Reply(400, {"message": "base64 encoding is not currently supported"})
        if len(texts) > kind.most:
            return Reply(kind.too_many, {"error": f"batch size {len(texts)} > {kind.most}"})
        if any(len(text) > kind.most_bytes for text in texts):
            return Reply(kind.too_long, {"error": {"message": kind.says}})
        return Reply(200, kind.wraps([_coded(text, packed and kind.packs, kind) for text in texts]))

    def _send(self, reply: Reply) -> None:
        if reply.body is None:
            self.close_connection = True
            return
        data = reply.body if isinstance(reply.body, bytes) else json.dumps(reply.body).encode()
        self.send_response(reply.status)
        for name, value in {**reply.headers, "content-length": str(len(data))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data[: reply.keep])
        self.close_connection |= reply.keep is not None

    def log_message(self, format: str, *args: Any) -> None:
        pass


def vector(text: str) -> Any:
    return _model.embed(text)


def _coded(text: str, is_packed: bool, kind: Server) -> Any:
    numbers = _model.embed(text) * 3
    if is_packed:
        return base64.b64encode(numbers.astype("<f8" if kind.is_wide else "<f4").tobytes()).decode()
    return np.asarray(numbers).tolist()
