"""agent.invoke: ask a question of an agent; the answer comes as a stream."""

from __future__ import annotations

from kbproc.base.errors import KbprocError
from kbproc.base.params import WriteParams
from kbproc.engine.store.decision import Decide
from kbproc.engine.store.pipeline import LongWrite
from kbproc.knowledge.agents import agent as agents
from kbproc.knowledge.sessions import session
from kbproc.knowledge.sessions.asking import Asking
from kbproc.knowledge.sessions.reading import Answered
from kbproc.knowledge.sessions.retrieval import BUDGET_TOKENS
from kbproc.knowledge.sessions.session import Budget, HowMuch, Question, SessionId
from kbproc.methods.calls import answers
from kbproc.methods.calls.call import Call
from kbproc.methods.calls.method import Example, method
from kbproc.methods.calls.reply import Wait


class InvokeAgent(WriteParams, kw_only=True, frozen=True):
    slug: agents.AgentSlug
    question: Question
    session_id: SessionId | None = None
    references: HowMuch = "indexes"
    budget_tokens: Budget = BUDGET_TOKENS


def _asking(call: Call, params: InvokeAgent) -> Asking:
    """Returns the question; raises resource.not_found, input.invalid_params for another's
    session.
    """
    with call.store.reading() as snapshot:
        row = agents.require(snapshot.queries, params.slug, only=call.agent)
        conversation = params.session_id and session.require(snapshot.queries, params.session_id)
    if conversation and conversation.agent != row.slug:
        raise KbprocError(
            "input.invalid_params",
            f"Session {conversation.id} is not one of agent {row.slug}.",
            field="$.params.session_id",
            hint="Leave it out to begin one, or ask in it with session.ask.",
        )
    return Asking(
        session=params.session_id,
        question=params.question,
        agent=row.slug,
        detail=params.references,
        budget_tokens=params.budget_tokens,
        profile=call.peer.profile,
        key="" if params.dry_run or params.session_id else call.host.salt(),
    )


def plan(call: Call, params: InvokeAgent) -> Decide:
    return answers.plan(call, _asking(call, params))


@method(
    "agent.invoke",
    kind="write",
    undone_by=("events.revert",),
    streams=True,
    from_log=True,
    scope="session:write",
    also_needs="doc:read",
    params=InvokeAgent,
    result=Answered,
    plan=plan,
    layout=answers.prose,
    summary="Ask a question of an agent; the answer comes as a stream.",
    when_to_use="To have a question answered from what the agent sees, by its instructions. "
    "Without session_id it begins a conversation of the agent's.",
    errors=["resource.not_found", "llm.unavailable"],
    positional=["slug", "question"],
    examples=[
        Example(params={"slug": "gitea", "question": "Who signs deploy hooks?"}, what="a question"),
        Example(params={"slug": "nobody", "question": "Who?"}, what="no such agent", exit=5),
    ],
)
def invoke(call: Call, params: InvokeAgent, write: LongWrite) -> Wait:
    return answers.ask(call, _asking(call, params), write, timeout_ms=params.timeout_ms)
