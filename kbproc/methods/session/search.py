"""session.search: find what was asked and answered in the conversations."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta

from kbproc.base.layout import Hits
from kbproc.base.params import BudgetTokens, PastParams
from kbproc.base.values import KbSlug
from kbproc.knowledge.agents.agent import AgentSlug
from kbproc.knowledge.documents.selection import (
    CreatedAfter,
    CreatedBefore,
    UpdatedAfter,
    session_filter_of,
)
from kbproc.knowledge.search import turns
from kbproc.knowledge.search.params import Limit, MinScore, Offset, QueryText, SnippetChars
from kbproc.knowledge.search.turns import TurnHit, TurnSearch, turn_layout
from kbproc.methods.calls.call import Call
from kbproc.methods.calls.method import Example, method
from kbproc.methods.calls.reply import Reply, fitting


class SearchSessions(PastParams, kw_only=True, frozen=True):
    query: QueryText
    limit: Limit = 10
    offset: Offset = 0
    created_after: CreatedAfter | None = None
    created_before: CreatedBefore | None = None
    updated_after: UpdatedAfter | None = None
    agent: Annotated[AgentSlug, Meta(description="only those with this agent")] | None = None
    kb: Annotated[KbSlug, Meta(description="only those that may use this")] | None = None
    min_score: MinScore | None = None
    snippet_chars: SnippetChars = 240
    budget_tokens: BudgetTokens | None = None


def as_hits(hits: list[dict[str, Any]], params: dict[str, Any]) -> Hits:
    return Hits(hits=[turn_layout(hit) for hit in hits], first=int(params.get("offset", 0)) + 1)


@method(
    "session.search",
    params=SearchSessions,
    result=list[TurnHit],
    layout=as_hits,
    summary="Search questions and answers.",
    when_to_use="To recall an earlier question or answer by its words; a hit is a turn. "
    "session.get with before, its message_id + 1, shows it whole.",
    positional=["query"],
    examples=[
        Example(params={"query": "install git", "limit": 3}, what="the best three turns"),
        Example(params={"query": "git last week"}, what="turns of another time count less"),
        Example(params={"query": ""}, what="an empty query", exit=1),
    ],
    looks_at_kb=False,  # because it finds what session.list lists
)
def search_sessions(call: Call, params: SearchSessions) -> Reply:
    request = TurnSearch(
        query=params.query,
        filter=session_filter_of(params),
        now=call.moment(params),
        limit=params.limit,
        offset=params.offset,
        min_score=params.min_score,
        snippet_chars=params.snippet_chars,
    )
    with call.state(params) as state:
        answer = turns.run(state, request)
    count = fitting(params, params.budget_tokens, answer.hits)
    return Reply(
        data=answer.hits[:count],
        seq=answer.seq,
        count=count,
        total=answer.total,
        has_more=answer.has_more or count < len(answer.hits),
        hint=answer.hint,
    )
