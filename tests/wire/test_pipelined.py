"""Writes that a client sends without waiting: kept in order, and many in one commit."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kbproc.base import failpoints
from tests.conftest import OpenSession
from tests.kit.patience import PATIENCE, until
from tests.kit.talk import Session, as_bytes, parsed, request


class Disk:
    """Counts the log's syncs, and holds them until the test lets them go."""

    def __init__(self) -> None:
        self.syncs = 0
        self.reached, self._go_on = threading.Event(), threading.Event()

    def hold(self) -> None:
        failpoints.arm(self._sync)

    def _sync(self, point: str) -> None:
        if point == "log.sync":
            self.syncs += 1
            self.reached.set()
            assert self._go_on.wait(PATIENCE)

    def let_go(self) -> None:
        self._go_on.set()


@pytest.fixture
def disk() -> Iterator[Disk]:
    disk = Disk()
    yield disk
    disk.let_go()
    failpoints.arm(None)


def create(id: int, **more: Any) -> bytes:
    return as_bytes(request(id, "doc.create", title=f"Title {id}", text=f"text {id}", **more))


def answers(session: Session, count: int) -> dict[int, Any]:
    """Returns answers by id, in their order of arrival."""
    by_id = {}
    while len(by_id) < count:
        message = parsed(session.receive())
        if "id" in message:
            by_id[message["id"]] = message
    return by_id


def test_they_share_a_commit(open_session: OpenSession, disk: Disk) -> None:
    session = open_session()
    disk.hold()
    session.send(create(0))
    assert disk.reached.wait(PATIENCE)
    for id in range(1, 41):
        session.send(create(id))
    until(lambda: session.connection.in_flight == 41, "all writes in their turn")
    disk.let_go()
    by_id = answers(session, 41)
    assert disk.syncs == 2
    assert list(by_id) == list(range(41)), "they are answered in their order, too"
    assert [by_id[id]["result"]["data"]["id"] for id in range(41)] == list(range(1, 42))


# Courses of writes: an earlier one changes something that a later one checks.
COURSES: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "a knowledge base": [
        ("doc.create", {"title": "A", "text": "a", "kb": "new"}),
        ("kb.create", {"slug": "new"}),
        ("doc.create", {"title": "B", "text": "b", "kb": "new"}),
        ("kb.create", {"slug": "new"}),
    ],
    "a source": [
        ("doc.create", {"title": "A", "text": "a", "source_id": "one"}),
        ("doc.create", {"title": "B", "text": "b", "source_id": "two"}),
        ("doc.create", {"title": "C", "text": "c", "source_id": "one"}),
    ],
    "a token": [
        ("doc.create", {"title": "A", "text": "a", "client_token": "t"}),
        ("doc.create", {"title": "B", "text": "b"}),
        ("doc.create", {"title": "A", "text": "a", "client_token": "t"}),
        ("doc.create", {"title": "C", "text": "c", "client_token": "t"}),
        ("kb.create", {"slug": "new", "client_token": "t"}),
        ("kb.create", {"slug": "new", "client_token": "t"}),
    ],
    "a document": [
        ("doc.create", {"title": "A", "text": "a"}),
        ("doc.update", {"id": 1, "title": "B"}),
        ("doc.create", {"title": "C", "text": "c"}),
        ("doc.update", {"id": 1, "text": "b", "expected_revision": 2}),
        ("doc.update", {"id": 1, "text": "d", "expected_revision": 2}),
        ("doc.update", {"id": 3, "title": "E"}),
    ],
    "entries": [
        ("knowledge.store", {"title": "A", "body": "a"}),
        ("knowledge.store", {"title": "B", "body": "b"}),
        ("knowledge.supersede", {"old_id": 1, "new_id": 2}),
        ("knowledge.supersede", {"old_id": 2, "new_id": 1}),
        ("doc.create", {"title": "C", "text": "c"}),
        ("knowledge.unsupersede", {"old_id": 1}),
    ],
    "agents and their notes": [
        ("note.put", {"agent": "ann", "slug": "tide", "text": "# Tide"}),
        ("agent.create", {"slug": "ann"}),
        ("doc.create", {"title": "C", "text": "c"}),
        ("agent.create", {"slug": "ann"}),
        ("agent.update", {"slug": "ann", "description": "An agent."}),
    ],
}


