"""session.delete: hide conversations from every read; the log keeps what was said."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from kbproc.base.params import DestructiveParams
from kbproc.base.wording import plural
from kbproc.engine.events.session import SessionDeleted
from kbproc.engine.store.decision import Decide, Decision, DecisionState
from kbproc.knowledge.documents.revision import MANY
from kbproc.knowledge.sessions import session
from kbproc.knowledge.sessions.session import SessionId
from kbproc.methods.calls.call import Call
from kbproc.methods.calls.method import Example, method


class DeleteSessions(DestructiveParams, kw_only=True, frozen=True):
    session_ids: Annotated[
        list[SessionId], Meta(min_length=1, max_length=1000, description="sessions, by id")
    ]


class DeletedSessions(Struct, kw_only=True, frozen=True):
    deleted: int
    ids: list[int]


@method(
    "session.delete",
    kind="destructive",
    undone_by=("events.revert",),
    params=DeleteSessions,
    result=DeletedSessions,
    summary="Hide conversations from reads; the log keeps their text.",
    when_to_use="When nobody needs them any more. store.purge erases what was said for good.",
    errors=["resource.not_found"],
    positional=["session_ids"],
    examples=[
        Example(params={"session_ids": [1], "dry_run": True}, what="only the plan"),
        Example(params={"session_ids": [9_999_999]}, what="one that does not exist", exit=5),
    ],
)
def delete(call: Call, params: DeleteSessions) -> Decide:
    field = "$.params.session_ids"

    def decide(here: DecisionState) -> Decision:
        ids = list(dict.fromkeys(params.session_ids))
        rows = [session.require(here.queries, id, field=field) for id in ids]
        session.refuse_unended(here.queries, rows, field=field)
        return Decision(
            events=[SessionDeleted(session=row.id) for row in rows],
            data=DeletedSessions(deleted=len(rows), ids=ids),
            targets=[session.target_of(row) for row in rows],
            changes=[
                f"hide session {row.id} “{row.title}” with {plural(row.message_count, 'message')}"
                for row in rows
            ],
            bulk=len(rows) >= MANY,
        )

    return decide
