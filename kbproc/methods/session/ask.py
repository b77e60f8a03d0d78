"""session.ask: ask a question in a conversation; the answer comes as a stream."""

from __future__ import annotations

from kbproc.base.params import WriteParams
from kbproc.engine.store.decision import Decide
from kbproc.engine.store.pipeline import LongWrite
from kbproc.knowledge.sessions.asking import Asking
from kbproc.knowledge.sessions.reading import Answered
from kbproc.knowledge.sessions.retrieval import BUDGET_TOKENS
from kbproc.knowledge.sessions.session import Budget, HowMuch, Question, SessionId
from kbproc.methods.calls import answers
from kbproc.methods.calls.call import Call
from kbproc.methods.calls.method import Example, method
from kbproc.methods.calls.reply import Wait


class AskSession(WriteParams, kw_only=True, frozen=True):
    session_id: SessionId
    question: Question
    references: HowMuch = "indexes"
    budget_tokens: Budget = BUDGET_TOKENS


def _asking(call: Call, params: AskSession) -> Asking:
    return Asking(
        session=params.session_id,
        question=params.question,
        detail=params.references,
        budget_tokens=params.budget_tokens,
        profile=call.peer.profile,
        key="",
    )


def plan(call: Call, params: AskSession) -> Decide:
    return answers.plan(call, _asking(call, params))


@method(
    "session.ask",
    kind="write",
    undone_by=("events.revert",),
    streams=True,
    from_log=True,
    also_needs="doc:read",
    params=AskSession,
    result=Answered,
    plan=plan,
    layout=answers.prose,
    summary="Ask in a conversation; the answer is a stream.",
    when_to_use="For a question that goes on from those before it. The answer is kept: whoever "
    "loses the stream goes on with session.resume. A status of refused says that the store does "
    "not know.",
    errors=["resource.not_found", "llm.unavailable"],
    positional=["session_id", "question"],
    examples=[
        Example(params={"session_id": 1, "question": "How is git installed?"}, what="a question"),
        Example(
            params={"session_id": 1, "question": "How is git installed?", "dry_run": True},
            what="what it would be answered from",
        ),
        Example(
            params={"session_id": 9_999_999, "question": "Who?"},
            what="a session that does not exist",
            exit=5,
        ),
    ],
)
def ask(call: Call, params: AskSession, write: LongWrite) -> Wait:
    return answers.ask(call, _asking(call, params), write, timeout_ms=params.timeout_ms)
