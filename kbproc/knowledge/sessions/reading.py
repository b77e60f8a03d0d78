"""One reader of one answer: what is missing, then what comes, then the end.

Owns: where the reader is, and the outcome once all was sent. Asking and resuming read alike, so
that every reader gets the same bytes.
Refuses to know: who makes the answer, and over what it is sent.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Struct

from kbproc.base.errors import KbprocError
from kbproc.events.session import AnswerEnded, Reference, Status, Usage
from kbproc.sessions import citations
from kbproc.sessions import session as sessions
from kbproc.sessions.cursor import BEFORE_ALL, Place, conflict, cursor_of, place_of
from kbproc.sessions.live import Live
from kbproc.sessions.making import Answers
from kbproc.sessions.pieces import Sent, sent, snapshot
from kbproc.store.state import SeenStore
from kbproc.views.catalog.rows import MessageRow, PieceRow

_CUT_OFF = "It was cut off: ask again with the same client_token, or anew."
PART = 200  # pieces that are sent at once: others have their turn between

Emit = Callable[[str, dict[str, Any]], None]


class Answered(Struct, kw_only=True, frozen=True):
    """How the answer to a question came out; `text` as far as it came.

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
    """Sends a part at a time; whoever calls `turn` says when. `more`: the last stopped short."""

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
        self._known = live  # as long as this refers to it, it can be asked for

    @property
    def cursor(self) -> str | None:
        """Of the last event that was sent."""
        return None if self.place == BEFORE_ALL else cursor_of(self.message, self.place)

    def go_to(self, after: str) -> None:
        """Begins after this cursor. Raises resource.conflict, input.invalid_params."""
        head = self._store.seq
        place = place_of(after, self.message, head=head)
        just_before = Place(place.seq, place.idx - 1)
        found = self._pieces(just_before, 1)[0]
        if place != BEFORE_ALL and [(one.seq, one.idx) for one in found] != [place]:
            raise conflict("after is ahead of what the log holds of this answer.", head)
        self.place = place

    def skip_to_now(self) -> None:
        """Sends what there is as one event."""
        pieces: list[PieceRow] = []
        while more := self._pieces(self.place, PART)[0]:
            pieces += more
            self.place = Place(more[-1].seq, more[-1].idx)
        if pieces:
            self._send(snapshot(self.message, pieces))

    def turn(self) -> bool:
        """True once it has ended and all was sent. Raises store.io."""
        self.more = False
        pieces, is_over = self._pieces(self.place, PART)
        for piece in pieces:
            if self._crowded():
                self.more = True
                return False
            self._send(sent(self.message, piece))
            self.place = Place(piece.seq, piece.idx)
        self.more = len(pieces) == PART
        return is_over and not self.more

    def _pieces(self, after: Place, limit: int) -> tuple[list[PieceRow], bool]:
        """Some of what comes next, and whether nothing comes after the last piece there is."""
        live = self._answers.live(self.message)
        if live is not None:
            self._known = live
            has_ended = live.has_ended
            if live.failed is not None:
                raise live.failed
            return self._shown(live, live.after(after, limit)), has_ended
        with self._store.reading() as snapshot:
            return snapshot.queries.pieces(self.message, after=after, limit=limit), True

    def _shown(self, live: Live, pieces: list[PieceRow]) -> list[PieceRow]:
        """As this reader may see them, who may see other things than the maker."""
        if self._sees(live):
            return pieces
        with self._store.reading() as snapshot:
            return snapshot.queries.shown(self.message, pieces)

    def _sees(self, live: Live) -> bool:
        """Whether all of it may be seen."""
        return self._store.sight is None or live.sight == self._store.sight

    def _send(self, told: Sent) -> None:
        self._emit(told.type, told.fields)

    def outcome(self) -> tuple[Answered, str | None, int]:
        """The data, a hint, and the position that it reflects. Raises why the answer has failed.

        One that was made meanwhile tells it itself: the catalog need not be brought up to date for
        the end of every answer, which would hold up whoever writes.
        """
        live = self._answers.live(self.message)
        if live is not None and live.ending is not None and self._sees(live):
            text, references = live.said
            told = _of(live.asked.session, self.message, text, references)
            return (*_ended(told, live.ending), self._store.seq)
        with self._store.reading() as snapshot:
            row = snapshot.queries.message(self.message)
            seq = snapshot.seq
        if row is None:
            raise KbprocError("resource.not_found", "The session was purged meanwhile.")
        return (*answered(row), seq)


def answered(row: MessageRow) -> tuple[Answered, str | None]:
    """Raises why the answer has failed. One without an end, which nobody makes, was cut off."""
    told = _of(row.session_id, row.id, row.text, row.references)
    return _ended(told, sessions.ending_of(row))


def _of(session: int, message: int, text: str, references: str | None) -> Answered:
    """An answer that nobody has ended."""
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


def _ended(told: Answered, ending: AnswerEnded | None) -> tuple[Answered, str | None]:
    """As it ended, and a hint. Raises why it has failed."""
    if ending is None:
        return told, _CUT_OFF
    told = msgspec.structs.replace(told, status=ending.status, usage=ending.usage)
    if ending.failure is not None:
        failure = ending.failure
        raise KbprocError(
            failure.type,
            failure.message,
            hint=failure.hint,
            lasting=failure.lasting,
            retry_after_ms=failure.retry_after_ms,
            detail={**failure.detail, **_where(told), "text": told.text},
        )
    return told, _CUT_OFF if ending.status == "interrupted" else ending.hint


def _where(told: Answered) -> dict[str, Any]:
    return {"session_id": told.session_id, "message_id": told.message_id, "status": told.status}
