"""Hostile endpoints: compressed answers, and answers that never begin."""

from __future__ import annotations

import functools
import gzip
import json
import re
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from kbproc.base.errors import KbprocError
from kbproc.engine.models import endpoint
from kbproc.engine.models.answering.interface import Prompt, PromptPassage
from kbproc.engine.models.answering.openai import LlmSpec, OpenAi
from kbproc.engine.models.http import EndpointEmbedder
from kbproc.engine.models.reranking.endpoint import EndpointReranker
from tests.kit.faults import faults_of, note
from tests.kit.llm import Listener
from tests.kit.patience import LIVES, until

compared = faults_of("endpoints", counted=True)

SECONDS = 0.2  # seconds of silence until a client gives up
Send = Callable[[bytes], None]
PROMPT = Prompt(
    question="Who?", passages=[PromptPassage(n=1, source=1, cite="A", text="Words.", score=1.0)]
)


class Raw:
    """A server that answers each connection with the bytes that `answer` sends."""

    def __init__(self, answer: Callable[[Send, threading.Event], None]) -> None:
        self._answer = answer
        self.released = threading.Event()
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}/v1"
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            try:
                head = b""
                while b"\r\n\r\n" not in head:
                    head += connection.recv(1 << 16)
                self._answer(connection.sendall, self.released)
            except OSError:
                pass

    def close(self) -> None:
        self.released.set()
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join()


Serve = Callable[[Callable[[Send, threading.Event], None]], Raw]


@pytest.fixture
def serve() -> Iterator[Serve]:
    servers: list[Raw] = []

    def begin(answer: Callable[[Send, threading.Event], None]) -> Raw:
        servers.append(Raw(answer))
        return servers[-1]

    yield begin
    for server in servers:
        server.close()


