"""Rerankers for tests: a small cross-encoder in a folder, and a local endpoint."""

from __future__ import annotations

import contextlib
import http.server
import json
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from kbproc.base.settings.config import Rerank
from tests.kit.models import bert
from tests.kit.patience import LIVES, PAUSE

KEY = "rk-a-secret-that-nobody-may-read"


def cross_encoder(folder: Path, *, labels: int = 1, spread: float = 0.3, **size: int) -> Path:
    """Writes a seeded BERT with one label. `spread`: of its weights; some logits are large."""
    return bert(folder, labels=labels, spread=spread, **size)


def fond_of(folder: Path, word: str) -> Path:
    """Writes a cross-encoder whose logit grows with the share of a word in query and text.

    Each token is one of two states, the word or another one; its only layer gives the first token
    the mean of all, and the head reads how much of the word is in it.
    """
    from safetensors.numpy import load_file, save_file

    cross_encoder(folder, spread=0, layers=1)
    file = folder / "model.safetensors"
    tensors = load_file(file)
    words = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]
    table = tensors["bert.embeddings.word_embeddings.weight"]
    table[:, 1] = 1
    table[words[word]] = 0
    table[words[word], 0] = 1
    layer = "bert.encoder.layer.0.attention"
    for name in (f"{layer}.self.value.weight", f"{layer}.output.dense.weight"):
        tensors[name][0, 0] = 1
    tensors["bert.pooler.dense.weight"][0, 0] = 1
    tensors["classifier.weight"][0, 0] = 8
    save_file(tensors, file, metadata={"format": "pt"})
    return folder


# Maps a request's query and documents to the answer: a status, headers and a body.
Reply = tuple[int, dict[str, str], Any]
Script = Callable[[str, list[str]], Reply]


def shared_words(query: str, text: str) -> float:
    """Returns the share of the query's words that the text contains."""
    words = set(query.lower().split())
    return len(words & set(text.lower().replace(".", " ").replace(",", " ").split())) / len(words)


def judged(query: str, documents: list[str]) -> Reply:
    """Scores documents by shared words; lists the last document first."""
    return scored([shared_words(query, text) for text in documents])


def scored(scores: Sequence[Any]) -> Reply:
    results = [{"index": i, "relevance_score": score} for i, score in enumerate(scores)]
    return 200, {}, {"id": "x", "results": results[::-1], "meta": {"billed_units": {}}}


class Endpoint(http.server.ThreadingHTTPServer):
    """`script` makes its answers. `requests`: their bodies; `keys`: their API keys."""

    daemon_threads = True

    def __init__(self, script: Script) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.script = script
        self.requests: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.released = threading.Event()
        self.url = f"http://127.0.0.1:{self.server_port}/v1"

    @property
    def settings(self) -> Rerank:
        return Rerank(url=self.url, model="toy", api_key=KEY)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignores the error: the client has closed its connection."""


class _Handler(http.server.BaseHTTPRequestHandler):
    server: Endpoint

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        server = self.server
        server.requests.append(request)
        server.keys.append(self.headers.get("authorization"))
        if self.path != "/v1/rerank":
            status, headers, answer = 404, {}, b""
        else:
            status, headers, answer = server.script(request["query"], request["documents"])
        self.send_response(status)
        if answer is drip:
            self.end_headers()
            with contextlib.suppress(OSError):
                drip(self)
            return
        body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        for name, value in {"content-length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


def drip(handler: _Handler) -> None:
    """Sends an endless body, byte by byte."""
    while not handler.server.released.wait(PAUSE):
        handler.wfile.write(b" ")


def silent(server: list[Endpoint]) -> Script:
    """Returns a script that answers when the test is over; `server` gets the endpoint later."""

    def script(query: str, documents: list[str]) -> Reply:
        server[0].released.wait(LIVES)
        return judged(query, documents)

    return script


@contextlib.contextmanager
def endpoint(script: Script = judged) -> Iterator[Endpoint]:
    with Endpoint(script) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.released.set()
            server.shutdown()
            thread.join()
