"""session.get: show one conversation with its last messages."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from kbproc.base.layout import TextLines
from kbproc.base.params import BudgetTokens, PastParams
from kbproc.knowledge.sessions import session
from kbproc.knowledge.sessions.session import MessageId, SessionId, SessionText
from kbproc.methods.calls.call import Call
from kbproc.methods.calls.method import Example, method
from kbproc.methods.calls.reply import Reply, fitting


class GetSession(PastParams, kw_only=True, frozen=True):
    session_id: SessionId
    limit: Annotated[int, Meta(ge=1, le=1000, description="most messages, the last ones")] = 50
    before: Annotated[MessageId, Meta(description="only messages before this one")] | None = None
    budget_tokens: BudgetTokens | None = None


def as_talk(data: dict[str, Any], params: dict[str, Any]) -> TextLines:
    """Returns the conversation's lines."""
    head = data["title"] or f"Session {data['id']}"
    lines = [line for message in data["messages"] for line in session.as_lines(message)]
    return TextLines(lines=[head, "", *lines])


@method(
    "session.get",
    params=GetSession,
    result=SessionText,
    layout=as_talk,
    summary="Show one conversation with its last messages.",
    when_to_use="To read what was asked and answered. meta.has_more: earlier messages come with "
    "before.",
    errors=["resource.not_found"],
    positional=["session_id"],
    examples=[
        Example(params={"session_id": 1}, what="the last fifty messages"),
        Example(params={"session_id": 9_999_999}, what="one that does not exist", exit=5),
    ],
)
def get(call: Call, params: GetSession) -> Reply:
    with call.state(params) as state, state.reading() as snapshot:
        row = session.require(snapshot.queries, params.session_id)
        before = 2**53 + 1 if params.before is None else params.before
        rows = snapshot.queries.messages(row.id, before=before, limit=params.limit + 1)
        data = session.with_messages(row, rows[-params.limit :])
        count = fitting(params, params.budget_tokens, data.messages[::-1])
        last = data.messages[len(data.messages) - count :]
        return Reply(
            data=msgspec.structs.replace(data, messages=last),
            seq=snapshot.seq,
            has_more=count < len(rows),
        )
