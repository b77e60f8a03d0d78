"""Conversations in the log: reads at an earlier seq, reverts, and reverts of reverts."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conftest import OpenSession
from tests.kit import llm
from tests.kit.talk import Session, as_bytes, request

QUESTION = "How is git installed?"


def confirmed(session: Session, method: str, **params: Any) -> Any:
    """Calls a method and approves its plan, if the answer asks for approval."""
    answer = session.ask(method, **params)
    if "result" in answer:
        return answer["result"]["data"]
    plan = answer["error"]["data"]["plan"]
    return session.data(method, **params, confirm=plan["plan_hash"])


def undo(session: Session, *seqs: int) -> Any:
    return confirmed(session, "events.revert", seqs=list(seqs))


def why(done: Any) -> list[str]:
    return [entry["why"] for entry in done["kept"]]


def last(session: Session) -> int:
    seq: int = session.data("status")["seq"]
    return seq


def seqs_of(session: Session, type: str) -> list[int]:
    records = session.data("events.read", types=[type], limit=1000)
    return [record["seq"] for record in records]


def question_ids(session: Session) -> dict[int, list[int]]:
    """Maps each session's id to the ids of its messages, as session.get lists them."""
    return {
        one["id"]: [
            message["message_id"]
            for message in session.data("session.get", session_id=one["id"])["messages"]
        ]
        for one in session.data("session.list")
    }


@pytest.fixture
def talk(session: Session) -> Session:
    """Asks questions 1 and 2 in session 1, and question 3 in session 2."""
    session.data("doc.create", title="Git", text="Git is installed by make.")
    session.embedded()
    session.data("chat", question=QUESTION)
    session.data("session.ask", session_id=1, question=QUESTION)
    session.data("chat", question=QUESTION)
    assert question_ids(session) == {1: [1, 2], 2: [3]}
    return session


def test_a_question_goes_with_its_answer_and_comes_back(talk: Session) -> None:
    records = [
        record["seq"]
        for record in talk.data("events.read", limit=1000)
        if any(event.get("message_id") == 2 for event in record["events"])
    ]
    done = undo(talk, *records)
    assert (done["sessions"], done["kept"]) == ([1], [])
    assert [one["seq"] for one in done["reverted"]] == records
    assert question_ids(talk) == {1: [1], 2: [3]}
    assert talk.error("session.resume", session_id=1, message_id=2)["type"] == "resource.not_found"
    result = undo(talk, last(talk))
    assert question_ids(talk) == {1: [1, 2], 2: [3]}
    assert result["sessions"] == [1]
    [_, again] = talk.data("session.get", session_id=1)["messages"]
    assert "make" in again["text"]


def test_a_session_goes_with_its_only_question(talk: Session) -> None:
    chats = seqs_of(talk, "session.created")
    done = undo(talk, chats[1])
    assert done["sessions"] == [2]
    assert question_ids(talk) == {1: [1, 2]}
    done = undo(talk, chats[0])
    assert why(done) == ["session 1 still holds 1 question"]
    assert question_ids(talk) == {1: [2]}
    undo(talk, last(talk))
    undo(talk, last(talk) - 2)
    assert question_ids(talk) == {1: [1, 2], 2: [3]}


def test_a_deletion_is_undone_and_done_again(talk: Session) -> None:
    confirmed(talk, "session.delete", session_ids=[1])
    assert question_ids(talk) == {2: [3]}
    hint = talk.error("session.get", session_id=1)["hint"]
    assert "events.revert" in hint
    [deleted] = seqs_of(talk, "session.deleted")
    undo(talk, deleted)
    assert question_ids(talk) == {1: [1, 2], 2: [3]}
    assert why(undo(talk, deleted)) == [
        f"session 1 is as it was before: undone at seq {deleted + 1} by user"
    ]
    undo(talk, deleted + 1)
    assert question_ids(talk) == {2: [3]}


def test_what_was_hidden_later_stays(talk: Session) -> None:
    confirmed(talk, "session.delete", session_ids=[2])
    [deleted] = seqs_of(talk, "session.deleted")
    done = undo(talk, seqs_of(talk, "session.created")[1])
    assert why(done) == [f"session 2 was hidden at seq {deleted} by user"]


