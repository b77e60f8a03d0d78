"""kill -9 of the server during writes and streams: repeated requests take effect once."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from kbproc.client import Closed, Conflict, KbprocError, ServerEnded
from tests.client.conftest import Open
from tests.kit import llm
from tests.kit.faults import bytes_of
from tests.kit.harness import running, serving
from tests.kit.patience import LONG, until

WORDS = ["It", "is", "installed", "by", "make"]  # the words of an answer


def dies_at(point: str) -> str:
    """Returns a program: a server that dies when any process first reaches the point."""
    return f"""
import os, pathlib, signal
from kbproc.base import failpoints
from kbproc.base.pipes import leave
from tests.kit import fixed

def die(reached):
    if reached == {point!r} and pathlib.Path("armed").exists():
        pathlib.Path("armed").unlink()
        os.kill(os.getpid(), signal.SIGKILL)

failpoints.arm(die)
leave(fixed.main())
"""


def dying_at(folder: Path, point: str) -> list[str]:
    return running(dies_at(point), *serving(folder / "store")[3:])


def titles(kb: Any) -> Counter[str]:
    """Returns title → count of documents, as the store itself counts them."""
    rows = kb.call("sql.query", sql="select title, count(*) from documents group by 1", limit=1000)
    return Counter(dict(rows.data["rows"]))


@pytest.mark.parametrize("point", ["log.write", "log.torn", "log.written", "log.synced"])
def test_a_write_that_is_cut_off_happens_once(opened: Open, tmp_path: Path, point: str) -> None:
    """The server dies before the log has the write, with half of it, or before the answer."""
    kb = opened(command=dying_at(tmp_path, point))
    kb.ready()
    (tmp_path / "armed").touch()
    added = kb.doc.create(title="A", text="a").data
    assert (kb.restarts, titles(kb)) == (1, {"A": 1})
    assert kb.doc.get(added["id"]).data["title"] == "A"


def test_killed_again_and_again(opened: Open, tmp_path: Path) -> None:
    """Ten callers write during kills: every call succeeds, and each write is stored once."""
    kb = opened()
    kb.ready()
    kills, per_caller = (4, 30) if LONG else (2, 10)

    def write(caller: int) -> list[int]:
        documents = [kb.doc.create(title=f"{caller}.{n}", text="x") for n in range(per_caller)]
        return [one.data["id"] for one in documents]

    log = tmp_path / "store" / "log"
    with ThreadPoolExecutor(10) as pool:
        waits = [pool.submit(write, caller) for caller in range(10)]
        for _ in range(kills):
            before, dead = bytes_of(log), kb.pid
            until(lambda before=before: bytes_of(log) > before + 5000, "writes")
            os.kill(dead, signal.SIGKILL)
            until(lambda dead=dead: kb.pid not in (None, dead), "another server")
        ids = [id for wait in waits for id in wait.result()]
    assert len(set(ids)) == 10 * per_caller
    assert set(titles(kb).values()) == {1} and len(titles(kb)) == 10 * per_caller
    assert kb.restarts == kills


# ------------------------------------------------------------------------- streams


@pytest.fixture
def endpoint() -> Iterator[llm.Endpoint]:
    """Serves a model whose first answer stops half-way; all later ones finish."""
    words = [llm.say(f"{word} ") for word in WORDS]

    def script(question: str) -> list[llm.Step]:
        first = len(endpoint.asked) == 1
        return [*words[:3], llm.hang] if first else [*words, llm.finish()]

    with llm.endpoint(script) as endpoint:
        yield endpoint


def test_an_answer_that_is_cut_off_comes_to_its_end(
    either: Open, tmp_path: Path, endpoint: llm.Endpoint
) -> None:
    """The client repeats the chat under its token; the reader's indexes have no gap."""
    it = either(command=serving(tmp_path / "store", llm=endpoint.url))
    kb = it.kb
    it.ask(kb.doc.create, title="Git", text="Git is installed by make.")
    it.ask(kb.doc.wait)
    stream = it.stream(kb.chat, "How is git installed?")
    events: list[Any] = []
    for event in it.events(stream):
        events.append(event)
        if event.get("delta") and kb.restarts == 0:
            os.kill(kb.pid, signal.SIGKILL)
    assert [event["index"] for event in events] == list(range(len(events)))
    assert [event["type"] for event in events].count("init") == 1
    assert [e.get("kind") for e in events if e["type"] == "warning"] == [None, "restarted"]
    cursors = [event["cursor"] for event in events if "cursor" in event]
    assert len(cursors) == len(set(cursors)), "a piece came twice"
    data = it.result(stream).data
    assert (data["status"], data["text"].split()) == ("finished", WORDS)
    text = ""
    for event in events:
        text = "" if event.get("kind") == "restarted" else text + event.get("delta", "")
    assert text == data["text"]
    assert it.ask(kb.session.get, data["session_id"]).data["message_count"] == 1


