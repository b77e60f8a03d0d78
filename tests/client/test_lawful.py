"""Servers that keep the protocol but are unhelpful: the client bears all lawful behaviour."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kbproc.client import (
    Cancelled,
    Closed,
    Failed,
    KbprocError,
    LimitReached,
    Overloaded,
    Stream,
)
from kbproc.client.server import Server
from tests.client.conftest import Open
from tests.kit.harness import ENVIRONMENT, running
from tests.kit.patience import until

# Each test adds the code that answers a message; `say` writes messages, one a line.
SERVER = """
import json, os, pathlib, sys

def write(text):
    os.write(1, text.encode())

def say(*messages):
    write("".join(json.dumps(message) + "\\n" for message in messages))

def event(type, **members):
    return {"jsonrpc": "2.0", "method": "event", "params": {"type": type, **members}}

def result(id, data):
    meta = {"schema": "x/1", "seq": 1}
    return {"jsonrpc": "2.0", "id": id, "result": {"data": data, "meta": meta}}

def error(id, type, **members):
    data = {"schema": "error/1", "type": type, "message": "No.", "exit_code": 2, **members}
    return {"jsonrpc": "2.0", "id": id, "error": {"code": 200, "message": "No.", "data": data}}

say(event("init", protocol="1.0"), event("ready", seq=7))
seen = open("seen", "a")
held = []
for line in sys.stdin:
    seen.write(line); seen.flush()
    message = json.loads(line)
    id, params = message.get("id"), message["params"]
"""

Lawful = Callable[[str], Any]


@pytest.fixture
def lawful(opened: Open) -> Lawful:
    """Makes a client of a server that answers each message with the given code."""

    def open(answer: str, **options: Any) -> Any:
        return opened(command=running(SERVER + indented(answer)), **options)

    return open


def indented(answer: str) -> str:
    return "".join(f"    {line}\n" for line in answer.strip().splitlines())


def received(folder: Path) -> list[dict[str, Any]]:
    """Returns the messages that the servers received."""
    return [json.loads(line) for line in (folder / "seen").read_text().splitlines()]


def test_answers_in_any_order(lawful: Lawful) -> None:
    kb = lawful("held.append(id)\nif len(held) == 3: say(*(result(id, id) for id in held[::-1]))")
    assert [one.result().data for one in [kb.stream("ping") for _ in range(3)]] == [1, 2, 3]


def test_what_is_unknown_is_passed_over(lawful: Lawful) -> None:
    """The client ignores unknown events, members and notifications of later versions."""
    kb = lawful(
        """
say({"jsonrpc": "2.0", "method": "weather", "params": [1]}, event("mood", humour="good"))
say(event("init", request_id=id, index=0, colour="red"), event("dance", request_id=id, index=1))
say(event("progress", request_id=99, index=0))
say({**result(id, {"new": 1}), "extra": True})
"""
    )
    stream = kb.doctor.stream()
    assert [event["type"] for event in stream] == ["init", "dance"]
    assert stream.result().data == {"new": 1}


def test_answers_in_arrays_and_in_pieces(lawful: Lawful) -> None:
    """One line holds the answers of a batch; the pipe may split a line anywhere."""
    kb = lawful(
        """
held.append(id)
if len(held) == 2: say([result(id, "x" * 300_000) for id in held])
if len(held) == 3:
    for letter in json.dumps(result(id, "é")) + chr(10): write(letter)
"""
    )
    both = [kb.stream("ping") for _ in range(2)]
    assert [len(one.result().data) for one in both] == [300_000] * 2
    assert kb.ping().data == "é"


def test_an_overload_is_met_with_another_try(
    lawful: Lawful, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client sends the same request, token included, and finally raises the error."""
    refuse = 'error(id, "server.overloaded", exit_code=8, retryable=True, retry_after_ms=1)'
    kb = lawful(f"held.append(id)\nsay({refuse} if len(held) < 4 else result(id, 'done'))")
    assert kb.doc.create(title="A", text="a").data == "done"
    sent = [message["params"] for message in received(tmp_path)]
    assert len(sent) == 4 and all(one == sent[0] for one in sent) and sent[0]["client_token"]
    monkeypatch.setattr("kbproc.client.flights._TRIES", 2)
    kb = lawful(f"say({refuse})")
    with pytest.raises(Overloaded):
        kb.ping()
    with pytest.raises(Failed):
        lawful('say(error(id, "store.io", retryable=True, retry_after_ms=1))').ping()


def test_what_waits_for_another_try_is_cancelled_at_once(tmp_path: Path) -> None:
    """The client ends the request itself, because the server never answers a refused one."""
    refuse = 'say(error(id, "server.overloaded", retryable=True, retry_after_ms=3_600_000))'
    server = Server(running(SERVER + indented(refuse)), cwd=tmp_path, env=ENVIRONMENT)
    ends: list[Any] = []
    request = server.ask("ping", {}, timeout=None, on_end=ends.append)
    until(lambda: request.again_at, "the refusal")
    server.cancel(request)
    assert [type(end) for end in ends] == [Cancelled]
    server.close()


def test_an_error_without_an_id_is_of_the_only_request(lawful: Lawful) -> None:
    kb = lawful('say(error(None, "input.invalid_request", exit_code=1))')
    with pytest.raises(KbprocError, match="invalid_request"):
        kb.ping()
    kb = lawful('say({"jsonrpc": "2.0", "id": id, "error": {"code": -32000, "message": "Bare."}})')
    with pytest.raises(KbprocError, match=r"Bare\."):
        kb.ping()