def outcome(message: Any) -> Any:
    """Returns the parts of an answer that do not depend on time or on embedding."""
    if "error" in message:
        return message["error"]["data"]["type"], message["error"]["data"].get("field")
    items = message["result"]["data"].items()
    data = {key: value for key, value in items if not key.endswith(("_at", "folder", "status"))}
    return data, message["result"]["meta"].get("duplicate")


@pytest.mark.parametrize("course", COURSES)
def test_all_at_once_is_as_one_by_one(
    open_session: OpenSession, tmp_path: Path, disk: Disk, course: str
) -> None:
    alone, together = open_session(tmp_path / "alone"), open_session(tmp_path / "together")
    expected = [outcome(alone.ask(method, **params)) for method, params in COURSES[course]]
    disk.hold()
    together.send(as_bytes(request(0, "kb.update", slug="default", description="Held.")))
    assert disk.reached.wait(PATIENCE)
    for id, (method, params) in enumerate(COURSES[course], 1):
        together.send(as_bytes(request(id, method, **params)))
    disk.let_go()
    by_id = answers(together, len(expected) + 1)
    assert [outcome(by_id[id]) for id in range(1, len(expected) + 1)] == expected
    for session in (alone, together):
        findings = session.data("doctor", deep=True)["findings"]
        assert [one for one in findings if one["status"] == "fail"] == []


def test_one_that_looks_first_sees_those_before(session: Session) -> None:
    session.send(create(1))
    session.send(as_bytes(request(2, "doc.update", id=1, text="another text")))
    session.send(as_bytes(request(3, "agent.create", slug="ann")))
    session.send(as_bytes(request(4, "note.put", agent="ann", slug="tide", text="# Tide")))
    session.send(as_bytes(request(5, "note.put", agent="ann", slug="tide", text="# Ebb")))
    by_id = answers(session, 5)
    assert [message for message in by_id.values() if "error" in message] == []
    assert by_id[2]["result"]["data"]["revision"] == 2
    assert session.data("note.get", agent="ann", slug="tide")["title"] == "Ebb"


def test_one_that_is_refused_holds_up_nobody(session: Session) -> None:
    for id in range(30):
        session.send(create(id, kb="nowhere") if id % 3 else create(id))
    by_id = answers(session, 30)
    ids = [by_id[id]["result"]["data"]["id"] for id in range(0, 30, 3)]
    assert ids == sorted(ids)
    assert {by_id[id]["error"]["data"]["type"] for id in range(30) if id % 3} == {
        "resource.not_found"
    }


def test_one_that_fails_unexpectedly_is_answered_in_its_turn(
    open_session: OpenSession, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error waits for the answers to earlier writes."""
    session = open_session()
    registry = session.service.registry
    methods = registry.methods

    def fail(*arguments: Any) -> Any:
        raise RuntimeError("nobody has thought of this")

    broken = msgspec.structs.replace(methods["kb.create"], handler=fail)
    monkeypatch.setattr(registry, "methods", {**methods, "kb.create": broken})
    disk.hold()
    session.send(create(0))
    assert disk.reached.wait(PATIENCE)
    session.send(create(1))
    session.send(as_bytes(request(2, "kb.create", slug="books")))
    session.send(create(3))
    until(lambda: session.connection.in_flight == 4, "all writes in their turn")
    disk.let_go()
    by_id = answers(session, 4)
    assert list(by_id) == [0, 1, 2, 3]
    assert by_id[2]["error"]["data"]["type"] == "internal.error"


def test_one_that_may_take_long_to_read_holds_up_none_before_it(
    open_session: OpenSession, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = open_session()
    read = threading.Event()
    parsers = session.library.parsers.get()
    real = parsers.parse

    def parse(*arguments: Any) -> Any:
        assert read.wait(PATIENCE)
        return real(*arguments)

    monkeypatch.setattr(parsers, "parse", parse)
    disk.hold()
    session.send(create(0))
    assert disk.reached.wait(PATIENCE)
    session.send(create(1))
    text = "a long text " * 1000
    session.send(as_bytes(request(2, "doc.create", title="Long", text=text, type="markdown")))
    until(lambda: session.connection.in_flight == 3, "all writes in their turn")
    disk.let_go()
    assert list(answers(session, 2)) == [0, 1]
    read.set()
    assert "result" in answers(session, 1)[2]
