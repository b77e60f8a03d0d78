"""Clients get notifications of the resources that they watch, and no others."""

from __future__ import annotations

import json
import signal
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kbproc.surfaces.mcp.changes import Changes
from kbproc.surfaces.sharing.reach import state_of
from tests.kit.mcp import MODERN, Client, client
from tests.kit.patience import until
from tests.kit.processes import Crowd

# A server that opens its store once the file `hold` is removed.
OPENS_LATE = """
import pathlib, time
from kbproc.base.pipes import leave
from kbproc.knowledge.app.library import Library
from tests.kit import fixed

open_now = Library.open

def open_late(*words, **given):
    while pathlib.Path("hold").exists():
        time.sleep(0.005)
    return open_now(*words, **given)

Library.open = open_late
leave(fixed.main())
"""
STREAM = "io.modelcontextprotocol/subscriptionId"


@pytest.fixture
def modern(tmp_path: Path) -> Iterator[Client]:
    with client(tmp_path) as one:
        one.data("doc_add", title="One", text="one")
        one.data("doc_add", title="Two", text="two")
        yield one


def listens(one: Client, **notifications: object) -> int:
    id = one.send("subscriptions/listen", notifications=notifications)
    first = one.next()
    assert first["method"] == "notifications/subscriptions/acknowledged"
    assert first["params"] == {"notifications": notifications, "_meta": {STREAM: id}}
    return id


def retitle(one: Client, id: int, title: str) -> None:
    one.data("kb_call", method="doc.update", params={"id": id, "title": title})


def test_a_resource_that_changes_is_told(modern: Client) -> None:
    id = listens(modern, resourceSubscriptions=["kb://doc/2"])
    retitle(modern, 1, "Other")
    retitle(modern, 2, "New")
    messages = modern.told or [modern.until("notifications/resources/updated")]
    updated = [one for one in messages if one["method"] == "notifications/resources/updated"]
    assert updated == [
        {
            "jsonrpc": "2.0",
            "method": "notifications/resources/updated",
            "params": {"uri": "kb://doc/2", "_meta": {STREAM: id}},
        }
    ]


def test_a_new_document_changes_the_list(modern: Client) -> None:
    id = listens(modern, resourcesListChanged=True)
    modern.data("doc_add", title="Three", text="three")
    name = "notifications/resources/list_changed"
    messages = [one for one in modern.told if one["method"] == name] or [modern.until(name)]
    assert messages[0]["params"] == {"_meta": {STREAM: id}}


def test_what_is_not_honoured_is_not_acknowledged(modern: Client) -> None:
    notifications = {
        "toolsListChanged": True,
        "resourceSubscriptions": ["kb://else/1", "kb://doc/1"],
    }
    modern.send("subscriptions/listen", notifications=notifications)
    first = modern.next()
    assert first["params"]["notifications"] == {"resourceSubscriptions": ["kb://doc/1"]}


def test_a_stream_that_was_cancelled_tells_no_more(modern: Client) -> None:
    first = listens(modern, resourceSubscriptions=["kb://doc/1"])
    second = listens(modern, resourceSubscriptions=["kb://doc/1"])
    modern.notify("notifications/cancelled", requestId=first)
    retitle(modern, 1, "New")
    name = "notifications/resources/updated"
    messages = [one for one in modern.told if one["method"] == name] or [modern.until(name)]
    assert [one["params"]["_meta"][STREAM] for one in messages] == [second]


def test_a_client_of_the_older_era_subscribes(tmp_path: Path) -> None:
    with client(tmp_path, era="2025-11-25") as one:
        one.data("doc_add", title="One", text="one")
        assert one.ask("resources/subscribe", uri="kb://doc/1")["result"] == {}
        retitle(one, 1, "New")
        name = "notifications/resources/updated"
        messages = [line for line in one.told if line["method"] == name] or [one.until(name)]
        assert messages[0]["params"] == {"uri": "kb://doc/1"}
        assert one.ask("resources/unsubscribe", uri="kb://doc/1")["result"] == {}
        assert one.ask("resources/subscribe", uri="kb://x")["error"]["code"] == -32002


def test_nobody_can_watch_nothing(modern: Client) -> None:
    answer = modern.ask("subscriptions/listen", notifications=[])
    assert answer["error"]["code"] == -32602
    assert modern.era == MODERN


def test_a_store_that_could_not_be_had_for_a_while_is_watched_on(tmp_path: Path) -> None:
    """The owner is stopped and continued: only the document that then changes is reported."""
    with Crowd(tmp_path) as crowd:
        owner = crowd.join()
        owner.data("doc.create", title="One", text="one")
        owner.data("doc.create", title="Two", text="two")
        with client(tmp_path, era="2025-11-25", real=1, stopped_seconds=0.2) as one:
            for id in (1, 2):
                one.ask("resources/subscribe", uri=f"kb://doc/{id}")
            owner.kill(signal.SIGSTOP)
            until(lambda: state_of(owner.pid) == "stopped", "a stopped owner")
            refused = one.call("doc_list")
            assert refused["_meta"]["kbproc/error"]["type"] == "store.locked"
            owner.kill(signal.SIGCONT)
            owner.data("doc.update", id=1, title="New")
            assert one.until("notifications/resources/updated")["params"] == {"uri": "kb://doc/1"}
            updated = [message for message in one.told if message["method"].endswith("/updated")]
            assert updated == []


