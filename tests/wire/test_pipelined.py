"""Writes that a client sends without waiting: in their order, and many in one commit."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from kbproc.base import failpoints
from tests.conftest import OpenSession
from tests.kit.patience import PATIENCE, until
from tests.kit.talk import Session, as_bytes, parsed, request


class Disk:
    """The log's syncs: they wait until they are let go, and are counted."""

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
    yield (made := Disk())
    made.let_go()
    failpoints.arm(None)


def create(id: int, **more: Any) -> bytes:
    return as_bytes(request(id, "doc.create", title=f"Title {id}", text=f"text {id}", **more))


def answers(session: Session, count: int) -> dict[int, Any]:
    """By id, in the order in which they came."""
    found = {}
    while len(found) < count:
        message = parsed(session.receive())
        if "id" in message:
            found[message["id"]] = message
    return found


def test_they_share_a_commit(open_session: OpenSession, disk: Disk) -> None:
    session = open_session()
    disk.hold()
    session.send(create(0))
    assert disk.reached.wait(PATIENCE)
    for id in range(1, 41):
        session.send(create(id))
    until(lambda: session.store.turns.queued == 40, "all writes in their turn")
    disk.let_go()
    found = answers(session, 41)
    assert disk.syncs == 2
    assert list(found) == list(range(41)), "they are answered in their order, too"
    assert [found[id]["result"]["data"]["id"] for id in range(41)] == list(range(1, 42))


def test_one_that_looks_first_sees_those_before(session: Session) -> None:
    session.send(create(1))
    session.send(as_bytes(request(2, "doc.update", id=1, text="another text")))
    session.send(as_bytes(request(3, "agent.create", slug="ann")))
    session.send(as_bytes(request(4, "note.put", agent="ann", slug="tide", text="# Tide")))
    session.send(as_bytes(request(5, "note.put", agent="ann", slug="tide", text="# Ebb")))
    found = answers(session, 5)
    assert [message for message in found.values() if "error" in message] == []
    assert found[2]["result"]["data"]["revision"] == 2
    assert session.data("note.get", agent="ann", slug="tide")["title"] == "Ebb"


def test_one_that_is_refused_holds_up_nobody(session: Session) -> None:
    for id in range(30):
        session.send(create(id, kb="nowhere") if id % 3 else create(id))
    found = answers(session, 30)
    made = [found[id]["result"]["data"]["id"] for id in range(0, 30, 3)]
    assert made == sorted(made)
    assert {found[id]["error"]["data"]["type"] for id in range(30) if id % 3} == {
        "resource.not_found"
    }


def test_one_that_fails_unexpectedly_is_answered_in_its_turn(
    open_session: OpenSession, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its answer waits for those of the writes that came before it."""
    session = open_session()
    methods = session.service.registry.methods
    failed = threading.Event()

    def fail(*arguments: Any) -> Any:
        failed.set()
        raise RuntimeError("nobody has thought of this")

    broken = msgspec.structs.replace(methods["kb.create"], handler=fail)
    monkeypatch.setitem(methods, "kb.create", broken)
    disk.hold()
    session.send(create(1))
    assert disk.reached.wait(PATIENCE)
    session.send(as_bytes(request(2, "kb.create", slug="books")))
    assert failed.wait(PATIENCE)
    session.send(create(3))
    until(lambda: session.store.turns.queued == 1, "the third in its turn")
    disk.let_go()
    found = answers(session, 3)
    assert list(found) == [1, 2, 3]
    assert found[2]["error"]["data"]["type"] == "internal.error"
