"""agent.get: show one agent."""

from __future__ import annotations

from kbproc.base.params import ReadParams
from kbproc.knowledge.agents import agent
from kbproc.knowledge.agents.agent import Agent
from kbproc.methods.calls.call import Call
from kbproc.methods.calls.method import Example, method
from kbproc.methods.calls.reply import Reply


class GetAgent(ReadParams, kw_only=True, frozen=True):
    slug: agent.AgentSlug


@method(
    "agent.get",
    params=GetAgent,
    result=Agent,
    layout=agent.as_record,
    summary="Show one agent.",
    when_to_use="To read its instructions, its revision, or where its notes lie.",
    errors=["resource.not_found"],
    positional=["slug"],
    examples=[
        Example(params={"slug": "gitea"}, what="what it sees and may do"),
        Example(params={"slug": "nobody"}, what="one that does not exist", exit=5),
    ],
)
def get(call: Call, params: GetAgent) -> Reply:
    with call.store.reading() as snapshot:
        row = agent.require(snapshot.queries, params.slug, only=call.agent)
        return Reply(data=agent.agent_of(call.store, row), seq=snapshot.seq)
