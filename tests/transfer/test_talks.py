"""Exports and imports of conversations."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kbproc.knowledge.transfer import portable
from tests.conftest import OpenSession
from tests.kit import llm
from tests.kit.talk import Session, as_bytes, request
from tests.kit.traces import holding

NEW = {"id", "message_id", "session_id", "updated_at", "chunk_id"}  # these differ between stores


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


def without_ids(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {name: without_ids(value) for name, value in tree.items() if name not in NEW}
    return [without_ids(one) for one in tree] if isinstance(tree, list) else tree


def lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_there_and_back(open_session: OpenSession, tmp_path: Path) -> None:
    one, other = open_session(), open_session(tmp_path / "other")
    talk(one)
    result = one.data("store.export", path="all.ndjson")
    assert result["sessions"] == 2
    [first, *_, end] = lines(tmp_path / "all.ndjson")
    assert (first["version"], end["sessions"]) == (portable.VERSION, 2)
    plan = other.ask("store.import", path="all.ndjson", dry_run=True)["result"]["meta"]["plan"]
    assert "add 2 sessions with 2 questions" in plan["changes"]
    result_of_import = other.data("store.import", path="all.ndjson")
    assert (result_of_import["sessions_added"], result_of_import["sessions_unchanged"]) == (2, 0)
    imported_talks = talks(other)
    assert [r["document_id"] for r in imported_talks[1]["messages"][0]["references"]] == [1]
    assert same(imported_talks) == same(talks(one))
    again = other.data("store.import", path="all.ndjson")
    assert (again["sessions_added"], again["sessions_unchanged"]) == (0, 2)
    assert same(talks(other)) == same(talks(one))


def same(sessions: list[Any]) -> Any:
    for one in sessions:
        for message in one["messages"]:
            for reference in message["references"]:
                del reference["document_id"]
    return without_ids(sessions)


def test_one_that_came_goes_on(open_session: OpenSession, tmp_path: Path) -> None:
    one, other = open_session(), open_session(tmp_path / "other")
    talk(one)
    one.data("store.export", path="all.ndjson")
    other.data("store.import", path="all.ndjson")
    other.embedded()
    read = other.data("session.resume", session_id=2, message_id=1)
    assert "make" in read["text"]
    answer = other.data("session.ask", session_id=2, question="How is git installed?")
    assert answer["message_id"] == 3
    assert [len(session["messages"]) for session in talks(other)] == [0, 3]


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
    response = other.ask("store.import", path="all.ndjson", kb="archive")["result"]
    assert response["data"]["sessions_added"] == 0
    assert "2 sessions are left out" in response["meta"]["hint"]
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


def test_a_bad_line_is_named(session: Session, tmp_path: Path, subtests: pytest.Subtests) -> None:
    session.data("session.create")
    session.data("store.export", path="all.ndjson")
    all_lines = lines(tmp_path / "all.ndjson")
    head = [line for line in all_lines if line["type"] not in {"session", "end"}]
    for name, bad in BAD.items():
        with subtests.test(name):
            end = {**all_lines[-1], "sha256": None, "sessions": len(bad)}
            text = "".join(json.dumps(line) + "\n" for line in [*head, *bad, end])
            (tmp_path / "bad.ndjson").write_text(text)
            error = session.error("store.import", path="bad.ndjson")
            assert error["type"] == "input.invalid_params"
            assert error["detail"]["line"] == len(head) + len(bad)
            assert len(session.data("session.list")) == 1
