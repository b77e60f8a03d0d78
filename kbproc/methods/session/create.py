"""session.create: begin a conversation."""

from __future__ import annotations

from kbproc.base.params import WriteParams
from kbproc.base.values import clean_name
from kbproc.engine.store.decision import Decide, Decision, DecisionState
from kbproc.knowledge.agents import agent as agents
from kbproc.knowledge.agents.agent import AgentSlug
from kbproc.knowledge.documents import lookup
from kbproc.knowledge.documents.selection import kbs_of
from kbproc.knowledge.sessions import session
from kbproc.knowledge.sessions.session import AskedKbs, Session, SessionTitle
from kbproc.methods.calls.call import Call
from kbproc.methods.calls.method import Example, method


class CreateSession(WriteParams, kw_only=True, frozen=True):
    title: SessionTitle = ""
    kb: AskedKbs | None = None
    agent: AgentSlug | None = None


@method(
    "session.create",
    kind="write",
    undone_by=("events.revert",),
    looks_at_kb=True,
    params=CreateSession,
    result=Session,
    summary="Begin a conversation.",
    when_to_use="Before several questions that belong together: a later one is understood by "
    "those before it. For a single one chat begins a conversation by itself. With agent the "
    "answers are from what that agent sees, by its instructions.",
    errors=["resource.not_found"],
    positional=["title"],
    examples=[
        Example(params={"title": "Setting up Git", "kb": "default"}, what="about one kb"),
        Example(params={"kb": "defualt"}, what="a kb that is not there", exit=5),
    ],
)
def create(call: Call, params: CreateSession) -> Decide:
    title = clean_name(params.title, field="$.params.title") if params.title else ""
    key = call.host.salt()

    def decide(here: DecisionState) -> Decision:
        lookup.require_kbs(here.kbs, params.kb)
        slug = None if call.agent is None else call.agent.slug
        if params.agent is not None:
            slug = agents.require(
                here.queries, params.agent, only=call.agent, field="$.params.agent"
            ).slug
        event = session.created(here, key, title=title, kbs=kbs_of(params.kb), agent=slug)
        row = session.row_of(event, by=call.peer.actor, now=here.ts)
        return Decision(
            events=[event],
            data=session.session_of(row),
            changes=[f"begin session {event.session}" + (f" “{title}”" if title else "")],
        )

    return decide
