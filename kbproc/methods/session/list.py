"""session.list: list the conversations by id."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from kbproc.base.params import PastListParams
from kbproc.base.values import KbSlug
from kbproc.knowledge.agents.agent import AgentSlug
from kbproc.knowledge.documents.selection import (
    CreatedAfter,
    CreatedBefore,
    UpdatedAfter,
    session_filter_of,
)
from kbproc.knowledge.sessions.session import Session, session_of
from kbproc.methods.calls.call import Call
from kbproc.methods.calls.method import Example, method
from kbproc.methods.calls.reply import Page, Reply


class ListSessions(PastListParams, kw_only=True, frozen=True):
    created_after: CreatedAfter | None = None
    created_before: CreatedBefore | None = None
    updated_after: UpdatedAfter | None = None
    agent: Annotated[AgentSlug, Meta(description="only those with this agent")] | None = None
    kb: Annotated[KbSlug, Meta(description="only those that may use this")] | None = None
    text: (
        Annotated[
            str,
            Meta(min_length=1, max_length=300, description="only where title or questions hold it"),
        ]
        | None
    ) = None


@method(
    "session.list",
    params=ListSessions,
    result=list[Session],
    layout=("id", "title", "kb", "agent", "message_count", "updated_at"),
    summary="List the conversations by id.",
    when_to_use="To find one that was begun before. A process that is bound to an agent sees its "
    "own.",
    examples=[
        Example(params={"limit": 5}, what="the first five"),
        Example(params={"updated_after": "2026-01-31"}, what="those that went on since then"),
        Example(params={"text": "rope"}, what="those in which somebody asked about ropes"),
    ],
    looks_at_kb=False,  # because a list of all conversations shows those of every knowledge base
)
def list_sessions(call: Call, params: ListSessions) -> Reply:
    page = Page(params, int)
    filter = session_filter_of(params, text=params.text)
    with call.state(params) as state, state.reading() as snapshot:
        return page.reply(
            snapshot.queries.sessions(filter, after=page.after, limit=page.read_limit),
            session_of,
            key=lambda row: row.id,
            seq=snapshot.seq,
        )
