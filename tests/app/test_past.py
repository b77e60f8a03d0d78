"""as_of: the answers are byte for byte those that the store gave at that position."""

from __future__ import annotations

import json
import shutil
import threading
from typing import Any

import pytest

from kbproc.engine.projections.catalog.filters import DocumentFilter
from kbproc.engine.store import follow
from kbproc.knowledge.app import past
from tests.conftest import OpenSession
from tests.kit.corpus import QUESTIONS, change, confirmed, fill
from tests.kit.patience import LONG, PATIENCE, until
from tests.kit.talk import Session

READS: list[tuple[str, dict[str, Any]]] = [
    *(("search", question) for question in QUESTIONS),
    ("doc.list", {}),
    ("doc.list", {"status": "ready"}),
    ("doc.get", {"id": 1, "text": True}),
    ("doc.get", {"id": 2, "text": True}),
    ("doc.download", {"id": 1}),
    ("chunk.list", {"document_id": 1}),
    ("chunk.get", {"id": 3}),
    ("tag.list", {}),
]


def every_answer(session: Session, **more: Any) -> list[str]:
    """Answers of all reads that take as_of, errors and meta included."""
    answers = []
    for method, params in READS:
        answer = session.ask(method, **params, **more)
        answer.pop("jsonrpc")
        answers.append(json.dumps(answer))
    return answers


def test_then_is_as_it_was(session: Session) -> None:
    fill(session)
    session.library.compact()
    then, seq = every_answer(session), session.store.seq
    change(session)
    confirmed(session, "kb.delete", slug="other")
    session.data("doc.create", title="New", text="git backup of the future")
    session.embedded()
    assert every_answer(session) != then
    assert every_answer(session, as_of=seq) == then
    assert every_answer(session, as_of=seq) == then  # this time from the cache


def test_then_is_as_it_was_after_a_restart(open_session: OpenSession) -> None:
    one = open_session()
    fill(one)
    one.library.compact()
    then, seq = every_answer(one), one.store.seq
    change(one)
    one.close()
    two = open_session()
    assert every_answer(two, as_of=seq) == then
    shutil.rmtree(two.store.folder / "views" / "past")
    two.close()
    three = open_session()
    assert every_answer(three, as_of=seq) == then


def test_now_is_the_last_position(session: Session) -> None:
    fill(session, 3)
    change_one = session.data("doc.update", id=1, text="git once more")
    assert change_one["revision"] == 2
    session.embedded()
    session.library.compact()
    assert every_answer(session, as_of=session.store.seq) == every_answer(session)


def test_the_beginning_is_empty(session: Session) -> None:
    fill(session, 2)
    assert session.data("doc.list", as_of=0) == []
    assert session.data("search", query="git", as_of=1)["results"] == []
    assert session.error("doc.get", id=1, as_of=1)["type"] == "resource.not_found"
    answer = session.ask("tag.list", as_of=1)["result"]
    assert (answer["data"], answer["meta"]["seq"]) == ([], 1)


def test_what_is_no_past(session: Session, subtests: pytest.Subtests) -> None:
    cases: list[tuple[Any, str]] = [
        (9_999, "ends at"),
        ("2999-01-01", "not come yet"),
        ("yesterday", "as_of"),
        (-1, "as_of"),
        (True, "as_of"),
        (1.5, "as_of"),
        ("2026-13-01", "as_of"),
    ]
    for as_of, message in cases:
        with subtests.test(message=message):
            error = session.error("doc.list", as_of=as_of)
            assert error["type"] == "input.invalid_params"
            assert error["field"] == "$.params.as_of"
            assert message in error["message"]


