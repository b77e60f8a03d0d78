"""agent.list: list the agents by slug."""

from __future__ import annotations

from kbproc.agents import agent
from kbproc.agents.agent import Agent
from kbproc.base.paging import decode_cursor, encode_cursor, page
from kbproc.base.params import ListParams
from kbproc.calls.call import Call
from kbproc.calls.method import Example, method
from kbproc.calls.reply import Reply


class ListAgents(ListParams, kw_only=True, frozen=True):
    pass


@method(
    "agent.list",
    params=ListAgents,
    result=list[Agent],
    summary="List the agents by slug.",
    when_to_use="To learn which agents there are and what each may see and do. A process that "
    "is bound to an agent sees only that one.",
    examples=[Example(params={}, what="all of them")],
)
def list_agents(call: Call, params: ListAgents) -> Reply:
    after = decode_cursor(params.cursor, str)
    with call.store.reading() as snapshot:
        if call.agent is None:
            found = snapshot.queries.agents(after, params.limit + 1)
        else:
            found = [call.agent] if call.agent.slug > after else []
        rows, more = page(found, params.limit)
        return Reply(
            data=[agent.shown(call.store, row) for row in rows],
            seq=snapshot.seq,
            count=len(rows),
            has_more=more,
            next_cursor=encode_cursor(rows[-1].slug) if more else None,
        )