# Two thousand items of a kilobyte; `said` has a byte for each.
MANY = """
if message["method"] == "events.read":
    with open("said", "ab", buffering=0) as said:
        for index in range(2000):
            say(event("item", request_id=id, index=index, item={"text": "x" * 1000}))
            said.write(b"!")
say(result(id, "done"))
"""


@pytest.fixture
def little_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lowers the client's limit of unread events of one stream."""
    for module in ("server", "flights"):
        monkeypatch.setattr(f"kbproc.client.{module}.HELD", 64 << 10)
    monkeypatch.setattr("kbproc.client.flights.MOST_HELD", 256 << 10)


def test_a_stream_that_is_not_read_is_held_back(tmp_path: Path, little_held: None) -> None:
    """An unread stream blocks the server; a reader that continues misses nothing."""
    server = Server(running(SERVER + indented(MANY)), cwd=tmp_path, env=ENVIRONMENT)
    stream = Stream[Any](server, "events.read", {}, None)
    until(lambda: server.holds_back, "a full pipe")
    assert (tmp_path / "said").stat().st_size < 1000
    assert [event["index"] for event in stream] == list(range(2000))
    assert stream.result().data == "done"
    server.close()


def test_who_reads_a_stream_may_ask_meanwhile(lawful: Lawful, little_held: None) -> None:
    """The client reads the events of the stream that stand before the other answer."""
    kb = lawful(MANY.replace("2000", "100"))
    stream = kb.events.read.stream()
    assert [kb.ping().data for event in stream if event["index"] % 50 == 0] == ["done"] * 2
    stream = kb.events.read.stream()
    stream.cancel()
    assert len(list(stream)) == 100


def test_a_stream_that_is_never_read_gives_way(lawful: Lawful, little_held: None) -> None:
    """The unread stream fails, because other answers stand behind its events."""
    kb = lawful(MANY)
    stream = kb.events.read.stream()
    assert kb.ping().data == "done"
    with pytest.raises(LimitReached, match="were not read") as error:
        list(stream)
    assert (error.value.type, error.value.retryable) == ("client.unread", False)


DIES_ONCE = """
if not os.path.exists("died"):
    open("died", "w").close()
    FIRST
    os._exit(9)
"""


def test_a_line_that_a_death_has_torn_was_never_said(lawful: Lawful, tmp_path: Path) -> None:
    """The client sends the request again with the same token after a half-written answer."""
    torn = DIES_ONCE.replace("FIRST", 'write(json.dumps(result(id, "torn"))[:-3])')
    kb = lawful(torn + "say(result(id, 'whole'))")
    assert kb.note.put("a-b", "text").data == "whole"
    first, second = received(tmp_path)
    assert first == second and first["params"]["client_token"]


def test_what_is_unknown_to_the_client_is_not_asked_twice(lawful: Lawful, tmp_path: Path) -> None:
    """The client does not repeat an unknown method, because it might be a write."""
    kb = lawful(DIES_ONCE.replace("FIRST", "pass") + "say(result(id, 'whole'))")
    with pytest.raises(KbprocError, match=r"asked later\.thing, which this client does not know"):
        kb.call("later.thing", x=1)
    assert len(received(tmp_path)) == 1
    assert kb.call("later.thing").data == "whole"


def test_a_cancel_outlives_the_server(lawful: Lawful, tmp_path: Path) -> None:
    """The client repeats request and cancellation, and raises the second server's outcome."""
    kb = lawful(
        """
if message["method"] == "$/cancel":
    if not os.path.exists("died"):
        open("died", "w").close()
        os._exit(9)
    say(error(params["id"], "operation.cancelled", exit_code=9))
"""
    )
    stream = kb.doc.ingest.stream(["docs"])
    stream.cancel()
    with pytest.raises(Cancelled):
        stream.result()
    methods = [message["method"] for message in received(tmp_path)]
    assert methods == ["doc.ingest", "$/cancel"] * 2


def test_items_that_came_before_come_once(lawful: Lawful) -> None:
    kb = lawful(
        """
say(event("init", request_id=id, index=0))
for n in range(1, 4):
    say(event("item", request_id=id, index=n, item={"n": n}))
    if n == 2 and not os.path.exists("died"):
        open("died", "w").close()
        os._exit(9)
say(result(id, None))
"""
    )
    events = list(kb.store.export.stream())
    assert [event["index"] for event in events] == list(range(5))
    assert [event["item"]["n"] for event in events if "item" in event] == [1, 2, 3]
    assert [event["type"] for event in events] == ["init", "item", "item", "warning", "item"]


def test_a_server_that_reads_no_more_is_ended(
    lawful: Lawful, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kbproc.client.server._DRAINS", 0.05)
    kb = lawful("while True: pass")
    wait = kb.stream("ping", {"padding": "x" * 500_000})
    more = kb.stream("ping", {"padding": "x" * 500_000})
    kb.close()
    for stream in (wait, more):
        with pytest.raises(Closed):
            stream.result()


def test_a_pipe_that_is_full_holds_nobody(lawful: Lawful, tmp_path: Path) -> None:
    """Callers queue their lines without blocking while the server does not read."""
    kb = lawful("while not os.path.exists('go'): pass\nsay(result(id, None))")
    waits = [kb.stream("ping", {"padding": "x" * 50_000}) for _ in range(20)]
    until((tmp_path / "seen").exists, "the server")
    (tmp_path / "go").touch()
    assert [one.result().data for one in waits] == [None] * 20
