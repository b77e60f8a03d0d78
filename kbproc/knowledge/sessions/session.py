"""Looks up sessions and messages, and shows them as structs.

It raises the not-found errors, and refuses changes while an answer is being made.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from msgspec import Meta, Struct

from kbproc.base.errors import KbprocError
from kbproc.base.unseen import one_line
from kbproc.base.values import decoder
from kbproc.engine.events.session import (
    AnswerEnded,
    Detail,
    Failure,
    Reference,
    SessionCreated,
    Status,
    Usage,
)
from kbproc.engine.projections.catalog.queries import Queries
from kbproc.engine.projections.catalog.rows import MessageRow, SessionRow
from kbproc.engine.store.decision import DecisionState
from kbproc.engine.store.target import Target
from kbproc.knowledge.documents.selection import Kbs
from kbproc.knowledge.sessions import citations

SessionId = Annotated[int, Meta(ge=1, le=2**53, description="session, by id")]
MessageId = Annotated[int, Meta(ge=1, le=2**53, description="message, by id")]
Question = Annotated[
    str, Meta(min_length=1, max_length=8000, description="the question, in plain words")
]
SessionTitle = Annotated[str, Meta(max_length=200, description="what it is about")]
AskedKbs = Annotated[
    Kbs, Meta(description="knowledge base to answer from, or several; all if left out")
]
Budget = Annotated[int, Meta(ge=100, le=100_000, description="most tokens of passages, about")]
HowMuch = Annotated[
    Detail,
    Meta(description="how much of each passage is returned: ids only, a snippet, or its text"),
]

_TITLE_CHARS = 80
_decode_ending = decoder(list[AnswerEnded]).decode


class Session(Struct, kw_only=True, frozen=True):
    """A conversation. `kb` is null where it may use all that its agent, if any, sees."""

    id: int
    title: str
    kb: list[str] | None
    agent: str | None
    message_count: int
    created_at: str
    created_by: str
    updated_at: str


class Message(Struct, kw_only=True, frozen=True):
    """A question and its answer. `status` is null while the answer is being made.

    `references`: the passages that the answer cites; `see_also`: the others that were found.
    `failure` says why it has failed; `hint` what helps where there is no answer.
    """

    message_id: int
    question: str
    status: Status | None
    text: str
    references: list[Reference]
    see_also: list[Reference]
    usage: Usage | None
    hint: str | None
    failure: Failure | None
    asked_at: str
    asked_by: str
    ended_at: str | None


class SessionText(Session, kw_only=True, frozen=True):
    """A conversation with its last messages, oldest first."""

    messages: list[Message]


def session_of(row: SessionRow) -> Session:
    return Session(**_members(row))


def _members(row: SessionRow) -> dict[str, Any]:
    return {
        "id": row.id,
        "title": row.title,
        "kb": row.kbs,
        "agent": row.agent,
        "message_count": row.message_count,
        "created_at": row.created_at,
        "created_by": row.created_by,
        "updated_at": row.updated_at,
    }


def with_messages(row: SessionRow, messages: Sequence[MessageRow]) -> SessionText:
    return SessionText(**_members(row), messages=[message_of(one) for one in messages])


def message_of(row: MessageRow) -> Message:
    ending = ending_of(row)
    references = citations.split(row.text, row.references)
    return Message(
        message_id=row.id,
        question=row.question,
        status=None if ending is None else ending.status,
        text=row.text,
        references=references.cited,
        see_also=references.see_also,
        usage=None if ending is None else ending.usage,
        hint=None if ending is None else ending.hint,
        failure=None if ending is None else ending.failure,
        asked_at=row.asked_at,
        asked_by=row.asked_by,
        ended_at=row.ended_at,
    )


def ending_of(row: MessageRow) -> AnswerEnded | None:
    """Returns the end of the message's answer; None while it is being made."""
    return None if row.ending is None else _decode_ending(f"[{row.ending}]")[0]


def created(
    here: DecisionState, key: str, *, title: str, kbs: list[str] | None, agent: str | None
) -> SessionCreated:
    """Returns the event that makes a new session."""
    return SessionCreated(
        session=here.head.next_session, key=key, title=title, kbs=kbs, agent=agent
    )


def cut_off(session: int, message: int) -> AnswerEnded:
    """Returns the end of an interrupted answer."""
    return AnswerEnded(session=session, message=message, status="interrupted")


def row_of(event: SessionCreated, *, by: str, now: str) -> SessionRow:
    """Returns the session as it will be once `event` is committed."""
    return SessionRow(
        id=event.session,
        key=event.key,
        title=event.title,
        kbs=event.kbs,
        agent=event.agent,
        created_at=now,
        created_by=by,
        updated_at=now,
        deleted_at=None,
        purged=False,
        message_count=0,
    )


def title_of(question: str) -> str:
    """Returns the beginning of a question, as the title of its new session."""
    return one_line(question, _TITLE_CHARS, "…")


# ------------------------------------------------------------------------- finding


def require(queries: Queries, id: int, *, field: str = "$.params.session_id") -> SessionRow:
    """Returns the live session. Raises resource.not_found, different for a deleted session."""
    row = queries.session(id)
    if row is not None and row.deleted_at is None:
        return row
    if row is None:
        message, hint, detail = "There is no session {id}.", "See session.list.", {}
    elif row.purged:
        message, hint = "Session {id} was purged at {at}.", "It is gone for good."
        detail = {"purged_at": row.deleted_at}
    else:
        message, hint = "Session {id} was deleted at {at}.", "events.revert undoes its deletion."
        detail = {"deleted_at": row.deleted_at}
    at = None if row is None else row.deleted_at
    raise KbprocError(
        "resource.not_found", message.format(id=id, at=at), field=field, hint=hint, detail=detail
    )


def require_message(queries: Queries, session: SessionRow, id: int) -> MessageRow:
    """Returns the message. Raises resource.not_found for a withdrawn one, or another session's."""
    row = queries.message(id)
    if row is not None and row.session_id == session.id and row.withdrawn_at is None:
        return row
    raise KbprocError(
        "resource.not_found",
        f"There is no message {id} in session {session.id}.",
        field="$.params.message_id",
        hint="session.get shows the messages of a session.",
    )


def target_of(row: SessionRow) -> Target:
    """Returns the session as a plan's target; a new question makes an approved plan stale."""
    return Target(kind="session", id=row.id, name=row.title, revision=row.message_count)


def refuse_unended(queries: Queries, rows: Sequence[SessionRow], *, field: str) -> None:
    """Raises resource.conflict for a session in which an answer is being made."""
    ids = {row.id for row in rows}
    for session, message in queries.being_answered():
        if session in ids:
            raise KbprocError(
                "resource.conflict",
                f"In session {session} the answer to message {message} is being made.",
                field=field,
                hint="Wait until it has ended, or end it with session.stop.",
                detail={"session_id": session, "message_id": message},
                passing=True,
            )


def as_lines(message: dict[str, Any]) -> list[str]:
    """Returns a message for people: the question, the answer, and its sources."""
    references = citations.lines(message["references"], message["see_also"])
    text = message["text"] or f"({message['status']})"
    return [f"> {message['question']}", "", text, *references, ""]
