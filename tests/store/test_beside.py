"""A process beside the owner indexes many chunks, and the owner does where that process fails."""

from __future__ import annotations

import resource
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kbproc.base import failpoints, sandbox
from kbproc.engine.projections.catalog.catalog import Catalog
from kbproc.engine.store import store as module
from kbproc.knowledge.app import upkeep
from kbproc.knowledge.app.health import doctor
from tests.conftest import OpenSession
from tests.kit.corpus import confirmed
from tests.kit.patience import PATIENCE, until
from tests.kit.processes import processes_in
from tests.kit.talk import Process, Session, as_bytes, request

# A server as tests start it, where three chunks go to the process.
OWNER = """
from kbproc.engine.store import store
from tests.kit import fixed
store._BULK_CHUNKS, store.processors = 2, lambda: 2
fixed.leave(fixed.main())
"""
POINTS = ("beside.sent", "fulltext.commit", "beside.committed")


@pytest.fixture(autouse=True)
def few_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three chunks go to the process, and no quiet moment commits the index."""
    monkeypatch.setattr(module, "BESIDE_CHUNKS", 2)
    monkeypatch.setattr(module, "_BULK_CHUNKS", 2)
    monkeypatch.setattr(module, "processors", lambda: 2)
    monkeypatch.setattr(upkeep, "IDLE_SECONDS", 3600.0)


def add(session: Session, *texts: str) -> None:
    documents = [{"title": f"Page {text}", "text": text} for text in texts]
    session.data("doc.create", documents=documents)


def is_whole(session: Session) -> bool:
    return session.store.indexed is not None and session.store.indexed.seq == session.store.seq


def found(session: Session, query: str) -> int:
    total: int = session.data("search", query=query, mode="fts")["total_matches"]
    return total


def process_of(session: Session) -> sandbox.Child | None:
    return session.store.fulltext._process


def is_as_built_anew(session: Session, bench: Catalog) -> bool:
    return not any(doctor.compare(session.store, bench).values())


def at(point: str, act: Callable[[], Any]) -> None:
    """Calls `act` when the point is reached for the first time."""

    def reached(name: str) -> None:
        if name == point:
            failpoints.arm(None)
            act()

    failpoints.arm(reached)


def test_the_process_gets_later_chunks_too_and_ends_in_a_pause(
    session: Session, bench: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(session, "one", "two", "three")
    until(lambda: is_whole(session), "the chunks in the index")
    process = process_of(session)
    assert process is not None and process.process.poll() is None
    confirmed(session, "doc.delete", ids=[1])
    add(session, "four")
    assert [found(session, word) for word in ("one", "four", "page")] == [0, 1, 3]
    assert process_of(session) is process
    monkeypatch.setattr(module, "_IDLE_S", 0.01)
    add(session, "five", "six", "seven")
    until(lambda: process_of(session) is None, "the end of the process")
    assert process.process.returncode is not None
    add(session, "eight")
    assert found(session, "page") == 7
    assert is_as_built_anew(session, bench)


@pytest.mark.parametrize("point", POINTS)
def test_it_is_killed(session: Session, bench: Catalog, point: str) -> None:
    """The owner indexes what the process had got, and goes on alone."""

    def kill() -> None:
        process = process_of(session)
        assert process is not None
        process.process.kill()
        process.process.wait()

    add(session, "zero")
    assert found(session, "zero") == 1
    at(point, kill)
    add(session, "one", "two", "three")
    until(lambda: is_whole(session), "the chunks in the index")
    add(session, "four", "five", "six")
    assert found(session, "page") == 7
    assert session.store.index_problem is None
    assert process_of(session) is None
    assert is_as_built_anew(session, bench)


def test_no_process_can_be_started(
    session: Session, bench: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: Any, **options: Any) -> Any:
        raise OSError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(sandbox, "popen", refuse)
    add(session, "one", "two", "three")
    until(lambda: is_whole(session), "the chunks in the index")
    assert found(session, "page") == 3
    assert is_as_built_anew(session, bench)


def test_its_disk_is_full(session: Session, bench: Catalog) -> None:
    """Neither the process nor the owner can commit: the next search says so, and a later one has
    everything.
    """

    def fill() -> None:
        process = process_of(session)
        assert process is not None
        resource.prlimit(process.process.pid, resource.RLIMIT_FSIZE, (0, 0))
        failpoints.arm(refuse)

    def refuse(name: str) -> None:
        if name == "fulltext.commit":
            raise OSError(28, "No space left on device")

    at("fulltext.commit", fill)
    add(session, "one", "two", "three")
    until(lambda: session.store.index_problem is not None, "the refusal")
    answer = session.ask("search", query="page", mode="fts")["result"]
    assert answer["data"]["total_matches"] == 0
    assert "lack the latest writes" in answer["meta"]["notice"][0]
    failpoints.arm(None)
    assert found(session, "page") == 3
    assert is_as_built_anew(session, bench)


def beside_a_held_index(
    session: Session, act: Callable[[], object], waits: Callable[[int], object]
) -> None:
    """Calls `act` while the process has new rows, which it commits once `waits(seq)` is true.

    `seq`: the store's position before `act`.
    """
    pause, end = threading.Event(), threading.Event()

    def hold() -> None:
        pause.set()
        assert end.wait(PATIENCE)

    at("beside.sent", hold)
    add(session, "one", "two", "secretword")
    assert pause.wait(PATIENCE)
    seq = session.store.seq
    thread = threading.Thread(target=act)
    thread.start()
    until(lambda: waits(seq), "one who waits for the index")
    end.set()
    thread.join(PATIENCE)


def test_a_search_meanwhile_finds_everything(session: Session, bench: Catalog) -> None:
    totals: list[int] = []
    store = session.store
    beside_a_held_index(
        session, lambda: totals.append(found(session, "page")), lambda seq: store._waiters
    )
    assert totals == [3]
    assert is_as_built_anew(session, bench)


def test_a_purge_meanwhile_leaves_nothing(session: Session, bench: Catalog) -> None:
    purges: list[Any] = []

    def purge() -> None:
        purges.append(confirmed(session, "store.purge", document_ids=[3]))

    beside_a_held_index(session, purge, lambda seq: session.store.seq > seq)
    assert len(purges) == 1
    assert process_of(session) is None
    assert [found(session, word) for word in ("secretword", "page")] == [0, 2]
    files = [path for path in session.store.folder.rglob("*") if path.is_file()]
    assert not [path for path in files if b"secretword" in path.read_bytes()]
    assert is_as_built_anew(session, bench)


def test_it_dies_with_its_owner(tmp_path: Path, open_session: OpenSession) -> None:
    """A real owner is killed while the process has its rows: the next owner is alone."""
    store = tmp_path / "x" / "store"
    store.parent.mkdir()
    owner = Process(store, cwd=store.parent, program=OWNER, kill_at="beside.sent").ready()
    texts = [{"title": f"Page {word}", "text": word} for word in ("one", "two", "three")]
    owner.send(as_bytes(request(1, "doc.create", documents=texts)))
    assert owner.process.wait(PATIENCE) == -signal.SIGKILL
    owner.stop()
    until(lambda: not processes_in(store), "the end of the process that indexes")
    assert found(open_session(store), "page") == 3