def test_a_resume_goes_on_from_its_cursor(
    opened: Open, tmp_path: Path, endpoint: llm.Endpoint
) -> None:
    """A resume only reads, so the interrupted answer stays interrupted."""
    kb = opened(command=serving(tmp_path / "store", llm=endpoint.url))
    kb.doc.create(title="Git", text="Git is installed by make.")
    kb.doc.wait()
    chat = kb.chat.stream("How is git installed?")
    for event in chat:
        if event.get("delta"):
            message = event["message_id"]
            break
    resumed = kb.session.resume.stream(1, message)
    events = []
    for event in resumed:
        events.append(event)
        if event.get("delta") and kb.restarts == 0:
            os.kill(kb.pid, signal.SIGKILL)
    assert [event["index"] for event in events] == list(range(len(events)))
    cursors = [event["cursor"] for event in events if "cursor" in event]
    assert len(cursors) == len(set(cursors))
    assert resumed.result().data["status"] in {"interrupted", "stopped"}


def test_a_subscription_goes_on_after_its_last_record(either: Open) -> None:
    it = either()
    kb = it.kb
    it.ask(kb.doc.create, title="A", text="a")
    events = it.events(it.stream(kb.events.subscribe))
    assert next(events)["type"] == "init"
    it.ask(kb.doc.create, title="B", text="b")
    first = next(events)
    os.kill(kb.pid, signal.SIGKILL)
    it.ask(kb.doc.create, title="C", text="c")
    warning, second = next(events), next(events)
    assert [e["index"] for e in (first, warning, second)] == [1, 2, 3]
    assert warning["type"] == "warning"
    assert second["item"]["seq"] == first["item"]["seq"] + 1
    it.leave(events)


def test_an_ingest_that_is_cut_off_goes_on(opened: Open, tmp_path: Path) -> None:
    folder = tmp_path / "docs"
    folder.mkdir()
    for number in range(12):
        (folder / f"{number}.md").write_text(f"# Page {number}\n\nWords of page {number}.\n")
    kb = opened(command=dying_at(tmp_path, "log.synced"))
    kb.ready()
    (tmp_path / "armed").touch()
    stream = kb.doc.ingest.stream(["docs"])
    events = list(stream)
    assert [event["index"] for event in events] == list(range(len(events)))
    assert kb.restarts == 1
    assert stream.result().data["failed"] == 0
    assert titles(kb) == {f"Page {number}": 1 for number in range(12)}


# --------------------------------------------------------------------------- limits


def refusal(opened: Open, program: str, **options: Any) -> KbprocError:
    kb = opened(command=running(program), **options)
    with pytest.raises(KbprocError) as refused:
        kb.ping()
    return refused.value


_INIT = 'print(\'{"jsonrpc":"2.0","method":"event","params":{"type":"init"}}\', flush=True)\n'


def test_a_server_that_ends_every_time_is_given_up(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kbproc.client.server._MOST_ENDS", 2)
    error = refusal(opened, _INIT + "import sys; sys.exit(3)")
    assert isinstance(error, ServerEnded)
    assert "3 times within a minute, the last time with exit code 3" in str(error)
    assert error.retryable


def test_a_server_that_cannot_begin_is_not_tried_again(opened: Open, tmp_path: Path) -> None:
    error = refusal(opened, "import sys; sys.exit(2)")
    assert "ended with exit code 2 before its first line" in str(error) and not error.retryable
    error = refusal(opened, "print('hello', flush=True); input()")
    assert "It said what is no JSON: “hello”. The command must be" in str(error)
    kb = opened(command=[str(tmp_path / "nowhere")])
    with pytest.raises(ServerEnded, match=r"can't be started.*nowhere.*pip install kbproc"):
        kb.ping()
    kb = opened(command=serving(tmp_path / "store", protocol="9"))
    with pytest.raises(KbprocError) as refused:
        kb.ping()
    assert refused.value.valid_values


def test_why_it_ended_can_be_read(opened: Open) -> None:
    lines: list[str] = []
    refusal(opened, "import sys; sys.exit('no store today')", on_log=lines.append)
    assert {*lines} == {"no store today"}  # one line for each start


def test_a_store_that_cannot_be_opened_says_why(opened: Open, tmp_path: Path) -> None:
    """The server runs without a store, and answers methods that need none."""
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "novel.txt").write_text("It was a dark night.")
    events: list[dict[str, Any]] = []
    kb = opened(on_event=events.append)
    with pytest.raises(Conflict, match=r"novel.txt.*--store"):
        kb.ready()
    assert kb.version().data["python"].startswith(f"{sys.version_info[0]}.")
    assert [event["type"] for event in events] == ["init", "error"]


def test_a_callback_may_ask(opened: Open) -> None:
    """A callback, in the client's own thread, may start a request but not wait for it."""
    begun = threading.Event()
    waits: list[Any] = []

    def heard(event: dict[str, Any]) -> None:
        if event["type"] == "ready":
            waits.append(clients[0].stream("ping"))
            begun.set()

    clients: list[Any] = []
    clients.append(opened(on_event=heard))
    clients[0].ready()
    begun.wait()
    assert waits[0].result().data["seq"] >= 0


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_callback_that_raises_ends_the_client_and_holds_nobody(opened: Open) -> None:
    """Python reports the thread's exception; later requests fail at once."""

    def heard(event: dict[str, Any]) -> None:
        raise ZeroDivisionError

    kb = opened(on_event=heard)
    with pytest.raises(Closed):
        kb.ping()
    with pytest.raises(Closed):
        kb.ping()
    assert kb.pid is None
