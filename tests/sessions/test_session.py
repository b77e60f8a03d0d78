"""Sessions and messages as methods show them, and refusals that name their cause."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kbproc.base.errors import KbprocError
from kbproc.engine.projections.catalog.rows import MessageRow, SessionRow
from kbproc.knowledge.sessions import session as sessions
from tests.kit.talk import Session

SESSION = SessionRow(
    id=1,
    key="k",
    title="T",
    kbs=["default"],
    agent=None,
    created_at="t1",
    created_by="ann",
    updated_at="t2",
    deleted_at=None,
    purged=False,
    message_count=4,
)


def message(**members: Any) -> MessageRow:
    empty: dict[str, Any] = dict.fromkeys(MessageRow.__struct_fields__)
    return MessageRow(**{**empty, "id": 2, "session_id": 1, "text": "", **members})


@given(st.text(max_size=200))
@example("x" * 81)
def test_a_title_is_one_short_line_that_begins_as_the_question(question: str) -> None:
    title = sessions.title_of(question)
    assert len(title) <= 80
    assert title == " ".join(title.split())
    assert sessions.title_of(title) == title


def test_a_long_question_is_cut(subtests: pytest.Subtests) -> None:
    cases: list[tuple[str, str]] = [
        ("How  is\n git installed? ", "How is git installed?"),
        ("x" * 80, "x" * 80),
        ("x" * 81, "x" * 79 + "…"),
        ("x" * 78 + " yyy", "x" * 78 + "…"),
        ("a\u200bb", "ab"),
    ]
    for question, title in cases:
        with subtests.test(question=question, title=title):
            assert sessions.title_of(question) == title


def test_an_answer_that_is_being_made_has_no_status() -> None:
    open_message = sessions.message_of(message(text="So far"))
    assert (open_message.status, open_message.usage, open_message.text) == (None, None, "So far")
    ending = '{"type":"answer.ended","session":1,"message":2,"status":"failed","hint":"h"}'
    ended = sessions.message_of(message(ending=ending))
    assert (ended.status, ended.hint, ended.failure) == ("failed", "h", None)


def test_a_plan_about_a_session_becomes_stale_with_the_next_question() -> None:
    assert sessions.target_of(SESSION).revision == 4


def test_a_session_has_the_members_of_its_row() -> None:
    result = sessions.session_of(SESSION)
    assert (result.kb, result.message_count, result.created_by) == (["default"], 4, "ann")
    whole = sessions.with_messages(SESSION, [message(), message(id=3)])
    assert [one.message_id for one in whole.messages] == [2, 3]


def test_a_session_that_is_gone_says_why(session: Session) -> None:
    for title in ("One", "Two", "Three"):
        session.data("session.create", title=title)
    session.data("session.ask", session_id=3, question="How is git installed?")
    plan = session.error("session.delete", session_ids=[2])["plan"]
    session.data("session.delete", session_ids=[2], confirm=plan["plan_hash"])
    with session.store.reading() as snapshot:
        row = sessions.require(snapshot.queries, 1)
        assert row.title == "One"
        reasons = []
        for work in (
            lambda: sessions.require(snapshot.queries, 2),
            lambda: sessions.require(snapshot.queries, 9),
            lambda: sessions.require_message(snapshot.queries, row, 1),
        ):
            with pytest.raises(KbprocError) as caught:
                work()
            reasons.append(caught.value.message)
        own = sessions.require_message(snapshot.queries, sessions.require(snapshot.queries, 3), 1)
    assert reasons[0].startswith("Session 2 was deleted at")
    assert reasons[1:] == ["There is no session 9.", "There is no message 1 in session 1."]
    assert own.question == "How is git installed?"
