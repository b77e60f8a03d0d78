"""Conversations go out of one store and come into another."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import OpenSession
from tests.kit import llm
from tests.kit.talk import Session, as_bytes, request
from tests.kit.traces import holding

NEW = {"id", "message_id", "session_id", "updated_at", "chunk_id"}  # of another store


def talk(session: Session) -> None:
    session.data("doc.create", title="Gone", text="This one is deleted again.")
    session.data("doc.create", title="Git", text="Git is installed by make xylophone.")
    plan = session.error("doc.delete", ids=[1])["plan"]
    session.data("doc.delete", ids=[1], confirm=plan["plan_hash"])
    session.embedded()
    session.data("session.create", title="Empty", kb="default")
    session.data("chat", question="How is git installed?", references="full")
    session.data("session.ask", session_id=2, question="What do zebras eat?")


def talks(session: Session) -> list[Any]:
    return [
        session.data("session.get", session_id=one["id"]) for one in session.data("session.list")
    ]


def without_ids(told: Any) -> Any:
    if isinstance(told, dict):
        return {name: without_ids(value) for name, value in told.items() if name not in NEW}
    return [without_ids(one) for one in told] if isinstance(told, list) else told


def lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_there_and_back(open_session: OpenSession, tmp_path: Path) -> None:
    one, other = open_session(), open_session(tmp_path / "other")
    talk(one)
    told = one.data("store.export", path="all.ndjson")
    assert told["sessions"] == 2
    [first, *_, end] = lines(tmp_path / "all.ndjson")
    assert (first["version"], end["sessions"]) == (4, 2)
    plan = other.ask("store.import", path="all.ndjson", dry_run=True)["result"]["meta"]["plan"]
    assert "add 2 sessions with 2 questions" in plan["changes"]
    came = other.data("store.import", path="all.ndjson")
    assert (came["sessions_added"], came["sessions_unchanged"]) == (2, 0)
    there = talks(other)
    assert [r["document_id"] for r in there[1]["messages"][0]["references"]] == [1]
    assert same(there) == same(talks(one))
    again = other.data("store.import", path="all.ndjson")
    assert (again["sessions_added"], again["sessions_unchanged"]) == (0, 2)
    assert same(talks(other)) == same(talks(one))


def same(found: list[Any]) -> Any:
    for one in found:
        for message in one["messages"]:
            for reference in message["references"]:
                del reference["document_id"]
    return without_ids(found)


def test_one_that_came_goes_on(open_session: OpenSession, tmp_path: Path) -> None:
    one, other = open_session(), open_session(tmp_path / "other")
    talk(one)
    one.data("store.export", path="all.ndjson")
    other.data("store.import", path="all.ndjson")
    other.embedded()
    read = other.data("session.resume", session_id=2, message_id=1)
    assert "make" in read["text"]
    told = other.data("session.ask", session_id=2, question="How is git installed?")
    assert told["message_id"] == 3
    assert [len(found["messages"]) for found in talks(other)] == [0, 3]


def test_a_purge_finds_what_answers_that_came_repeat(
    open_session: OpenSession, tmp_path: Path
) -> None:
    one, other = open_session(), open_session(tmp_path / "other")
    talk(one)
    one.data("store.export", path="all.ndjson")
    other.data("store.import", path="all.ndjson")
    plan = other.error("store.purge", document_ids=[1])["plan"]
    other.data("store.purge", document_ids=[1], confirm=plan["plan_hash"])
    assert holding(other.store.folder, "xylophone") == []


def test_one_kb_takes_no_conversations(open_session: OpenSession, tmp_path: Path) -> None:
    one, other = open_session(), open_session(tmp_path / "other")
    talk(one)
    one.data("store.export", path="kb.ndjson", kb="default")
    assert "session" not in {line["type"] for line in lines(tmp_path / "kb.ndjson")}
    one.data("store.export", path="all.ndjson")
    other.data("kb.create", slug="archive")
    came = other.ask("store.import", path="all.ndjson", kb="archive")["result"]
    assert came["data"]["sessions_added"] == 0
    assert "2 sessions are left out" in came["meta"]["hint"]
    assert talks(other) == []


def test_what_is_being_answered_does_not_go_out(open_session: OpenSession, tmp_path: Path) -> None:
    with llm.endpoint(lambda question: [llm.say("One "), llm.hang]) as endpoint:
        session = open_session(llm=endpoint.url)
        session.data("doc.create", title="Git", text="Git is installed by make.")
        session.embedded()
        asking = session.another("user")
        asking.send(as_bytes(request(1, "chat", question="How is git installed?")))
        while b"One" not in asking.receive():
            pass
        session.data("store.export", path="all.ndjson")
        session.data("session.stop", session_id=1, message_id=1)
        asking.connection.end(0.0)
    [line] = [one for one in lines(tmp_path / "all.ndjson") if one["type"] == "session"]
    assert "messages" not in line


def a_line(**more: Any) -> Any:
    key = {"key": "0" * 32, "created_at": "2026-01-01T00:00:00.000Z", "created_by": "ann"}
    return {"type": "session", **key, **more}


MESSAGE = {
    "question": "Why?",
    "asked_at": "2026-01-01T00:00:00.000Z",
    "asked_by": "ann",
    "answerer": "extractive",
    "status": "refused",
    "ended_at": "2026-01-01T00:00:00.000Z",
}
BAD = {
    "twice": [a_line(), a_line()],
    "a key that is none": [a_line(key="1")],
    "a title with a control character": [a_line(title="a\u0007b")],
    "asked by nobody": [a_line(messages=[{**MESSAGE, "asked_by": " "}])],
    "a status that is none": [a_line(messages=[{**MESSAGE, "status": "odd"}])],
    "a time that is none": [a_line(messages=[{**MESSAGE, "ended_at": "yesterday"}])],
    "an unknown member": [a_line(messages=[{**MESSAGE, "more": 1}])],
}


@pytest.mark.parametrize("bad", BAD)
def test_a_bad_line_is_named(session: Session, tmp_path: Path, bad: str) -> None:
    session.data("session.create")
    session.data("store.export", path="all.ndjson")
    found = lines(tmp_path / "all.ndjson")
    kept = [line for line in found if line["type"] not in {"session", "end"}]
    end = {**found[-1], "sha256": None, "sessions": len(BAD[bad])}
    text = "".join(json.dumps(line) + "\n" for line in [*kept, *BAD[bad], end])
    (tmp_path / "bad.ndjson").write_text(text)
    error = session.error("store.import", path="bad.ndjson")
    assert error["type"] == "input.invalid_params"
    assert error["detail"]["line"] == len(kept) + len(BAD[bad])
    assert len(session.data("session.list")) == 1
