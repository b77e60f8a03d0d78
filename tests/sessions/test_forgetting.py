"""A purged session leaves no text behind, and answers repeat no purged text."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kbproc.engine.models.answering.interface import (
    AnswerOutcome,
    AnswerPart,
    Conversation,
    Prompt,
)
from kbproc.knowledge.app.health import doctor
from kbproc.knowledge.sessions.reading import Reader
from tests.conftest import OpenSession
from tests.kit.talk import Message, Session, as_bytes, request
from tests.kit.traces import holding

WORDS = ("xylophone", "quarantine")


def purge(session: Session, **params: Any) -> Any:
    plan = session.error("store.purge", **params)["plan"]
    return session.data("store.purge", **params, confirm=plan["plan_hash"])


def events(session: Session, **params: Any) -> list[Message]:
    session.send(as_bytes(request(1, "session.resume", **params)))
    notifications: list[Message] = []
    while "method" in (message := json.loads(session.receive())):
        notifications.append(message["params"])
    return [*notifications, message]


def test_no_file_holds_what_was_asked(open_session: OpenSession) -> None:
    session = open_session()
    session.data("doc.create", title="Git", text="Git is installed by make.")
    session.embedded()
    question = f"Is the {WORDS[0]} in {WORDS[1]}?"
    session.data("chat", question=question, client_token="t")
    session.data("session.ask", session_id=1, question=f"How is git installed, {WORDS[0]}?")
    other = session.data("chat", question="How is git installed?")
    done = purge(session, session_ids=[1])
    assert (done["sessions"], done["purged"]) == (1, 0)
    assert holding(session.store.folder, *WORDS) == []
    assert not any(doctor.compare(session.store).values())
    assert session.store.log.verify() == session.store.seq
    assert "purged" in session.error("session.get", session_id=1)["message"]
    assert "purged" in session.error("chat", question=question, client_token="t")["message"]
    [remaining] = session.data("session.list")
    assert remaining["id"] == other["session_id"]
    again = session.data("chat", question="How is git installed?")
    assert again["session_id"] == other["session_id"] + 1
    assert again["message_id"] == other["message_id"] + 1
    assert purge(session, session_ids=[again["session_id"]])["sessions"] == 1
    session.close()
    assert holding(session.store.folder, *WORDS) == []


def test_an_answer_repeats_nothing_of_a_document_that_was_erased(
    open_session: OpenSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    def repeat(prompt: Prompt, talk: Conversation) -> AnswerOutcome:
        talk.say([AnswerPart(f"{one.text} [{one.n}] ", (one.n,)) for one in prompt.passages])
        return AnswerOutcome(status="finished")

    session = open_session()
    session.data("doc.create", title="Secret", text=f"The {WORDS[0]} is kept in the cellar.")
    session.data("doc.create", title="Open", text="The cellar is opened at nine by the porter.")
    session.embedded()
    monkeypatch.setattr(session.library.answers.answerer, "answer", repeat)
    answer = session.data("chat", question="Who opens the cellar, and what is kept in it?")
    assert WORDS[0] in answer["text"] and "porter" in answer["text"]
    purge(session, document_ids=[1])
    assert holding(session.store.folder, WORDS[0]) == []
    *stream, end = events(session, session_id=1, message_id=1)
    assert [event.get("kind") for event in stream].count("replaced") == 1
    data = end["result"]["data"]
    assert "porter" in data["text"] and WORDS[0] not in data["text"]
    assert [one["document_id"] for one in data["references"]] == [2]
    assert not any(doctor.compare(session.store).values())


def test_who_still_reads_an_answer_that_was_erased_reads_what_the_log_holds(
    open_session: OpenSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = open_session()
    session.data("doc.create", title="Secret", text=f"The {WORDS[0]} is kept in the cellar.")
    session.embedded()
    answers = session.library.answers
    readers: list[Reader] = []
    answer = answers.answerer.answer

    def read(prompt: Prompt, talk: Conversation) -> AnswerOutcome:
        live = answers.live(1)
        reader = Reader(session.store, answers, 1, live, emit=print, crowded=lambda: False)
        readers.append(reader)
        return answer(prompt, talk)

    monkeypatch.setattr(answers.answerer, "answer", read)
    session.data("chat", question=f"Where is the {WORDS[0]} kept?")
    assert WORDS[0] in readers[0].outcome()[0].text
    purge(session, document_ids=[1])
    assert WORDS[0] not in readers[0].outcome()[0].text
