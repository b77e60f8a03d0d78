"""agent.list: list the agents by slug."""

from __future__ import annotations

from typing import Any

from kbproc.base.layout import Table
from kbproc.base.params import ListParams
from kbproc.knowledge.agents import agent
from kbproc.knowledge.agents.agent import Agent
from kbproc.methods.calls.call import Call
from kbproc.methods.calls.method import Example, method
from kbproc.methods.calls.reply import Page, Reply


class ListAgents(ListParams, kw_only=True, frozen=True):
    pass


def as_table(agents: list[dict[str, Any]], params: dict[str, Any]) -> Table:
    """Returns the agents as rows; of scopes only their number."""
    columns = ("slug", "description", "kbs", "scopes", "quotas")
    rows = [agent.in_words(members) for members in agents]
    for row in rows:
        if isinstance(row["scopes"], list):
            row["scopes"] = len(row["scopes"])
    return Table(rows=rows, columns=columns)


@method(
    "agent.list",
    params=ListAgents,
    result=list[Agent],
    layout=as_table,
    summary="List the agents by slug.",
    when_to_use="To learn which agents there are and what each may see and do. A process that "
    "is bound to an agent sees only that one.",
    examples=[Example(params={}, what="all of them")],
)
def list_agents(call: Call, params: ListAgents) -> Reply:
    page = Page(params, str)
    with call.store.reading() as snapshot:
        if call.agent is None:
            rows = snapshot.queries.agents(page.after, page.read_limit)
        else:
            rows = [call.agent] if call.agent.slug > page.after else []
        return page.reply(
            rows,
            lambda row: agent.agent_of(call.store, row),
            key=lambda row: row.slug,
            seq=snapshot.seq,
        )
