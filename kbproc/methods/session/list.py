"""session.list: list the conversations by id."""

from __future__ import annotations

from kbproc.base.params import PastListParams
from kbproc.calls.call import Call
from kbproc.calls.method import Example, method
from kbproc.calls.pages import Page
from kbproc.calls.reply import Reply
from kbproc.sessions.session import Session, session_of


class ListSessions(PastListParams, kw_only=True, frozen=True):
    pass


@method(
    "session.list",
    params=ListSessions,
    result=list[Session],
    shown=("id", "title", "kb", "agent", "message_count", "updated_at"),
    summary="List the conversations by id.",
    when_to_use="To find one that was begun before. A process that is bound to an agent sees its "
    "own.",
    examples=[Example(params={"limit": 5}, what="the first five")],
)
def list_sessions(call: Call, params: ListSessions) -> Reply:
    page = Page(params, int)
    with call.state(params) as state, state.reading() as snapshot:
        return page.reply(
            snapshot.queries.sessions(after=page.after, limit=page.wanted),
            session_of,
            key=lambda row: row.id,
            seq=snapshot.seq,
        )
