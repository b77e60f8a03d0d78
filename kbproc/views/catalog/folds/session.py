"""The fold of what happens in conversations.

Owns: the rows of sessions and questions, and the pieces of answers in the order of the log.
Refuses to know: how pieces are sent, and what a model was asked.
"""

from __future__ import annotations

from typing import get_args

import msgspec

from kbproc.events import session as says
from kbproc.events.upkeep import Erased
from kbproc.log.record import Record
from kbproc.views.catalog.batch import Batch, Row, Tables

KINDS = get_args(says.OfSession)
_BEGUN = "update messages set status = null, ending = null, ended_at = null, attempt_seq = ? "
_ITS_PIECES = "message_id in (select id from messages where session_id = ?)"
_PURGE = {"pieces": _ITS_PIECES, "messages": "session_id = ?", "sessions": "id = ?"}


class Conversations:
    """Sessions and questions that are new, and how answers ended. Many at once: one at a time,
    a hundred asks hold up whoever writes beside them.
    """

    def __init__(self) -> None:
        self.sessions: list[Row] = []
        self.messages: list[Row] = []
        self.updated: dict[int, str] = {}  # session → when
        self.ended: dict[int, Row] = {}  # message → itself, how and when

    def __len__(self) -> int:
        return len(self.sessions) + len(self.messages) + len(self.ended)

    def flush(self, db: Tables) -> None:
        db.insert("sessions", self.sessions)
        db.insert("messages", self.messages)
        db.update("sessions", ("updated_at",), self.updated.items())
        db.update("messages", ("status", "ending", "ended_at"), self.ended.values())
        for waiting in (self.sessions, self.messages, self.updated, self.ended):
            waiting.clear()


def said(batch: Batch, record: Record, event: says.OfSession) -> None:
    if isinstance(event, says.OfMessage) and event.piece is not None:
        piece = (event.message, record.seq, batch.index, *event.piece, event.repeats)
        batch.add("pieces", piece)
    match event:
        case says.AnswerRestarted():
            sql = f"{_BEGUN} where id = ?"
            batch.settled().execute(sql, [record.seq, event.message])
        case says.AnswerEnded():
            told = msgspec.json.encode(event).decode()
            how = (event.message, event.status, told, event.ended_at or record.ts)
            batch.gather(Conversations, after=()).ended[event.message] = how
        case says.QuestionAsked():
            _asked(batch, record, event)
        case says.QuestionWithdrawn() | says.QuestionRestored():
            at = record.ts if isinstance(event, says.QuestionWithdrawn) else None
            _set(batch, "messages", event.message, "withdrawn_at", at)
        case says.SessionCreated():
            by = (event.created_at or record.ts, event.created_by or record.actor, record.ts)
            row = (event.session, event.key, event.title, event.kbs, event.agent, *by)
            batch.gather(Conversations, after=()).sessions.append((*row, None, False))
        case says.SessionDeleted() | says.SessionRestored():
            at = record.ts if isinstance(event, says.SessionDeleted) else None
            _set(batch, "sessions", event.session, "deleted_at", at)
        case says.SessionPurged():
            _purged(batch, record, event.session)


def _asked(batch: Batch, record: Record, event: says.QuestionAsked) -> None:
    at, by = event.asked_at or record.ts, event.asked_by or record.actor
    row = (event.message, event.session, event.question, event.references, event.answerer)
    seqs = (event.model, event.profile, at, by, record.seq, record.seq)
    waiting = batch.gather(Conversations, after=())
    waiting.messages.append((*row, *seqs, *[None] * 4))
    waiting.updated[event.session] = record.ts


def _purged(batch: Batch, record: Record, session: int) -> None:
    """The same row is left whether the session was still in the log or not."""
    db = batch.settled()
    for table, which in _PURGE.items():
        db.execute(f"delete from {table} where {which}", [session])  # noqa: S608
    left = (session, "", "", None, None, record.ts, "", record.ts, record.ts, True)
    db.insert("sessions", [left])


def _set(batch: Batch, table: str, id: int, column: str, value: str | None) -> None:
    batch.settled().execute(f"update {table} set {column} = ? where id = ?", [value, id])  # noqa: S608


def piece_erased(batch: Batch, record: Record, event: Erased) -> None:
    """Of an answer that has other pieces left, one was erased."""
    if event.message_id is not None:
        batch.add("pieces", (event.message_id, record.seq, batch.index, "replaced", event.was, []))
