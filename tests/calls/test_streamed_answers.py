"""A wait for an answer ends with the answer, its cancellation, or the call that reads on."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from kbproc.base.errors import KbprocError
from kbproc.base.params import WriteParams
from kbproc.engine.store import pipeline
from kbproc.engine.store.decision import WriteRequest
from kbproc.knowledge.sessions.asking import Asking
from kbproc.knowledge.sessions.reading import Answered, Reader
from kbproc.methods.all import registry
from kbproc.methods.calls import answers
from kbproc.methods.calls.call import Call, Peer
from tests.kit.fixed import FixedHost
from tests.kit.patience import until
from tests.kit.talk import Session

QUESTION = Asking(question="Which rope?", detail="indexes", budget_tokens=100, key="k")


def answered(status: Any) -> Answered:
    return Answered(
        session_id=3,
        message_id=5,
        status=status,
        text="A rope.",
        references=[],
        see_also=[],
        usage=None,
    )


def reader(status: str = "finished", cursor: str | None = "c1") -> Reader:
    members = {
        "message": 5,
        "cursor": cursor,
        "more": True,
        "turn": lambda: True,
        "outcome": lambda: (answered(status), "a hint", 9),
    }
    return cast(Reader, SimpleNamespace(**members))


class FakeCall:
    """A call whose store has this row of message 5, and that notes which answers are ended."""

    def __init__(self, row: Any) -> None:
        self.ended: list[int] = []
        self.library = SimpleNamespace(answers=SimpleNamespace(end=self.ended.append))
        self.store = self
        self.snapshot = SimpleNamespace(queries=SimpleNamespace(message=lambda id: row))

    def reading(self) -> Any:
        snapshot = self.snapshot

        class Reading:
            def __enter__(self) -> Any:
                return snapshot

            def __exit__(self, *error: object) -> None:
                """Has nothing to close."""

        return Reading()


def call() -> Any:
    return FakeCall(SimpleNamespace(session_id=3))


def test_a_wait_ends_with_the_answer_and_its_hint() -> None:
    wait = answers.wait(call(), reader(), timeout_ms=7, own=True, again=True)
    assert (wait.timeout_ms, wait.lasts, wait.ready()) == (7, True, True)
    assert wait.tail is not None and wait.tail.more()
    assert wait.tail.detail() == {"message_id": 5, "cursor": "c1"}
    reply = wait.resume()
    assert (reply.data, reply.hint, reply.seq, reply.duplicate) == (
        answered("finished"),
        "a hint",
        9,
        True,
    )
    first = answers.wait(call(), reader(), timeout_ms=None, own=True).resume()
    assert first.duplicate is None


def test_cancelling_the_request_that_asked_stops_the_answer() -> None:
    fake = call()
    wait = answers.wait(fake, reader("stopped"), timeout_ms=None, own=True)
    assert wait.resume().data.status == "stopped", "another client has stopped it"
    assert wait.cancel is not None
    wait.cancel()
    assert fake.ended == [5]
    with pytest.raises(KbprocError) as error:
        wait.resume()
    assert (error.value.type, error.value.seq) == ("operation.cancelled", 9)
    assert error.value.retry is not None
    assert error.value.retry.method == "session.resume"
    assert error.value.retry.params == {"session_id": 3, "message_id": 5}
    assert error.value.detail == {
        "session_id": 3,
        "status": "stopped",
        "message_id": 5,
        "cursor": "c1",
    }
    finished = answers.wait(fake, reader("finished"), timeout_ms=None, own=True)
    assert finished.cancel is not None
    finished.cancel()
    assert finished.resume().data.status == "finished", "it had ended before"


def test_a_client_that_only_reads_does_not_stop_the_answer() -> None:
    wait = answers.wait(call(), reader(), timeout_ms=None, own=False)
    assert (wait.cancel, wait.lasts) == (None, False)


@pytest.mark.parametrize(
    ("row", "cursor", "params"),
    [
        (
            SimpleNamespace(session_id=3),
            "c1",
            {"session_id": 3, "message_id": 5, "after": "c1"},
        ),
        (SimpleNamespace(session_id=3), None, {"session_id": 3, "message_id": 5}),
        (None, None, {"message_id": 5}),
    ],
)
def test_a_timeout_says_how_to_read_on(row: Any, cursor: str | None, params: Any) -> None:
    fake: Any = FakeCall(row)
    error = answers.wait(fake, reader(cursor=cursor), timeout_ms=1, own=True).expired()
    assert (error.type, error.field) == ("operation.timeout", "$.params.timeout_ms")
    assert error.retry is not None and error.retry.params == params
    assert error.detail == {
        **{name: value for name, value in params.items() if name != "after"},
        **({} if cursor is None else {"cursor": cursor}),
    }
    assert fake.ended == [], "the answer goes on"


def test_people_read_the_answer_and_its_sources_below_it() -> None:
    data = {"text": "A rope [1].", "references": [{"n": 1, "cite": "Crane"}], "see_also": []}
    assert answers.prose(data, {}).lines == ["A rope [1].", "", "[1] Crane"]
    data = {"text": "None.", "references": [], "see_also": [{"n": 2, "cite": "Port"}]}
    assert answers.prose(data, {}).lines == ["None.", "", "See also:", "[2] Port"]
    assert answers.prose({**data, "see_also": []}, {}).lines == ["None."]


def own_call(session: Session, events: list[tuple[str, dict[str, Any]]]) -> Call:
    """Returns a person's call on a store with one document; it adds what it emits to `events`."""
    session.data("doc.create", title="Crane", text="The crane needs a steel rope of 12 mm.")
    session.embedded()
    return Call(
        registry=registry(),
        host=FixedHost(),
        peer=Peer(
            actor="ann", scopes=frozenset({"doc:read"}), cwd=Path("/"), root=None, kb="default"
        ),
        open_library=lambda: session.library,
        emit=lambda name, fields: events.append((name, fields)),
        now="2026-01-01T00:00:00.000Z",
    )


