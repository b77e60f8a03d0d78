"""chat: ask a question in a new conversation; the answer comes as a stream."""

from __future__ import annotations

from kbproc.base.params import WriteParams
from kbproc.engine.store.decision import Decide
from kbproc.engine.store.pipeline import LongWrite
from kbproc.knowledge.documents.selection import kbs_of
from kbproc.knowledge.sessions.asking import Asking
from kbproc.knowledge.sessions.reading import Answered
from kbproc.knowledge.sessions.retrieval import BUDGET_TOKENS
from kbproc.knowledge.sessions.session import AskedKbs, Budget, HowMuch, Question
from kbproc.methods.calls import answers
from kbproc.methods.calls.call import Call
from kbproc.methods.calls.method import Example, method
from kbproc.methods.calls.reply import Wait


class Chat(WriteParams, kw_only=True, frozen=True):
    question: Question
    kb: AskedKbs | None = None
    references: HowMuch = "indexes"
    budget_tokens: Budget = BUDGET_TOKENS


def _asking(call: Call, params: Chat) -> Asking:
    return Asking(
        question=params.question,
        kbs=kbs_of(params.kb),
        agent=None if call.agent is None else call.agent.slug,
        detail=params.references,
        budget_tokens=params.budget_tokens,
        profile=call.peer.profile,
        key="" if params.dry_run else call.host.salt(),
    )


def plan(call: Call, params: Chat) -> Decide:
    return answers.plan(call, _asking(call, params))


@method(
    "chat",
    kind="write",
    undone_by=("events.revert",),
    streams=True,
    from_log=True,
    looks_at_kb=True,
    scope="session:write",
    also_needs="doc:read",
    params=Chat,
    result=Answered,
    plan=plan,
    layout=answers.prose,
    summary="Ask a question in a new conversation; the answer is a stream.",
    when_to_use="For one question; session.ask asks the next one in the same conversation. A "
    "status of refused says that the store does not know.",
    errors=["resource.not_found", "llm.unavailable"],
    positional=["question"],
    examples=[
        Example(params={"question": "How is git installed?"}, what="a question"),
        Example(params={"question": "How is git installed?", "dry_run": True}, what="its sources"),
        Example(params={"question": "Who?", "kb": "defualt"}, what="a kb not there", exit=5),
    ],
)
def chat(call: Call, params: Chat, write: LongWrite) -> Wait:
    return answers.ask(call, _asking(call, params), write, timeout_ms=params.timeout_ms)
