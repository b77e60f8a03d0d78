"""Clients are told of what they watch, and of nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.mcp import MODERN, Client, client

# Opens its store once the file `hold` has gone.
OPENS_LATE = """
import pathlib, time
from kbproc.base.pipes import leave
from kbproc.library.library import Library
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


def listens(one: Client, **wanted: object) -> int:
    id = one.send("subscriptions/listen", notifications=wanted)
    first = one.next()
    assert first["method"] == "notifications/subscriptions/acknowledged"
    assert first["params"] == {"notifications": wanted, "_meta": {STREAM: id}}
    return id


def retitle(one: Client, id: int, title: str) -> None:
    one.data("kb_call", method="doc.update", params={"id": id, "title": title})


def test_a_resource_that_changes_is_told(modern: Client) -> None:
    id = listens(modern, resourceSubscriptions=["kb://doc/2"])
    retitle(modern, 1, "Other")
    retitle(modern, 2, "New")
    told = modern.told or [modern.until("notifications/resources/updated")]
    updated = [one for one in told if one["method"] == "notifications/resources/updated"]
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
    told = [one for one in modern.told if one["method"] == name] or [modern.until(name)]
    assert told[0]["params"] == {"_meta": {STREAM: id}}


def test_what_is_not_honoured_is_not_acknowledged(modern: Client) -> None:
    wanted = {"toolsListChanged": True, "resourceSubscriptions": ["kb://else/1", "kb://doc/1"]}
    modern.send("subscriptions/listen", notifications=wanted)
    first = modern.next()
    assert first["params"]["notifications"] == {"resourceSubscriptions": ["kb://doc/1"]}


def test_a_stream_that_was_cancelled_tells_no_more(modern: Client) -> None:
    first = listens(modern, resourceSubscriptions=["kb://doc/1"])
    second = listens(modern, resourceSubscriptions=["kb://doc/1"])
    modern.notify("notifications/cancelled", requestId=first)
    retitle(modern, 1, "New")
    name = "notifications/resources/updated"
    told = [one for one in modern.told if one["method"] == name] or [modern.until(name)]
    assert [one["params"]["_meta"][STREAM] for one in told] == [second]


def test_a_client_of_the_older_era_subscribes(tmp_path: Path) -> None:
    with client(tmp_path, era="2025-11-25") as one:
        one.data("doc_add", title="One", text="one")
        assert one.ask("resources/subscribe", uri="kb://doc/1")["result"] == {}
        retitle(one, 1, "New")
        name = "notifications/resources/updated"
        told = [said for said in one.told if said["method"] == name] or [one.until(name)]
        assert told[0]["params"] == {"uri": "kb://doc/1"}
        assert one.ask("resources/unsubscribe", uri="kb://doc/1")["result"] == {}
        assert one.ask("resources/subscribe", uri="kb://x")["error"]["code"] == -32002


def test_nobody_can_watch_nothing(modern: Client) -> None:
    answer = modern.ask("subscriptions/listen", notifications=[])
    assert answer["error"]["code"] == -32602
    assert modern.era == MODERN


def test_the_first_list_waits_for_no_store(tmp_path: Path) -> None:
    """A store that takes long to open is told of as soon as it is open."""
    with client(tmp_path) as one:
        one.data("doc_add", title="One", text="one")
    (tmp_path / "hold").touch()
    with client(tmp_path, era="2025-06-18", program=OPENS_LATE, list_patience=0.05) as one:
        assert one.ask("resources/list")["result"]["resources"] == []
        (tmp_path / "hold").unlink()
        assert "params" in one.until("notifications/resources/list_changed")
        listed = one.ask("resources/list")["result"]["resources"]
        assert [found["name"] for found in listed] == ["One"]


def test_a_first_list_that_is_empty_is_not_told_to_change(tmp_path: Path) -> None:
    (tmp_path / "hold").touch()
    with client(tmp_path, era="2025-06-18", program=OPENS_LATE, list_patience=0.05) as one:
        assert one.ask("resources/list")["result"]["resources"] == []
        (tmp_path / "hold").unlink()
        assert one.call("kb_list")["isError"] is False
        assert one.told == []
