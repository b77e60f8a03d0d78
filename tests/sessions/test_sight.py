"""Old answers hide text that the reader may not see; each scope alone shows only its own texts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from kbproc.engine.models.answering.interface import (
    AnswerOutcome,
    Conversation,
    Prompt,
    PromptPassage,
)
from kbproc.engine.projections.catalog.catalog import Catalog
from kbproc.methods.all import registry
from tests.conftest import OpenSession
from tests.kit.faults import faults_of, note
from tests.kit.shared import shared_store
from tests.kit.sight import QUESTION, WORDS, Repeats, fill
from tests.kit.talk import Message, Session, as_bytes, request

compared = faults_of("sight", counted=True)

SCOPES = registry().scopes
METHODS = registry().methods
HIDDEN = "what is out of sight stands as after a purge; the rest is told"


def events(session: Session, method: str, **params: Any) -> list[Message]:
    """Returns the events of a stream, and its response."""
    session.send(as_bytes(request(1, method, **params)))
    notifications: list[Message] = []
    while "method" in (message := json.loads(session.receive())):
        notifications.append(message["params"])
    return [*notifications, message]


def texts_of(session: Session) -> dict[str, str]:
    """Returns the text that each method shows of the first conversation."""
    place = {"session_id": 1, "message_id": 1}
    return {
        "session.get": json.dumps(session.ask("session.get", session_id=1)),
        "session.resume": json.dumps(events(session, "session.resume", **place)),
        "session.resume with snapshot": json.dumps(
            events(session, "session.resume", **place, snapshot=True)
        ),
        "a repeated chat": json.dumps(
            events(session, "chat", question=QUESTION, references="full", client_token="asked")
        ),
    }


@pytest.fixture
def session(open_session: OpenSession) -> Session:
    session = open_session()
    fill(session)
    return session


@pytest.fixture(scope="module")
def read_only(tmp_path_factory: pytest.TempPathFactory, bench: Catalog) -> Iterator[Session]:
    """Opens a filled store for tests that change nothing in it."""
    folder = tmp_path_factory.mktemp("sight")
    with shared_store(folder, bench) as session:
        fill(session)
        seq = session.store.seq
        yield session
        assert session.store.seq == seq


def test_the_words_are_there(read_only: Session) -> None:
    for way, text in texts_of(read_only.another("alpha", named=True)).items():
        assert all(word in text for word in WORDS), way
        assert "replaced" not in text


@pytest.mark.parametrize("is_made_here", [True, False])
def test_an_agent_whose_kbs_were_narrowed(session: Session, is_made_here: bool) -> None:
    """Checks the answer in this process's memory, and the one in the log."""
    if not is_made_here:
        session.library.answers.forget()
    session.data("agent.update", slug="alpha", kbs=["default"])
    for way, text in texts_of(session.another("alpha", named=True)).items():
        assert "xylophone" not in text and "quarantine" not in text, way
        assert "marmalade" in text, way
        assert "replaced" in text or way in {"session.get", "session.resume with snapshot"}
        note("sight", "an agent whose knowledge bases were narrowed: " + way, HIDDEN)
    session.data("agent.update", slug="alpha", kbs=["default", "secrets"])
    for way, text in texts_of(session.another("alpha", named=True)).items():
        assert all(word in text for word in WORDS), way


def test_a_process_that_lacks_a_scope(read_only: Session) -> None:
    for missing in ("doc:read", "knowledge:read", "note:read"):
        rest = ",".join(scope for scope in SCOPES if scope != missing)
        for way, text in texts_of(read_only.another("alpha", scopes=rest, named=True)).items():
            for word, (_, scopes) in WORDS.items():
                place = (missing, way, word)
                assert (word in text) == (missing not in scopes) or "insufficient" in text, place
                assert word not in text or missing not in scopes, place
            note("sight", f"a process without {missing}: {way}", HIDDEN)


def test_what_was_said_before_is_read_as_the_agent_of_the_session(session: Session) -> None:
    """It holds for a reader who sees more, and for a model that repeats passages uncited."""
    session.library.answers.answerer = Repeats()
    alpha = session.another("alpha", named=True)
    text = alpha.data("session.ask", session_id=1, question=QUESTION)["text"]
    assert all(word in text for word in WORDS)
    session.data("agent.update", slug="alpha", kbs=["default"])
    answer = session.data("session.ask", session_id=1, question=QUESTION)
    assert "marmalade" in answer["text"]
    for reader in (session, alpha):
        transcript = json.dumps(reader.data("session.get", session_id=1)["messages"][2:])
        assert "marmalade" in transcript
        assert "xylophone" not in transcript and "quarantine" not in transcript
    transcript = json.dumps(alpha.data("session.get", session_id=1))
    assert "xylophone" not in transcript and "quarantine" not in transcript
    note("sight", "a question asked in a narrowed agent's conversation by somebody else", HIDDEN)