def head(**headers: str) -> bytes:
    lines = [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join(["HTTP/1.1 200 OK", *lines, "", ""]).encode()


def again(data: bytes, before: bytes = b"") -> Callable[[Send, threading.Event], None]:
    """Returns an `answer` that sends `before`, then `data` repeatedly until the test is over."""

    def answer(send: Send, released: threading.Event) -> None:
        send(before)
        while not released.wait(SECONDS / 8):
            send(data)

    return answer


def chat(url: str) -> KbprocError:
    answerer = OpenAi(LlmSpec(url=url, model="toy", timeout_s=SECONDS))
    with pytest.raises(KbprocError) as caught:
        answerer.answer(PROMPT, Listener())
    answerer.close()
    return caught.value


def embedding(url: str) -> KbprocError:
    embedder = EndpointEmbedder(
        name="toy", url=url, dim=2, timeout_s=SECONDS, sleep=lambda seconds: None
    )
    with pytest.raises(KbprocError) as caught:
        embedder.embed("words")
    embedder.close()
    return caught.value


def reranking(url: str) -> KbprocError:
    reranker = EndpointReranker(
        url=url, model="toy", api_key=None, candidates=5, max_tokens=100, timeout_s=SECONDS
    )
    with pytest.raises(KbprocError) as caught:
        reranker.judge("words", ["a text"])
    reranker.close()
    return caught.value


def call_in_thread(ask: Callable[[str], KbprocError], url: str) -> KbprocError:
    """Calls `ask` in a thread, so that an endless wait fails the test and does not hang it."""
    errors: list[KbprocError] = []
    thread = threading.Thread(target=lambda: errors.append(ask(url)), daemon=True)
    thread.start()
    thread.join(LIVES)
    assert errors, "the endpoint was not given up"
    return errors[0]


EVENTS = head(Content_Type="text/event-stream")
EMPTY = b'data: {"choices": []}\n\n'
CONTINUES = b"HTTP/1.1 100 Continue\r\n\r\n"
ENDLESS = {
    "comments and no word": (b": wait\n\n", EVENTS),
    "empty choices": (EMPTY, EVENTS),
    "empty words": (b'data: {"choices": [{"delta": {"content": ""}}]}\n\n', EVENTS),
    "a line byte by byte": (b"d", EVENTS),
    "100 Continue": (CONTINUES, b""),
    "a header that goes on": (b"x", b"HTTP/1.1 200 OK\r\nX-Long: "),
    "headers that go on": (b"X-More: 1\r\n", b"HTTP/1.1 200 OK\r\n"),
}


@pytest.mark.parametrize("way", ENDLESS)
def test_an_answer_without_a_word_is_given_up(serve: Serve, way: str) -> None:
    data, before = ENDLESS[way]
    error = call_in_thread(chat, serve(again(data, before)).url)
    assert error.type in {"operation.timeout", "llm.unavailable"}, error
    note("endpoints", f"an endpoint that answers with {way}, and does not end", GIVEN_UP)


@pytest.mark.parametrize("way", ["100 Continue", "a header that goes on", "a body that drips"])
@pytest.mark.parametrize(("ask", "kind"), [(embedding, "embedding"), (reranking, "rerank")])
def test_vectors_and_scores_that_do_not_come_are_given_up(
    serve: Serve, way: str, ask: Callable[[str], KbprocError], kind: str
) -> None:
    data, before = ENDLESS.get(way, (b" ", head(Content_Type="application/json")))
    error = call_in_thread(ask, serve(again(data, before)).url)
    assert error.type == "model.unavailable", error
    note("endpoints", f"an endpoint of {kind} that answers with {way}, and does not end", GIVEN_UP)


GIVEN_UP = "it is given up once it has said no word for as long as the settings say"


@functools.cache
def packed_thrice(head_of_it: bytes, filler: bytes) -> bytes:
    body = head_of_it + filler * 300
    for _ in range(3):
        body = gzip.compress(body, 1)
    return body


@pytest.mark.parametrize("coding", ["gzip, gzip, gzip", "gzip", "deflate", "br", "zstd", "x"])
@pytest.mark.parametrize("ask", [chat, embedding, reranking])
def test_a_packed_answer_is_refused(
    serve: Serve,
    monkeypatch: pytest.MonkeyPatch,
    coding: str,
    ask: Callable[[str], KbprocError],
) -> None:
    """A compressed answer is refused unread, because it could unpack to more than a gigabyte."""
    monkeypatch.setattr(sys.modules[__name__], "SECONDS", LIVES)  # the test is not about silence
    begins = b'{"data": [{"index": 0, "embedding": [1.0, 0.0]}], "x": "'
    body = packed_thrice(begins, b" " * (1 << 20))
    sent = head(Content_Encoding=coding, Content_Length=str(len(body))) + body

    def answer(send: Send, released: threading.Event) -> None:
        send(sent)

    before = peak(anew=True)
    error = call_in_thread(ask, serve(answer).url)
    assert "packed" in error.message and error.retryable is False, error
    assert peak() - before < 100 << 20
    note("endpoints", "an answer that is packed, once or thrice", "it is refused unread")


def peak(*, anew: bool = False) -> int:
    """Returns the peak of memory in bytes since the last call with `anew`."""
    if anew:
        Path("/proc/self/clear_refs").write_text("5")
    status = Path("/proc/self/status").read_text()
    (kilobytes,) = re.findall(r"VmHWM:\s+(\d+) kB", status)
    return int(kilobytes) << 10


def test_nothing_packed_is_asked_for() -> None:
    requests: list[bytes] = []
    server = socket.create_server(("127.0.0.1", 0))

    def listen() -> None:
        for _ in range(3):
            connection, _ = server.accept()
            with connection:
                requests.append(connection.recv(1 << 16).lower())

    thread = threading.Thread(target=listen, daemon=True)
    thread.start()
    url = f"http://127.0.0.1:{server.getsockname()[1]}/v1"
    call_in_thread(chat, url)
    call_in_thread(embedding, url)
    call_in_thread(reranking, url)
    thread.join(LIVES)
    server.close()
    assert len(requests) == 3
    assert all(b"accept-encoding: identity\r\n" in request for request in requests), requests


def test_an_answer_that_goes_on_is_not_given_up(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An answer whose words arrive slowly is not given up, even if the whole takes long."""
    word = json.dumps({"choices": [{"delta": {"content": "word "}}]}).encode()
    end = b'data: {"choices": [{"delta": {}, "finish_reason": "stop"}]}\n\ndata: [DONE]\n\n'
    listener = Listener()
    waited_s = 0.0
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + waited_s)
    monkeypatch.setattr(endpoint, "time", clock)

    def answer(send: Send, released: threading.Event) -> None:
        nonlocal waited_s
        send(EVENTS)
        for number in range(8):
            until(lambda n=number: listener.text == "word " * n, "the words so far")  # type: ignore[misc]
            waited_s += LIVES / 3
            send(b"data: " + word + b"\n\n")
        send(end)

    answerer = OpenAi(LlmSpec(url=serve(answer).url, model="toy", timeout_s=LIVES))
    assert answerer.answer(PROMPT, listener).status == "finished"
    assert waited_s > LIVES
    assert listener.text == "word " * 8
    answerer.close()
