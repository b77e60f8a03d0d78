"""Steps of an answer: their texts join to the answer, however its events were cut."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kbproc.knowledge.sessions.encoders.transcript import (
    AnswerEnd,
    Notice,
    ReferenceList,
    Start,
    TextDelta,
    TextEnd,
    TextStart,
    steps,
)

Message = dict[str, Any]


def event(type: str, **fields: Any) -> Message:
    return {"jsonrpc": "2.0", "method": "event", "params": {"type": type, **fields}}


def response(**data: Any) -> Message:
    return {"jsonrpc": "2.0", "id": 1, "result": {"data": data, "meta": {}}}


EVENTS = st.lists(
    st.one_of(
        st.builds(lambda delta: event("answer", delta=delta), st.text("ab", max_size=2)),
        st.builds(lambda text: event("answer", text=text), st.text("cd", max_size=2)),
        st.just(event("warning", kind="restarted", message="again")),
        st.just(event("warning", message="slow")),
        st.just(event("progress", done=1)),
    ),
    max_size=8,
)


@given(events=EVENTS)
def test_texts_begin_and_end_in_turn_and_the_last_is_the_answer(events: list[Message]) -> None:
    """A snapshot replaces the text before it, and so does a restart."""
    text, replaced = "", False
    for one in (one["params"] for one in events):
        if one.get("kind") == "restarted" or "text" in one:
            text, replaced = "", True
        text += one.get("text") or one.get("delta") or ""
    sequence, open_text, texts = list(steps([*events, response(status="finished")])), 0, [""]
    for step in sequence:
        if isinstance(step, TextStart):
            assert not open_text
            open_text = step.n
            assert step.n == len(texts)
            texts.append("")
        elif isinstance(step, TextDelta):
            assert step.n == open_text
            assert step.delta
            texts[-1] += step.delta
        elif isinstance(step, TextEnd):
            assert step.n == open_text
            open_text = 0
        elif isinstance(step, Notice) and step.kind == "restarted":
            assert not open_text
    assert not open_text
    assert isinstance(sequence[-1], AnswerEnd)
    assert not text or texts[-1] == text
    assert replaced or len(texts) <= 2


def test_each_message_becomes_the_steps_that_it_means() -> None:
    transcript = [
        event("init", session_id=3, message_id=4),
        event("references", references=[{"n": 1}], cursor="c1"),
        event("answer", delta="A ", cursor="c2"),
        {"jsonrpc": "2.0", "method": "other", "params": {}},
        event("answer", references=[], text="A heron", cursor="c3"),
        response(status="finished", text="A heron"),
    ]
    assert list(steps(transcript)) == [
        Start(session=3, message=4),
        ReferenceList(references=[{"n": 1}], cursor="c1"),
        TextStart(n=1),
        TextDelta(n=1, delta="A ", cursor="c2"),
        ReferenceList(references=[], cursor="c3"),
        TextEnd(n=1),
        TextStart(n=2),
        TextDelta(n=2, delta="A heron", cursor="c3"),
        TextEnd(n=2),
        AnswerEnd(status="finished", result={"status": "finished", "text": "A heron"}, error=None),
    ]


def test_an_error_ends_the_text_and_keeps_the_status_of_the_answer() -> None:
    error = {"code": -32000, "data": {"type": "operation.cancelled"}}
    stopped = {**error, "data": {**error["data"], "detail": {"status": "stopped"}}}
    for one, status in ((error, None), (stopped, "stopped")):
        [*_, end, last] = steps([event("answer", delta="A"), {"id": 1, "error": one}])
        assert end == TextEnd(n=1)
        assert last == AnswerEnd(status=status, result={}, error=one)
