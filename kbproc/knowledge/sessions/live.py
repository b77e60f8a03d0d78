"""Holds the answers while they are being made, and writes their events to the log together.

A live answer has the events that are not in the log yet, the durable pieces that may be read, and
the end.

The scribe gathers deltas for a short time. One commit then writes a record for each answer, with
one sync for all, so that a hundred answers delay other writes hardly more than one.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Collection, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from kbproc.base.errors import KbprocError
from kbproc.base.workers import Worker
from kbproc.engine.events.event import Event
from kbproc.engine.events.session import (
    AnswerEnded,
    AnswerReferred,
    AnswerSaid,
    AnswerWarned,
    Reference,
    Status,
)
from kbproc.engine.models.answering.interface import AnswerPart
from kbproc.engine.projections.catalog.rows import PieceRow
from kbproc.engine.store.lane import Lane
from kbproc.engine.store.store import Store
from kbproc.knowledge.sessions.pieces import BEFORE_ALL, CursorPlace, pieces_of

GATHER_SECONDS = 0.03  # the longest time that deltas wait before they are written
_JOIN_SECONDS = 10.0


class AnswerRequest(Struct, frozen=True, kw_only=True):
    """The question that is answered, and the request under which the log has its outcome."""

    session: int
    message: int
    actor: str
    method: str
    token: str | None
    params_hash: str | None


class Live:
    """The answer to one question. Any thread may use it."""

    def __init__(
        self, request: AnswerRequest, writer: Scribe, earlier: Sequence[PieceRow] = ()
    ) -> None:
        """`earlier`: the pieces from before the answer was restarted."""
        self.request = request
        # The sight of the request that began the answer; equal to no Sight for another process's.
        self.sight: object = self
        self.failed: KbprocError | None = None  # why the log refused it
        self.ending: AnswerEnded | None = None  # set once the end is durable
        self._writer = writer
        self._pieces = list(earlier)
        self._units: list[list[Event]] = []  # each becomes a record
        self._documents: dict[int, int] = {}  # the document of each passage
        self._earlier: frozenset[int] = frozenset()
        self._is_open = False  # True while events may be added to the last unit
        self._ending = False
        self._ended = threading.Event()
        self._acts: list[Callable[[], object]] = []
        self._changing = threading.Lock()

    # -------------------------------------------------------------------------- for the maker

    @property
    def is_over(self) -> bool:
        return self._ending

    def refer(self, references: Sequence[Reference], *, earlier: Collection[int] = ()) -> None:
        """Adds the references. `earlier`: documents that earlier answers quote, so it may, too."""
        self._earlier = frozenset(earlier)
        self._documents = {one.n: one.document_id or 0 for one in references}
        event = AnswerReferred(**self._ids, references=list(references))
        self._add([event], urgent=True)

    def say(self, parts: Sequence[AnswerPart]) -> None:
        """Adds text; all text that arrives before the next write becomes one record."""
        with self._changing:
            if self._ending:
                return
            first = not any(isinstance(e, AnswerSaid) for unit in self._units for e in unit)
            if not self._is_open:
                self._units.append([])
                self._is_open = True
            for part in parts:
                self._gather(part)
        self._writer.offer(self, urgent=first and not self._has_said)

    def _gather(self, part: AnswerPart) -> None:
        if part.passages is None:  # the text may quote any of the documents
            documents = sorted(self._earlier.union(self._documents.values()) - {0})
        else:
            documents = sorted({self._documents[n] for n in part.passages if n in self._documents})
        unit = self._units[-1]
        last = unit[-1] if unit else None
        delta = part.text
        if isinstance(last, AnswerSaid) and last.documents == documents:
            unit.pop()
            delta = last.delta + delta
        unit.append(AnswerSaid(**self._ids, delta=delta, documents=documents))

    @property
    def _has_said(self) -> bool:
        return any(piece.kind == "delta" for piece in self._pieces)

    def warn(self, text: str) -> None:
        self._add([AnswerWarned(**self._ids, kind="degraded", text=text)], urgent=True)

    def when_over(self, act: Callable[[], object]) -> None:
        with self._changing:
            if not self._ending:
                self._acts.append(act)
                return
        act()

    def end(self, status: Status, **more: Any) -> bool:
        """Ends the answer; returns False if it had an end, which stays."""
        with self._changing:
            if self._ending:
                return False
            self._ending, self._is_open = True, False
            self._units.append([AnswerEnded(status=status, **self._ids, **more)])
            acts, self._acts = self._acts, []
        self._writer.offer(self, urgent=True)
        for act in acts:
            with contextlib.suppress(OSError):
                act()
        return True

    @property
    def _ids(self) -> dict[str, Any]:
        return {"session": self.request.session, "message": self.request.message}

    def _add(self, unit: list[Event], *, urgent: bool) -> None:
        with self._changing:
            if self._ending:
                return
            self._units.append(unit)
            self._is_open = False
        self._writer.offer(self, urgent=urgent)

    # -------------------------------------------------------------------------- for the scribe

    def take(self) -> list[list[Event]]:
        """Returns the units to write, one per record."""
        with self._changing:
            units, self._units = self._units, []
            self._is_open = False
            return units

    def written(self, seq: int, unit: Sequence[Event]) -> None:
        """Adds the pieces of a record that is durable and visible to readers."""
        with self._changing:
            self._pieces += pieces_of(seq, unit)
        for event in unit:
            if isinstance(event, AnswerEnded):
                self.ending = event
                self._ended.set()

    def fail(self, error: KbprocError) -> None:
        with self._changing:
            self._ending, self.failed = True, error
        self._ended.set()

    # --------------------------------------------------------------------------- for readers

    @property
    def has_ended(self) -> bool:
        """True once its end is durable, or the log has refused it."""
        return self._ended.is_set()

    def wait(self) -> None:
        """Waits until its end is durable, or the log has refused it."""
        self._ended.wait()

    def after(self, place: CursorPlace, limit: int) -> list[PieceRow]:
        """Returns at most `limit` durable pieces after that place."""
        pieces = self._pieces
        if place == BEFORE_ALL:
            return pieces[:limit]
        at = len(pieces)
        while at and (pieces[at - 1].seq, pieces[at - 1].idx) > place:
            at -= 1
        return pieces[at : at + limit]

    @property
    def text_and_references(self) -> tuple[str, str | None]:
        """The durable text and references since the answer was last restarted."""
        text, references = "", None
        for piece in self._pieces:
            if piece.kind == "restarted":
                text, references = "", None
            elif piece.kind == "delta":
                text += str(piece.said)
            elif piece.kind == "references":
                references = piece.said
        return text, references

    @property
    def last(self) -> CursorPlace:
        piece = self._pieces[-1] if self._pieces else None
        return BEFORE_ALL if piece is None else CursorPlace(piece.seq, piece.idx)


# ------------------------------------------------------------------------- writing


class Scribe:
    """A worker that writes answers, from the first event to `close`."""

    def __init__(self, store: Store, done: Callable[[Live], None]) -> None:
        """`done` gets each answer whose end is in the log, or that the log has refused."""
        self._store = store
        self._done = done
        self._offered: dict[Live, None] = {}
        self._is_urgent = False
        self._offering = threading.Lock()
        self._worker = Worker("scribe", self._step, first_s=None)

    def offer(self, live: Live, *, urgent: bool) -> None:
        """Queues an answer that has events to write. `urgent`: at once."""
        with self._offering:
            is_news = not self._offered or (urgent and not self._is_urgent)
            self._offered[live] = None
            self._is_urgent = self._is_urgent or urgent
        self._worker.start()
        if is_news:  # so that the words of a hundred answers don't wake the thread all the time
            self._worker.wake()

    def close(self) -> None:
        """Writes all queued answers, and ends the thread."""
        self._worker.close(_JOIN_SECONDS)
        if not self._worker.is_running:
            self._write_offered()

    def _step(self, is_woken: bool) -> float | None:
        """Writes at once where an answer is urgent, else GATHER_SECONDS after the first offer."""
        if is_woken and not self._is_urgent:
            return GATHER_SECONDS
        self._write_offered()
        return None

    def _write_offered(self) -> None:
        with self._offering:
            lives, self._offered, self._is_urgent = list(self._offered), {}, False
        if lives:
            self._write(lives)

    def _write(self, lives: list[Live]) -> None:
        units = [(live, unit) for live in lives for unit in live.take()]
        try:
            seqs = self._store.commit(lambda lane: [_append(lane, *unit) for unit in units])
        except KbprocError as error:
            for live in lives:
                live.fail(error)
                self._done(live)
        else:
            for (live, unit), seq in zip(units, seqs, strict=True):
                live.written(seq, unit)
            for live in lives:
                if live.has_ended:
                    self._done(live)
        self._store.changed()


def _append(lane: Lane, live: Live, unit: list[Event]) -> int:
    """Appends a unit; the last record of an answer has the outcome, with the answer's ids."""
    request, is_end = live.request, isinstance(unit[-1], AnswerEnded)
    outcome = {"data": {"session_id": request.session, "message_id": request.message}}
    has_outcome = request.token is not None and is_end and unit[-1].status != "interrupted"  # type: ignore[attr-defined]
    return lane.append(
        unit,
        actor=request.actor,
        method=request.method,
        token=request.token if has_outcome else None,
        params_hash=request.params_hash if has_outcome else None,
        result=msgspec.json.encode(outcome) if has_outcome else b"null",
    )
