"""session.stop: end an answer that is being made, for everybody who reads it."""

from __future__ import annotations

from msgspec import Struct

from kbproc.base.params import WriteParams
from kbproc.engine.events.session import Status
from kbproc.engine.store.decision import Decide, Decision, DecisionState
from kbproc.knowledge.sessions import session
from kbproc.knowledge.sessions.session import MessageId, SessionId
from kbproc.methods.calls.call import Call
from kbproc.methods.calls.method import Example, method


class StopSession(WriteParams, kw_only=True, frozen=True):
    session_id: SessionId
    message_id: MessageId


class Stopped(Struct, kw_only=True, frozen=True):
    """`stopped` is false where the answer had ended before; `status` says how."""

    session_id: int
    message_id: int
    stopped: bool
    status: Status


@method(
    "session.stop",
    kind="write",
    undone_by=(),
    idempotent=True,
    params=StopSession,
    result=Stopped,
    summary="End an answer that is being made, for all its readers.",
    when_to_use="When nobody needs the rest of it. What was said by then stays.",
    errors=["resource.not_found"],
    positional=["session_id", "message_id"],
    examples=[
        Example(params={"session_id": 1, "message_id": 9}, what="no such message", exit=5),
    ],
)
def stop(call: Call, params: StopSession) -> Decide:
    with call.store.reading() as snapshot:
        row = session.require(snapshot.queries, params.session_id)
        message = session.require_message(snapshot.queries, row, params.message_id)
    stopped = not params.dry_run and call.library.answers.stop(message.id)

    def decide(here: DecisionState) -> Decision:
        row = session.require(here.queries, params.session_id)
        message = session.require_message(here.queries, row, params.message_id)
        ending = session.ending_of(message)
        is_unended = ending is None and not params.dry_run  # the disk did not take its end
        outcome = Stopped(
            session_id=row.id,
            message_id=message.id,
            stopped=stopped,
            status="interrupted" if ending is None else ending.status,
        )
        return Decision(
            events=[session.cut_off(row.id, message.id)] if is_unended else [],
            data=outcome,
            changes=[] if ending else [f"stop the answer to message {message.id}"],
        )

    return decide
