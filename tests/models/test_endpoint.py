"""Hostile endpoints: packed answers, and those that never say a word of their answer."""

from __future__ import annotations

import gzip
import json
import resource
import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from kbproc.base.errors import KbprocError
from kbproc.models.answering.interface import Passage, Prompt
from kbproc.models.answering.openai import LlmSpec, OpenAi
from kbproc.models.http import OpenAiEmbedder
from tests.kit.faults import faults_of, note
from tests.kit.llm import Listener
from tests.kit.patience import LIVES

compared = faults_of("endpoints", counted=True)

SECONDS = 0.4  # of silence
Send = Callable[[bytes], None]
PROMPT = Prompt(
    question="Who?", passages=[Passage(n=1, source=1, cite="A", text="Words.", score=1.0)]
)


class Raw:
    """A server that answers each connection with bytes of the test's, from `answer`."""

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
                asked = b""
                while b"\r\n\r\n" not in asked:
                    asked += connection.recv(1 << 16)
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
    made: list[Raw] = []

    def begin(answer: Callable[[Send, threading.Event], None]) -> Raw:
        made.append(Raw(answer))
        return made[-1]

    yield begin
    for server in made:
        server.close()


def head(**headers: str) -> bytes:
    lines = [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join(["HTTP/1.1 200 OK", *lines, "", ""]).encode()


def again(data: bytes, before: bytes = b"") -> Callable[[Send, threading.Event], None]:
    """Sends `before`, and then `data` every now and then until the test is over."""

    def answer(send: Send, released: threading.Event) -> None:
        send(before)
        while not released.wait(SECONDS / 8):
            send(data)

    return answer


def chat(url: str) -> KbprocError:
    answerer = OpenAi(LlmSpec(url=url, model="toy", timeout_s=SECONDS))
    with pytest.raises(KbprocError) as found:
        answerer.answer(PROMPT, Listener())
    answerer.close()
    return found.value


def embedding(url: str) -> KbprocError:
    embedder = OpenAiEmbedder(
        name="toy", url=url, dim=2, timeout_s=SECONDS, sleep=lambda seconds: None
    )
    with pytest.raises(KbprocError) as found:
        embedder.embed("words")
    embedder.close()
    return found.value


def asked(ask: Callable[[str], KbprocError], url: str) -> KbprocError:
    """In a thread, so that one that waits for ever fails and does not hang."""
    found: list[KbprocError] = []
    thread = threading.Thread(target=lambda: found.append(ask(url)), daemon=True)
    thread.start()
    thread.join(LIVES)
    assert found, "the endpoint was not given up"
    return found[0]


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
    error = asked(chat, serve(again(data, before)).url)
    assert error.type in {"operation.timeout", "llm.unavailable"}, error
    note("endpoints", f"an endpoint that answers with {way}, and does not end", GIVEN_UP)


@pytest.mark.parametrize("way", ["100 Continue", "a header that goes on", "a body that drips"])
def test_vectors_that_do_not_come_are_given_up(serve: Serve, way: str) -> None:
    data, before = ENDLESS.get(way, (b" ", head(Content_Type="application/json")))
    error = asked(embedding, serve(again(data, before)).url)
    assert error.type == "model.unavailable", error
    note("endpoints", f"an embedding endpoint that answers with {way}, and does not end", GIVEN_UP)


GIVEN_UP = "it is given up once it has said no word for as long as the settings say"


def packed_thrice(head_of_it: bytes, filler: bytes) -> bytes:
    body = head_of_it + filler * 300
    for _ in range(3):
        body = gzip.compress(body)
    return body


@pytest.mark.parametrize("coding", ["gzip, gzip, gzip", "gzip", "deflate", "br", "zstd", "x"])
@pytest.mark.parametrize("ask", [chat, embedding])
def test_a_packed_answer_is_refused(
    serve: Serve, coding: str, ask: Callable[[str], KbprocError]
) -> None:
    """It would take a gigabyte and more of memory: nobody has asked for it."""
    begins = b'{"data": [{"index": 0, "embedding": [1.0, 0.0]}], "x": "'
    body = packed_thrice(begins, b" " * (1 << 20))
    sent = head(Content_Encoding=coding, Content_Length=str(len(body))) + body

    def answer(send: Send, released: threading.Event) -> None:
        send(sent)

    before = peak()
    error = asked(ask, serve(answer).url)
    assert "packed" in error.message and error.retryable is False, error
    assert peak() - before < 100 << 20
    note("endpoints", "an answer that is packed, once or thrice", "it is refused unread")


def peak() -> int:
    """Bytes of memory at most so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def test_nothing_packed_is_asked_for() -> None:
    heard: list[bytes] = []
    server = socket.create_server(("127.0.0.1", 0))

    def listen() -> None:
        for _ in range(2):
            connection, _ = server.accept()
            with connection:
                heard.append(connection.recv(1 << 16).lower())

    thread = threading.Thread(target=listen, daemon=True)
    thread.start()
    url = f"http://127.0.0.1:{server.getsockname()[1]}/v1"
    asked(chat, url)
    asked(embedding, url)
    thread.join(LIVES)
    server.close()
    assert len(heard) == 2
    assert all(b"accept-encoding: identity\r\n" in request for request in heard), heard


def test_an_answer_that_goes_on_is_not_given_up(serve: Serve) -> None:
    """Words that come now and then are no silence, however long all of them take."""
    word = json.dumps({"choices": [{"delta": {"content": "word "}}]}).encode()
    end = b'data: {"choices": [{"delta": {}, "finish_reason": "stop"}]}\n\ndata: [DONE]\n\n'

    def answer(send: Send, released: threading.Event) -> None:
        send(EVENTS)
        for _ in range(8):
            released.wait(SECONDS / 3)
            send(b"data: " + word + b"\n\n")
        send(end)

    answerer = OpenAi(LlmSpec(url=serve(answer).url, model="toy", timeout_s=SECONDS))
    listener = Listener()
    assert answerer.answer(PROMPT, listener).status == "finished"
    assert listener.text == "word " * 8
    answerer.close()
