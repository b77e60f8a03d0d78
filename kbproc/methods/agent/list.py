"""agent.list: list the agents by slug."""

from __future__ import annotations

from typing import Any

from kbproc.agents import agent
from kbproc.agents.agent import Agent
from kbproc.base.layout import Table
from kbproc.base.params import ListParams
from kbproc.calls.call import Call
from kbproc.calls.method import Example, method
from kbproc.calls.pages import Page
from kbproc.calls.reply import Reply


class ListAgents(ListParams, kw_only=True, frozen=True):
    pass


def as_table(agents: list[dict[str, Any]], params: dict[str, Any]) -> Table:
    """Of an agent's scopes only how many there are."""
    columns = ("slug", "description", "kbs", "scopes", "quotas")
    rows = [agent.in_words(one) for one in agents]
    for row in rows:
        if isinstance(row["scopes"], list):
            row["scopes"] = len(row["scopes"])
    return Table(rows=rows, columns=columns)


@method(
    "agent.list",
    params=ListAgents,
    result=list[Agent],
    shown=as_table,
    summary="List the agents by slug.",
    when_to_use="To learn which agents there are and what each may see and do. A process that "
    "is bound to an agent sees only that one.",
    examples=[Example(params={}, what="all of them")],
)
def list_agents(call: Call, params: ListAgents) -> Reply:
    page = Page(params, str)
    with call.store.reading() as snapshot:
        if call.agent is None:
            found = snapshot.queries.agents(page.after, page.wanted)
        else:
            found = [call.agent] if call.agent.slug > page.after else []
        return page.reply(
            found,
            lambda row: agent.agent_of(call.store, row),
            key=lambda row: row.slug,
            seq=snapshot.seq,
        )
