"""Each question gets one answer with one end, also if its making fails, stops or is cut off."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kbproc.base.errors import KbprocError
from kbproc.base.params import WriteParams
from kbproc.engine.events.session import AnswerRestarted, QuestionAsked, SessionCreated
from kbproc.engine.models.answering.interface import AnswerOutcome, AnswerPart, Conversation, Prompt
from kbproc.engine.models.answering.interface import Turn as EarlierTurn
from kbproc.engine.projections.catalog.queries import Queries
from kbproc.engine.projections.catalog.rows import SessionRow
from kbproc.engine.store.decision import DecisionState, WriteRequest
from kbproc.engine.store.pipeline import LongWrite
from kbproc.engine.store.store import Store
from kbproc.knowledge.cluster.node import NodeAnswerRules
from kbproc.knowledge.sessions import asking
from kbproc.knowledge.sessions.asking import Asking
from kbproc.knowledge.sessions.live import Live
from kbproc.knowledge.sessions.making import Answers, StartedAnswer, Work
from kbproc.knowledge.sessions.rules import AnswerRules
from tests.kit import knowledge
from tests.kit.talk import Session

NOW = "2026-01-01T00:00:00.000Z"
QUESTION = Asking(question="Who?", detail="indexes", budget_tokens=100, key="k")


class Answerer:
    """Answers by this function."""

    name, model = "toy", "toy-1"

    def __init__(self, act: Callable[[Conversation], None]) -> None:
        self._act = act

    def prompt_tokens(self, prompt: Prompt) -> int:
        return 1

    def answer(self, prompt: Prompt, talk: Conversation) -> AnswerOutcome:
        self._act(talk)
        return AnswerOutcome(status="finished", input_tokens=3)

    def prepare(self) -> None:
        """Has nothing to prepare."""

    def close(self) -> None:
        """Has nothing to close."""


MakeAnswers = Callable[..., Answers]


@pytest.fixture
def store(session: Session) -> Store:
    return session.store


@pytest.fixture
def answers_by(store: Store) -> Iterator[MakeAnswers]:
    """Makes answers by a function; they are closed at the end."""
    opened: list[Answers] = []

    def make(act: Callable[[Conversation], None], rules: AnswerRules | None = None) -> Answers:
        opened.append(Answers(store, Answerer(act), lambda: rules or AnswerRules()))
        return opened[-1]

    yield make
    for answers in opened:
        answers.close()


def ask(
    answers: Answers, store: Store, token: str | None = None
) -> tuple[StartedAnswer, Live | None]:
    request = WriteRequest(
        method="session.ask",
        actor="ann",
        params=WriteParams(client_token=token),
        destructive=False,
        now=NOW,
    )

    def work(start: StartedAnswer) -> Work:
        retrieval = asking.new_retrieval_request(QUESTION)
        return Work(state=store, request=retrieval, instructions="", now=NOW)

    def new(here: DecisionState) -> Any:
        return asking.new(here, QUESTION, answers.answerer)

    return answers.ask(LongWrite(store, request), new, work)


def ended(live: Live | None) -> Live:
    assert live is not None
    live.wait()
    assert live.ending is not None
    return live


def test_an_answer_is_made_once_for_a_token(store: Store, answers_by: MakeAnswers) -> None:
    answers = answers_by(lambda talk: talk.say([AnswerPart("Ann.")]))
    start, live = ask(answers, store, "t")
    assert start == StartedAnswer(session=1, message=1)
    first = ended(live)
    assert first.ending is not None
    assert (first.text_and_references[0], first.ending.status) == ("Ann.", "finished")
    usage = first.ending.usage
    assert usage is not None
    assert (usage.answerer, usage.model, usage.input_tokens) == ("toy", "toy-1", 3)
    again, other = ask(answers, store, "t")
    assert again == StartedAnswer(session=1, message=1, again=True)
    assert other is None or other is first
    fresh, live = ask(answers, store)
    assert (fresh.session, fresh.message, fresh.again) == (2, 2, False)
    ended(live)
    assert answers.live(99) is None


@pytest.mark.parametrize(
    ("error", "facts"),
    [
        (
            KbprocError("llm.unavailable", "Away.", hint="Wait.", retry_after_ms=5, lasting=True),
            ("llm.unavailable", "Away.", "Wait.", True, 5),
        ),
        (
            ZeroDivisionError("a secret"),
            (
                "internal.error",
                "Something went wrong inside kbproc (ZeroDivisionError).",
                KbprocError("internal.error", "").hint,
                False,
                None,
            ),
        ),
    ],
)
def test_a_failure_ends_the_answer_with_its_error(
    store: Store, answers_by: MakeAnswers, error: Exception, facts: tuple[Any, ...]
) -> None:
    def fail(talk: Conversation) -> None:
        talk.say([AnswerPart("So far")])
        raise error

    _, live = ask(answers_by(fail), store)
    ending = ended(live).ending
    assert ending is not None and ending.failure is not None
    failure = ending.failure
    assert ending.status == "failed"
    assert (
        failure.type,
        failure.message,
        failure.hint,
        failure.lasting,
        failure.retry_after_ms,
    ) == facts


def test_a_stopped_answer_ends_once_for_all_readers(store: Store, answers_by: MakeAnswers) -> None:
    is_over = threading.Event()

    def wait(talk: Conversation) -> None:
        talk.when_over(is_over.set)
        is_over.wait()
        talk.say([AnswerPart("Too late")])

    answers = answers_by(wait)
    start, live = ask(answers, store, "t")
    again, same = ask(answers, store, "t")
    assert (again.again, same) == (True, live), "it is being made"
    assert answers.stop(start.message)
    last = ended(live)
    assert last.ending is not None and last.ending.status == "stopped"
    assert last.text_and_references[0] == ""
    assert not answers.stop(start.message)
    assert not answers.stop(99)
    answers.end(99)  # an unknown answer is no error


def test_closing_interrupts_answers_and_the_same_token_restarts_one(
    store: Store, answers_by: MakeAnswers
) -> None:
    is_over = threading.Event()

    def wait(talk: Conversation) -> None:
        talk.when_over(is_over.set)
        is_over.wait()

    first = answers_by(wait)
    start, live = ask(first, store, "t")
    first.close()
    last = ended(live)
    assert last.ending is not None and last.ending.status == "interrupted"
    second = answers_by(lambda talk: talk.say([AnswerPart("Again.")]))
    restart, live = ask(second, store, "t")
    assert restart == start, "the same question"
    assert ended(live).text_and_references[0] == "Again."


def test_only_answers_of_this_process_are_marked_as_interrupted(
    store: Store, answers_by: MakeAnswers
) -> None:
    def status() -> str | None:
        with store.reading() as snapshot:
            row = snapshot.queries.message(1)
        assert row is not None
        return row.status

    question = QuestionAsked(session=1, message=1, question="Who?", answerer="toy", node="one")
    knowledge.put(store, SessionCreated(session=1, key="k", title="T"), question)
    other = NodeAnswerRules("two")
    assert other.signed(question) == QuestionAsked(
        session=1, message=1, question="Who?", answerer="toy", node="two"
    )
    assert NodeAnswerRules(None).signed(question) is AnswerRules().signed(question) is question
    created = SessionCreated(session=1, key="k", title="T")
    assert other.signed(created) is created
    assert other.signed(AnswerRestarted(session=1, message=1)) == AnswerRestarted(
        session=1, message=1, node="two"
    )
    answers_by(lambda talk: None, other).recover()
    assert status() is None, "another node may be making it"
    answers_by(lambda talk: None, NodeAnswerRules("one")).recover()
    assert status() == "interrupted"
    with store.reading() as snapshot:
        assert AnswerRules().began_here(store, snapshot.queries, 1)
        assert not other.began_here(store, snapshot.queries, 99)


# ---------------------------------------------------------------------- questions


def test_earlier_turns_of_a_session_are_those_that_were_finished() -> None:
    rows = [
        SimpleNamespace(question=question, text=text, status=status)
        for question, text, status in (
            ("One?", "1", "finished"),
            ("Two?", "2", "failed"),
            ("Three?", "3", "finished"),
        )
    ]
    limits: list[dict[str, int]] = []

    def messages(session: int, **more: int) -> list[Any]:
        limits.append(more)
        return rows

    queries = cast(Queries, SimpleNamespace(messages=messages))
    facts: dict[str, Any] = dict.fromkeys(SessionRow.__struct_fields__)
    row = SessionRow(**{**facts, "id": 4, "kbs": ["birds"]})
    request = asking.retrieval_request(queries, QUESTION, row, before=7)
    assert request.earlier == [EarlierTurn("One?", "1"), EarlierTurn("Three?", "3")]
    assert (request.question, request.kbs, request.budget_tokens) == ("Who?", ["birds"], 100)
    assert limits == [{"before": 7, "limit": 10}]
    without = asking.retrieval_request(queries, QUESTION, None)
    assert (without.earlier, without.kbs) == ([], None)