def test_a_question_in_a_new_session_is_introduced_and_answered_once(session: Session) -> None:
    events: list[tuple[str, dict[str, Any]]] = []
    own = own_call(session, events)

    def ask(question: Asking) -> Answered:
        params = WriteParams(client_token=question.question)
        request = WriteRequest(
            method="chat", actor="ann", params=params, destructive=False, now=own.now
        )
        write = pipeline.LongWrite(session.store, request)
        wait = answers.ask(own, question, write, timeout_ms=None)
        until(wait.ready, "the end of the answer")
        data: Answered = wait.resume().data
        return data

    first = ask(QUESTION)
    assert (first.session_id, first.message_id, first.references[0].cite) == (1, 1, "Crane")
    assert events[0] == (
        "init",
        {"session_id": 1, "message_id": 1, "kb": None, "agent": None, "profile": None},
    )
    assert ask(QUESTION) == first, "the same token"
    again = ask(msgspec.structs.replace(QUESTION, question="Which rope then?", session=1))
    assert (again.session_id, again.message_id) == (1, 2)
    inits = [fields["message_id"] for name, fields in events if name == "init"]
    assert inits == [1, 1, 2]
    reader = answers.reader_of(own, 2)
    until(reader.turn, "the end of the answer")
    assert reader.outcome()[0] == again
    with pytest.raises(KbprocError) as error:
        ask(msgspec.structs.replace(QUESTION, question="Where?", session=99))
    assert error.value.type == "resource.not_found"


def test_a_plan_names_the_references_and_asks_no_model(session: Session) -> None:
    own = own_call(session, [])
    request = WriteRequest(
        method="chat", actor="ann", params=WriteParams(dry_run=True), destructive=False, now=own.now
    )
    outcome = pipeline.preview(session.store, request, answers.plan(own, QUESTION))
    assert outcome.plan is not None
    first, *cited = outcome.plan.changes
    assert first.startswith("ask extractive with a prompt of about ")
    assert cited == ["[1] Crane"]
    assert cast(dict[str, int], outcome.plan.counts)["references"] == 1
    with pytest.raises(KbprocError) as error:
        pipeline.preview(
            session.store,
            request,
            answers.plan(own, msgspec.structs.replace(QUESTION, agent="gull")),
        )
    assert error.value.type == "resource.not_found"
    assert error.value.message == (
        "The agent 'gull', which answers this session, does not exist any more."
    )
