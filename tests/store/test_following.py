"""Many records are folded in and indexed beside the next write, not by the write itself."""

from __future__ import annotations

import threading

import pytest

from kbproc.base import failpoints
from kbproc.engine.store import group
from kbproc.engine.store import store as module
from kbproc.knowledge.app import upkeep
from tests.kit.patience import until
from tests.kit.talk import Session

MANY = 4


@pytest.fixture(autouse=True)
def few_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """The upkeep, which folds in a quiet moment, finds none."""
    monkeypatch.setattr(group, "MOST_WAITING", MANY)
    monkeypatch.setattr(upkeep, "IDLE_SECONDS", 3600.0)


@pytest.fixture
def threads() -> list[str]:
    """Returns a list that gets the name of each thread that commits a projection."""
    names: list[str] = []

    def note(point: str) -> None:
        if point in {"catalog.commit", "fulltext.commit"}:
            names.append(f"{point} in {threading.current_thread().name}")

    failpoints.arm(note)
    return names


def add(session: Session, count: int) -> None:
    for number in range(count):
        session.data("doc.create", title=f"Page {number}", text=f"words {number}")


def test_another_thread_folds_in_many_records(session: Session, threads: list[str]) -> None:
    add(session, MANY)
    until(lambda: not session.store.unfolded.records, "the records in the catalog")
    failpoints.arm(None)
    assert threads == ["catalog.commit in following"]
    assert len(session.data("doc.list")) == MANY


def test_another_thread_indexes_many_chunks(
    session: Session, threads: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MANY_GATHERED", 2)
    add(session, 2)
    until(lambda: session.store.fulltext.gathered == 0, "the chunks in the index")
    failpoints.arm(None)
    assert "fulltext.commit in following" in threads
    assert session.data("search", query="words", mode="fts")["total_matches"] == 2


def test_the_writer_folds_in_too_many_itself(
    session: Session, threads: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other thread may get no processor for a while."""
    asleep = threading.Event()
    sleeper = threading.Thread(target=asleep.wait, daemon=True)
    sleeper.start()
    monkeypatch.setattr(module, "apart", lambda act, name: sleeper)
    try:
        add(session, 3 * MANY)
        assert len(session.store.unfolded.records) < 2 * MANY
    finally:
        asleep.set()
        failpoints.arm(None)
    assert threads and not any("following" in name for name in threads)


def test_the_next_answer_has_a_notice_of_a_failure(session: Session) -> None:
    """No write is refused for it, because all of them are in the log."""

    def fail(point: str) -> None:
        if point == "catalog.commit":
            raise OSError(28, "No space left on device")

    failpoints.arm(fail)
    add(session, MANY)
    until(lambda: session.store.broken is not None, "the failure")
    notice = session.ask("ping")["result"]["meta"]["notice"]
    assert "nothing is lost" in notice[0]
    refused = session.error("doc.create", title="Full", text="words")
    assert (refused["type"], refused["detail"]["kept"]) == ("store.io", False)
    failpoints.arm(None)
    session.data("doc.create", title="Again", text="words")
    assert len(session.data("doc.list")) == MANY + 1
    assert "notice" not in session.ask("ping")["result"]["meta"]