def test_all_that_somebody_asked(talk: Session) -> None:
    other = talk.another("bob")
    other.data("session.ask", session_id=1, question=QUESTION)
    other.data("chat", question=QUESTION)
    done = confirmed(talk, "events.revert", actor="bob", since=1, sessions=True)
    assert (done["sessions"], done["kept"]) == ([1, 3], [])
    assert "left_out" not in done
    assert question_ids(talk) == {1: [1, 2], 2: [3]}


def test_what_somebody_asked_is_left_out_unless_it_is_named(talk: Session) -> None:
    other = talk.another("bob")
    confirmed(other, "session.delete", session_ids=[2])
    other.data("doc.create", title="Junk", text="Junk.")
    before = last(talk)
    other.data("chat", question=QUESTION)
    count = last(talk) - before
    done = other.data("events.revert", actor="bob", since=before + 1)
    assert (done["reverted"], done["kept"], done["left_out"]) == ([], [], count)
    assert "sessions: true" in done["hint"]
    params = {"actor": "bob", "since": 1}
    error = other.error("events.revert", **params)
    assert error["plan"]["changes"][:2] == [
        "undo 2 of 2 records: 1 document and 1 session changed, 0 kept",
        f"left out: {count} records of questions and answers; sessions: true (--sessions) "
        "includes them",
    ]
    done = other.data("events.revert", **params, confirm=error["plan"]["plan_hash"])
    assert (done["documents"], done["sessions"], done["left_out"]) == (1, [2], count)
    assert question_ids(talk) == {1: [1, 2], 2: [3], 3: [4]}
    done = undo(talk, *range(before + 1, before + count + 1))
    assert done["sessions"] == [3]
    params = {"actor": "bob", "since": 1, "seqs": [1], "sessions": True}
    assert talk.error("events.revert", **params)["field"] == "$.params"


def test_an_answer_alone_stays(talk: Session) -> None:
    done = undo(talk, seqs_of(talk, "answer.ended")[0])
    assert why(done) == ["answer.ended: an answer goes with its question"]


def test_no_later_question_is_understood_by_it(talk: Session) -> None:
    def sources() -> int:
        params = {"session_id": 3, "question": "How is it done?", "dry_run": True}
        plan = talk.ask("session.ask", **params)["result"]["meta"]["plan"]
        return int(plan["counts"]["references"])

    talk.data("session.create")
    talk.data("session.ask", session_id=3, question=QUESTION)
    assert sources() == 1
    undo(talk, seqs_of(talk, "question.asked")[-1])
    assert sources() == 0


def test_what_is_being_answered_stays(open_session: OpenSession) -> None:
    with llm.endpoint(lambda question: [llm.say("One "), llm.hang]) as endpoint:
        session = open_session(llm=endpoint.url)
        session.data("doc.create", title="Git", text="Git is installed by make.")
        session.embedded()
        other = session.another("bob")
        other.send(as_bytes(request(1, "chat", question=QUESTION)))
        while b"One" not in other.receive():
            pass
        done = undo(session, seqs_of(session, "question.asked")[0])
        assert why(done) == [
            "question 1 is being answered: session.stop ends that",
            "session 1 still holds 1 question",
        ]
        session.data("session.stop", session_id=1, message_id=1)
        other.connection.end(0.0)


def test_what_was_purged_stays(talk: Session) -> None:
    confirmed(talk, "store.purge", session_ids=[2])
    done = undo(talk, *seqs_of(talk, "session.purged"))
    assert why(done) == ["session.purged: what a purge has erased can't come back"]


def test_a_conversation_as_it_was(talk: Session) -> None:
    [_, later] = seqs_of(talk, "question.asked")[:2]
    confirmed(talk, "session.delete", session_ids=[2])
    past = talk.data("session.get", session_id=1, as_of=later - 1)
    assert [one["message_id"] for one in past["messages"]] == [1]
    assert "make" in past["messages"][0]["text"]
    during = talk.data("session.get", session_id=1, as_of=later)["messages"][1]
    assert (during["status"], during["text"]) == (None, "")
    assert [one["id"] for one in talk.data("session.list", as_of=later)] == [1]
    assert [one["id"] for one in talk.data("session.list", as_of=last(talk) - 1)] == [1, 2]
