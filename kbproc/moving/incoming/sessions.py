"""Conversations that come in with an import.

Owns: which sessions are new here, and the events that make them.
Refuses to know: documents, and how an answer is made.

A session's key tells it from every other in any store: one that is here stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import BinaryIO

import msgspec

from kbproc.base.wording import plural
from kbproc.events.event import Event
from kbproc.events.session import (
    AnswerEnded,
    AnswerReferred,
    AnswerSaid,
    Failure,
    QuestionAsked,
    Reference,
    SessionCreated,
)
from kbproc.moving.incoming.contents import Imported
from kbproc.moving.incoming.matching import Match
from kbproc.moving.portable import file as reading
from kbproc.moving.portable import lines
from kbproc.store.decision import Decision, Here
from kbproc.store.pipeline import LongWrite
from kbproc.views.catalog.queries.all import Queries

_BATCH_MESSAGES = 200
# Of endpoints and models, which tell nothing of a store.
_FAILURES = frozenset({"llm.unavailable", "model.unavailable", "operation.timeout"})


class Sessions:
    """The conversations of a file, as the ids of the documents that they cite become known here."""

    def __init__(self, cited: frozenset[int]) -> None:
        self._cited = cited
        self._ids: dict[int, int] = {}

    def note(self, old: int, outcome: Match) -> None:
        if old in self._cited and outcome.id is not None:
            self._ids[old] = outcome.id

    def write(
        self, file: BinaryIO, result: Imported, write: LongWrite, check: Callable[[], None]
    ) -> None:
        """Some at a time."""
        for batch in _batches(file):
            check()
            added = write.item(lambda here, batch=batch: self._decide(here, batch))  # type: ignore[misc]
            result.sessions_added += added
            result.sessions_unchanged += len(batch) - added

    def _decide(self, here: Here, batch: list[lines.Session]) -> Decision:
        new = _not_here(here.queries, batch)
        session, message = here.head.next_session, here.head.next_message
        events: list[Event] = []
        for line in new:
            events += self._events(line, session, message)
            session, message = session + 1, message + len(line.messages)
        return Decision(events=events, data=len(new))

    def _events(self, line: lines.Session, session: int, message: int) -> Iterator[Event]:
        yield SessionCreated(
            session=session,
            key=line.key,
            title=line.title,
            kbs=line.kbs,
            agent=line.agent,
            created_at=line.created_at,
            created_by=line.created_by,
        )
        for id, told in enumerate(line.messages, message):
            yield from self._answered(told, session, id)

    def _answered(self, told: lines.Message, session: int, message: int) -> Iterator[Event]:
        yield QuestionAsked(
            session=session,
            message=message,
            question=told.question,
            answerer=told.answerer,
            model=told.model,
            references=told.detail,
            asked_at=told.asked_at,
            asked_by=told.asked_by,
        )
        references = [self._reference(one) for one in told.references]
        yield AnswerReferred(session=session, message=message, references=references)
        if told.text:
            yield AnswerSaid(session=session, message=message, delta=told.text)
        yield AnswerEnded(
            session=session,
            message=message,
            status=told.status,
            usage=told.usage,
            hint=told.hint,
            failure=None if told.failure is None else _of_elsewhere(told.failure),
            ended_at=told.ended_at,
        )

    def _reference(self, told: Reference) -> Reference:
        """A purge of the document here finds what answers may have repeated of it."""
        id = None if told.document_id is None else self._ids.get(told.document_id)
        return msgspec.structs.replace(told, chunk_id=None, document_id=id)


def _of_elsewhere(told: Failure) -> Failure:
    """Nothing is wrong with this store, whatever was wrong with the other."""
    return Failure(
        type=told.type if told.type in _FAILURES else "operation.failed",
        message=f"In the store that it comes from: {told.message}",
        hint="Ask again: session.ask.",
        lasting=told.lasting,
    )


def planned(queries: Queries, file: BinaryIO) -> list[str]:
    """What would come in, as a line of a plan."""
    new = [line for batch in _batches(file) for line in _not_here(queries, batch)]
    asked = sum(len(line.messages) for line in new)
    return [f"add {plural(len(new), 'session')} with {plural(asked, 'question')}"] if new else []


def _not_here(queries: Queries, batch: list[lines.Session]) -> list[lines.Session]:
    known = {row.key for row in queries.sessions()}
    return [line for line in batch if line.key not in known]


def _batches(file: BinaryIO) -> Iterator[list[lines.Session]]:
    batch: list[lines.Session] = []
    count = 0
    for _, line, _ in reading.read(file):
        if isinstance(line, lines.Session):
            if batch and count + len(line.messages) > _BATCH_MESSAGES:
                yield batch
                batch, count = [], 0
            batch.append(line)
            count += len(line.messages) + 1
    if batch:
        yield batch
