"""session.resume: read an answer on from where a stream was lost, to its end."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from kbproc.base.errors import KbprocError
from kbproc.base.params import ReadParams
from kbproc.knowledge.sessions import session
from kbproc.knowledge.sessions.reading import Answered
from kbproc.knowledge.sessions.session import MessageId, SessionId
from kbproc.methods.calls import answers
from kbproc.methods.calls.call import Call
from kbproc.methods.calls.method import Example, method
from kbproc.methods.calls.reply import Wait


class ResumeSession(ReadParams, kw_only=True, frozen=True):
    session_id: SessionId
    message_id: MessageId
    after: (
        Annotated[str, Meta(max_length=200, description="cursor of the last event that came")]
        | None
    ) = None
    snapshot: Annotated[
        bool, Meta(description="what there is by now as one event, then what comes")
    ] = False


@method(
    "session.resume",
    streams=True,
    from_log=True,
    params=ResumeSession,
    result=Answered,
    layout=answers.prose,
    summary="Read an answer on from where its stream was lost.",
    when_to_use="After a lost pipe, a crash or days: the events after the cursor come byte for "
    "byte as they would have come, then what is being made, then the one end. Any number may read.",
    errors=["resource.not_found", "resource.conflict", "llm.unavailable"],
    positional=["session_id", "message_id"],
    examples=[
        Example(params={"session_id": 1, "message_id": 1}, what="from its beginning"),
        Example(params={"session_id": 1, "message_id": 9}, what="no such message", exit=5),
    ],
)
def resume(call: Call, params: ResumeSession) -> Wait:
    if params.after is not None and params.snapshot:
        raise KbprocError(
            "input.invalid_params",
            "Give after or snapshot, not both.",
            field="$.params.snapshot",
            hint="A snapshot holds all there is, whatever came before.",
        )
    with call.store.reading() as snapshot:
        row = session.require(snapshot.queries, params.session_id)
        message = session.require_message(snapshot.queries, row, params.message_id)
    reader = answers.reader_of(call, message.id)
    if params.after is not None:
        reader.go_to(params.after)
    answers.introduce(call, row, message.id)
    if params.snapshot:
        reader.skip_to_now()
    return answers.wait(call, reader, timeout_ms=params.timeout_ms, own=False)
