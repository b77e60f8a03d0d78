"""Sends one answer to one reader: the pieces that exist, then the new ones, then the outcome.

Asking and resuming use the same reader, so that every client gets the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Struct

from kbproc.base.errors import KbprocError
from kbproc.engine.events.session import AnswerEnded, Reference, Status, Usage
from kbproc.engine.projections.catalog.rows import MessageRow, PieceRow
from kbproc.engine.store.state import SeenStore
from kbproc.knowledge.sessions import citations
from kbproc.knowledge.sessions import session as sessions
from kbproc.knowledge.sessions.live import Live
from kbproc.knowledge.sessions.making import Answers
from kbproc.knowledge.sessions.pieces import (
    BEFORE_ALL,
    CursorPlace,
    StreamEvent,
    conflict,
    cursor_of,
    event_of,
    place_of,
    snapshot,
)

_CUT_OFF = "The answer was interrupted: ask again, with the same client_token or as a new question."
PART = 200  # pieces that are sent at once, so that other readers get their turn

Emit = Callable[[str, dict[str, Any]], None]


class Answered(Struct, kw_only=True, frozen=True):
    """The outcome of an answer; `text` as far as it came.

    `references`: the passages that it cites; `see_also`: the others that were found.
    """

    session_id: int
    message_id: int
    status: Status
    text: str
    references: list[Reference]
    see_also: list[Reference]
    usage: Usage | None


class Reader:
    """A reader that sends some pieces with each call of `turn`. `more`: the last stopped short."""

    def __init__(
        self,
        store: SeenStore,
        answers: Answers,
        message: int,
        live: Live | None,
        *,
        emit: Emit,
        crowded: Callable[[], bool],
    ) -> None:
        self.message = message
        self.place = BEFORE_ALL
        self.more = False
        self._store = store
        self._answers = answers
        self._emit = emit
        self._crowded = crowded
        self._live = live  # this reference keeps the answer in the memory of `answers`

    @property
    def cursor(self) -> str | None:
        """The cursor of the last event that was sent."""
        return None if self.place == BEFORE_ALL else cursor_of(self.message, self.place)

    def go_to(self, after: str) -> None:
        """Continues after this cursor. Raises resource.conflict, input.invalid_params."""
        head = self._store.seq
        place = place_of(after, self.message, head=head)
        just_before = CursorPlace(place.seq, place.idx - 1)
        pieces = self._pieces(just_before, 1)[0]
        if place != BEFORE_ALL and [(one.seq, one.idx) for one in pieces] != [place]:
            raise conflict("after is ahead of what the log holds of this answer.", head)
        self.place = place

    def skip_to_now(self) -> None:
        """Sends all existing pieces as one event."""
        pieces: list[PieceRow] = []
        while more := self._pieces(self.place, PART)[0]:
            pieces += more
            self.place = CursorPlace(more[-1].seq, more[-1].idx)
        if pieces:
            self._send(snapshot(self.message, pieces))

    def turn(self) -> bool:
        """Sends the next pieces; returns True once the answer has ended and all was sent.

        Raises store.io.
        """
        self.more = False
        pieces, is_over = self._pieces(self.place, PART)
        for piece in pieces:
            if self._crowded():
                self.more = True
                return False
            self._send(event_of(self.message, piece))
            self.place = CursorPlace(piece.seq, piece.idx)
        self.more = len(pieces) == PART
        return is_over and not self.more

    def _pieces(self, after: CursorPlace, limit: int) -> tuple[list[PieceRow], bool]:
        """Returns the next pieces, and True if the answer gets no more pieces."""
        live = self._answers.live(self.message)
        if live is not None:
            self._live = live
            has_ended = live.has_ended
            if live.failed is not None:
                raise live.failed
            return self._visible(live, live.after(after, limit)), has_ended
        with self._store.reading() as snapshot:
            return snapshot.queries.pieces(self.message, after=after, limit=limit), True

    def _visible(self, live: Live, pieces: list[PieceRow]) -> list[PieceRow]:
        """Returns the pieces as this reader may see them; its sight may differ from the maker's."""
        if self._sees(live):
            return pieces
        with self._store.reading() as snapshot:
            return snapshot.queries.shown(self.message, pieces)

    def _sees(self, live: Live) -> bool:
        """Returns True if the reader may see the whole answer."""
        return self._store.sight is None or live.sight == self._store.sight

    def _send(self, event: StreamEvent) -> None:
        self._emit(event.type, event.fields)

    def outcome(self) -> tuple[Answered, str | None, int]:
        """Returns the data, a hint, and the position that it reflects. Raises the answer's failure.

        An answer of this process is read from memory, so that its end does not require an update
        of the catalog, which would delay writers.
        """
        live = self._answers.live(self.message)
        if live is not None and live.ending is not None and self._sees(live):
            text, references = live.text_and_references
            answer = _outcome_without_end(live.request.session, self.message, text, references)
            return (*_with_end(answer, live.ending), self._store.seq)
        with self._store.reading() as snapshot:
            row = snapshot.queries.message(self.message)
            seq = snapshot.seq
        if row is None:
            raise KbprocError("resource.not_found", "The session was purged in the meantime.")
        return (*answered(row), seq)


def answered(row: MessageRow) -> tuple[Answered, str | None]:
    """Returns the outcome and a hint. Raises the answer's failure.

    An answer without an end that no process makes was interrupted.
    """
    answer = _outcome_without_end(row.session_id, row.id, row.text, row.references)
    return _with_end(answer, sessions.ending_of(row))


def _outcome_without_end(session: int, message: int, text: str, references: str | None) -> Answered:
    """Returns the outcome of an answer that has no end."""
    split = citations.split(text, references)
    return Answered(
        session_id=session,
        message_id=message,
        status="interrupted",
        text=text,
        references=split.cited,
        see_also=split.see_also,
        usage=None,
    )


def _with_end(answer: Answered, ending: AnswerEnded | None) -> tuple[Answered, str | None]:
    """Returns the outcome with its end, and a hint. Raises the answer's failure."""
    if ending is None:
        return answer, _CUT_OFF
    answer = msgspec.structs.replace(answer, status=ending.status, usage=ending.usage)
    if ending.failure is not None:
        failure = ending.failure
        raise KbprocError(
            failure.type,
            failure.message,
            hint=failure.hint,
            lasting=failure.lasting,
            retry_after_ms=failure.retry_after_ms,
            detail={**failure.detail, **_ids(answer), "text": answer.text},
        )
    return answer, _CUT_OFF if ending.status == "interrupted" else ending.hint


def _ids(answer: Answered) -> dict[str, Any]:
    return {
        "session_id": answer.session_id,
        "message_id": answer.message_id,
        "status": answer.status,
    }