class ScriptedStore:
    """A store that answers requests at once, and a ping when the log grows."""

    def __init__(self) -> None:
        self.seq = 1
        self.asked: list[str] = []  # methods, without pings
        self.pings: list[Callable[[Any], None]] = []

    def ask(self, method: str, params: Any, on_answer: Callable[[Any], None]) -> None:
        if method == "ping":
            self.pings.append(on_answer)
            return
        self.asked.append(method)
        on_answer({"result": {"meta": {"total": self.seq}, "data": bytearray(1000)}})

    def move(self) -> None:
        self.seq += 1
        answered, self.pings = self.pings, []
        for on_answer in answered:
            on_answer({"result": {"meta": {"seq": self.seq}}})


class Subscribes:
    """A subscription request of the older era."""

    id = 1
    session = SimpleNamespace(is_open=lambda request: True)

    def __init__(self, number: int) -> None:
        self.params = {"uri": f"kb://doc/{number}"}

    def reply(self, result: Any) -> None:
        pass


def changes_of(store: ScriptedStore, lines: list[bytes]) -> Any:
    return Changes(store, lines.append, lambda *words: [])  # type: ignore[arg-type]


def test_what_is_watched_no_more_is_forgotten() -> None:
    changes = changes_of(ScriptedStore(), [])

    def watch(rounds: int) -> int:
        """Returns how many bytes are in use afterwards."""
        for number in range(1, rounds):
            changes.subscribe(Subscribes(number))
            changes.unsubscribe(Subscribes(number))
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        before = watch(100)
        assert watch(2000) - before < 200_000
    finally:
        tracemalloc.stop()


def test_where_nothing_is_watched_any_more_nothing_is_asked_and_told() -> None:
    store, lines = ScriptedStore(), list[bytes]()
    changes = changes_of(store, lines)
    for number in (1, 2):
        changes.subscribe(Subscribes(number))
    store.move()
    changes.unsubscribe(Subscribes(1))
    lines.clear()
    store.move()
    methods = {json.loads(line)["method"] for line in lines}
    assert methods == {"notifications/resources/updated", "notifications/resources/list_changed"}

    changes.unsubscribe(Subscribes(2))
    store.asked.clear()
    lines.clear()
    for _ in range(3):
        store.move()
    assert (store.asked, lines, store.pings) == ([], [], [])

    changes.subscribe(Subscribes(1))
    store.move()
    store.move()
    assert lines and store.pings


def test_the_first_list_waits_for_no_store(tmp_path: Path) -> None:
    """The first list is empty; a notification follows as soon as the store is open."""
    with client(tmp_path) as one:
        one.data("doc_add", title="One", text="one")
    (tmp_path / "hold").touch()
    with client(tmp_path, era="2025-06-18", program=OPENS_LATE, list_patience=0.05) as one:
        assert one.ask("resources/list")["result"]["resources"] == []
        (tmp_path / "hold").unlink()
        assert "params" in one.until("notifications/resources/list_changed")
        listed = one.ask("resources/list")["result"]["resources"]
        assert [resource["name"] for resource in listed] == ["One"]


def test_a_first_list_that_is_empty_is_not_told_to_change(tmp_path: Path) -> None:
    (tmp_path / "hold").touch()
    with client(tmp_path, era="2025-06-18", program=OPENS_LATE, list_patience=0.05) as one:
        assert one.ask("resources/list")["result"]["resources"] == []
        (tmp_path / "hold").unlink()
        assert one.call("kb_list")["isError"] is False
        assert one.told == []


class Listens:
    """A stream's request whose client cancels it as soon as it reads the acknowledgement."""

    id = 7
    params: dict[str, Any] = {"notifications": {"resourceSubscriptions": ["kb://doc/1"]}}
    is_open = True

    def __init__(self) -> None:
        self.session = SimpleNamespace(is_open=lambda request: self.is_open)
        self.on_cancel: Callable[[], None] = lambda: None

    def cancel(self, line: bytes) -> None:
        self.is_open = False
        self.on_cancel()


def test_a_stream_cancelled_at_its_acknowledgement_is_not_watched() -> None:
    store, request = ScriptedStore(), Listens()
    changes: Any = Changes(store, request.cancel, lambda *words: [])  # type: ignore[arg-type]
    changes.listen(request, frozenset())
    store.move()
    assert store.pings == []


def test_a_subscription_that_ends_with_its_answer_is_not_watched() -> None:
    store, lines = ScriptedStore(), list[bytes]()
    changes = changes_of(store, lines)
    request = Subscribes(1)
    request.reply = lambda result: changes.unsubscribe(Subscribes(1))  # type: ignore[method-assign]
    changes.subscribe(request)
    store.move()
    assert store.pings == []