def test_a_time_is_a_position(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    host = session.store.host
    start = host.now_ms()
    for minute in range(1, 4):
        monkeypatch.setattr(host, "now_ms", lambda at=start + 60_000 * minute: at)
        session.data("doc.create", title=f"At minute {minute}", text="x")
    monkeypatch.setattr(host, "now_ms", lambda: start + 3_600_000)
    for minute in range(4):
        documents = session.data("doc.list", as_of=f"2026-01-01T00:{minute:02d}:59Z")
        assert len(documents) == minute
    assert len(session.data("doc.list", as_of="2026-01-01T01:01:59+01:00")) == 1
    assert session.data("doc.list", as_of="2025-12-31") == []


def test_few_are_kept(session: Session) -> None:
    for n in range(8):
        session.data("doc.create", title=f"T{n}", text="alpha")
    for seq in range(1, session.store.seq + 1):
        assert len(session.data("doc.list", as_of=seq)) == seq - 1
        folders = list((session.store.folder / "views" / "past").iterdir())
        assert len(folders) <= past.KEPT
        assert len(session.library.pasts) <= past.OPEN


def test_one_that_is_read_stays(session: Session) -> None:
    for n in range(8):
        session.data("doc.create", title=f"T{n}", text="alpha")
    with session.library.pasts.at(3) as moment, moment.reading() as snapshot:
        for seq in range(4, 9):
            session.data("doc.list", as_of=seq)
        assert snapshot.queries.chunk_total() == 2


def test_an_open_moment_waits_for_nobody(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(session, 3)
    session.data("doc.list", as_of=4)
    begun, goes_on = threading.Event(), threading.Event()
    replay = follow.replay

    def slow(*args: Any) -> None:
        begun.set()
        assert goes_on.wait(PATIENCE)
        replay(*args)

    monkeypatch.setattr(follow, "replay", slow)
    making = threading.Thread(target=_opened, args=(session, 3))
    making.start()
    try:
        assert begun.wait(PATIENCE)
        assert len(session.data("doc.list", as_of=4)) == 2
    finally:
        goes_on.set()
        making.join(PATIENCE)
    assert len(session.data("doc.list", as_of=3)) == 1


def _opened(session: Session, seq: int) -> None:
    with session.library.pasts.at(seq):
        pass


def test_many_ask_for_many_moments(session: Session) -> None:
    """Threads open, read, close and reopen moments while others do the same."""
    fill(session, 6)
    wrong: list[Any] = []

    def ask(start: int) -> None:
        for n in range(30 if LONG else 8):
            seq = (start + n * 5) % 6 + 3  # the second record makes a knowledge base
            with session.library.pasts.at(seq) as then, then.reading() as snapshot:
                if len(snapshot.queries.documents(DocumentFilter())) != seq - 2:
                    wrong.append(seq)

    threads = [threading.Thread(target=ask, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert wrong == []
    assert not any(thread.is_alive() for thread in threads)
    assert len(session.library.pasts) <= past.OPEN


def test_a_chunk_of_then_gets_its_vector(open_session: OpenSession) -> None:
    """Chunks that were deleted before they were embedded, or that another model embedded."""
    session = open_session()
    fill(session, 4)
    session.library.compact()
    then, seq = every_answer(session), session.store.seq
    session.data("model.use", name="other", kind="hash", dim=32)
    confirmed(session, "doc.delete", ids=[1, 2, 3])
    session.close()
    for pack in (session.store.folder / "vectors").iterdir():
        pack.unlink()
    again = open_session()
    again.embedded()
    again.data("model.use", name="hash", kind="hash")
    assert every_answer(again, as_of=seq) == then


def test_many_missing_vectors_come_in_the_background(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(session, 6)
    session.library.compact()
    then, seq = every_answer(session), session.store.seq
    confirmed(session, "doc.delete", ids=[1, 2, 3, 4])
    monkeypatch.setattr(past, "_AT_ONCE", 0)
    pack = session.library.embedding.pack
    assert pack is not None
    pack.erase([pack.key_at(row) for row in range(len(pack))])
    session.data("doc.list", as_of=seq)
    until(lambda: every_answer(session, as_of=seq) == then, "the vectors of then")
    session.library.rebuild()
    session.library.embedding.wake()
    session.embedded()