class Measures(Repeats):
    """Keeps the earlier turns of each prompt that it measures, or answers."""

    def __init__(self) -> None:
        self.earlier: list[list[str]] = []

    def prompt_tokens(self, prompt: Prompt) -> int:
        self.earlier.append([turn.answer for turn in prompt.earlier])
        return 1

    def answer(self, prompt: Prompt, talk: Conversation) -> AnswerOutcome:
        self.prompt_tokens(prompt)
        return super().answer(prompt, talk)


def test_a_plan_reads_what_was_said_before_as_the_agent_of_the_session(session: Session) -> None:
    answerer = session.library.answers.answerer = Measures()
    session.data("agent.update", slug="alpha", kbs=["default"])
    for params in ({"dry_run": True}, {}):
        answer = session.ask("session.ask", session_id=1, question=QUESTION, **params)
        assert "result" in answer, answer
    planned, answered = answerer.earlier
    assert planned == answered and "xylophone" not in json.dumps(planned)


class Listens(Repeats):
    """Keeps the passages of each prompt."""

    def __init__(self) -> None:
        self.shown: list[list[PromptPassage]] = []

    def answer(self, prompt: Prompt, talk: Conversation) -> AnswerOutcome:
        self.shown.append(prompt.passages)
        return super().answer(prompt, talk)


def test_a_model_is_shown_no_passage_that_the_log_does_not_name(session: Session) -> None:
    """A purge erases only answers that refer to the document, so a prompt has no other passages."""
    answerer = session.library.answers.answerer = Listens()
    first = session.data("chat", question=QUESTION)
    foreign = "Which glacier and which comet outshine every porter, and when?"
    result = session.data("search", query=foreign)
    assert result["results"] and result["confidence"] == "none"
    answer = session.data("session.ask", session_id=first["session_id"], question=foreign)
    assert answer["references"] == answer["see_also"] == []
    related, unrelated = answerer.shown
    assert related and unrelated == []


def calls() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields every method that reads or asks, with params that reach the three texts."""
    ids = {"id": 1, "session_id": 1, "message_id": 1, "slug": "cellar", "agent": "alpha"}
    texts = {"query": "cellar", "question": QUESTION, "text": True, "references": "full"}
    for name, method in METHODS.items():
        if method.kind == "destructive" or not method.needs_store or name == "events.subscribe":
            continue
        fields = method.params.__struct_fields__
        values = {**ids, **texts}
        if name.startswith(("kb.", "agent.")):
            values["slug"] = "secrets" if name.startswith("kb.") else "alpha"
        params = {field: values[field] for field in fields if field in values}
        if name in {"doc.get", "doc.download", "chunk.list", "chunk.get", "doc.history"}:
            for id in (1, 2, 3):
                yield (
                    name,
                    {
                        **params,
                        "id": id,
                        **({"document_id": id} if "document_id" in fields else {}),
                    },
                )
        elif method.kind == "read" or name in {"chat", "session.ask", "agent.invoke"}:
            yield name, params


def test_each_scope_alone_tells_only_its_own(read_only: Session) -> None:
    """Calls every method that can return one of the three texts, with one scope at a time."""
    wrong = []
    for scope in SCOPES:
        methods_by_text: dict[str, set[str]] = {}
        for named in (False, True):
            peer = read_only.another("alpha" if named else "user", scopes=scope, named=named)
            for name, params in calls():
                text = json.dumps(events(peer, name, **params))
                for word, (what, scopes) in WORDS.items():
                    if word in text:
                        wrong += [] if scope in scopes else [(scope, name, what)]
                        methods_by_text.setdefault(what, set()).add(name)
        for what, methods in methods_by_text.items():
            note(
                "sight",
                f"the scope {scope} alone: {what}",
                f"its text is told by {', '.join(sorted(methods))}",
            )
        if not methods_by_text:
            note("sight", "any other scope alone", "no method tells such a text")
    assert wrong == []
