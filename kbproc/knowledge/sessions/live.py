"""One answer while it is being made.

Owns: what is said and not yet in the log, what of it is durable and may be read, and its one end.
Refuses to know: who makes it, who reads it, and when the log takes it in (scribe.py).
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Collection, Sequence
from typing import Any, Protocol

from msgspec import Struct

from kbproc.base.errors import KbprocError
from kbproc.events.event import Event
from kbproc.events.session import (
    AnswerEnded,
    AnswerReferred,
    AnswerSaid,
    AnswerWarned,
    Reference,
    Status,
)
from kbproc.models.answering.interface import Part
from kbproc.sessions.cursor import BEFORE_ALL, Place
from kbproc.sessions.pieces import pieces_of
from kbproc.views.catalog.rows import PieceRow


class Asked(Struct, frozen=True, kw_only=True):
    """Whose answer it is, and under which request the log keeps it."""

    session: int
    message: int
    actor: str
    method: str
    token: str | None
    params_hash: str | None


class Ink(Protocol):
    """What writes for an answer."""

    def offer(self, live: Live, *, urgent: bool) -> None: ...


class Live:
    """The answer to one question. Any thread may use it."""

    def __init__(self, asked: Asked, ink: Ink, earlier: Sequence[PieceRow] = ()) -> None:
        """`earlier`: what was said before it began anew."""
        self.asked = asked
        # As how much its maker may see; unlike any Sight where it was begun by somebody else.
        self.sight: object = self
        self.failed: KbprocError | None = None  # why the log does not take it in
        self.ending: AnswerEnded | None = None  # once that is durable
        self._ink = ink
        self._pieces = list(earlier)
        self._units: list[list[Event]] = []  # what becomes a record each
        self._documents: dict[int, int] = {}  # the document of each passage
        self._earlier: frozenset[int] = frozenset()
        self._is_open = False  # whether the last unit takes more
        self._ending = False
        self._ended = threading.Event()
        self._acts: list[Callable[[], object]] = []
        self._changing = threading.Lock()

    # ------------------------------------------------------------------- for whoever makes it

    @property
    def is_over(self) -> bool:
        return self._ending

    def refer(self, references: Sequence[Reference], *, earlier: Collection[int] = ()) -> None:
        """`earlier`: documents whose words it may repeat from the answers before it."""
        self._earlier = frozenset(earlier)
        self._documents = {one.n: one.document_id or 0 for one in references}
        event = AnswerReferred(**self._of_it, references=list(references))
        self._add([event], urgent=True)

    def say(self, parts: Sequence[Part]) -> None:
        """All of them are one record, with what is said until it is written."""
        with self._changing:
            if self._ending:
                return
            first = not any(isinstance(e, AnswerSaid) for unit in self._units for e in unit)
            if not self._is_open:
                self._units.append([])
                self._is_open = True
            for part in parts:
                self._gather(part)
        self._ink.offer(self, urgent=first and not self._has_said)

    def _gather(self, part: Part) -> None:
        if part.passages is None:  # it may repeat whatever it was made of
            documents = sorted(self._earlier.union(self._documents.values()) - {0})
        else:
            documents = sorted({self._documents[n] for n in part.passages if n in self._documents})
        unit = self._units[-1]
        last = unit[-1] if unit else None
        delta = part.text
        if isinstance(last, AnswerSaid) and last.documents == documents:
            unit.pop()
            delta = last.delta + delta
        unit.append(AnswerSaid(**self._of_it, delta=delta, documents=documents))

    @property
    def _has_said(self) -> bool:
        return any(piece.kind == "delta" for piece in self._pieces)

    def warn(self, text: str) -> None:
        self._add([AnswerWarned(**self._of_it, kind="degraded", text=text)], urgent=True)

    def when_over(self, act: Callable[[], object]) -> None:
        with self._changing:
            if not self._ending:
                self._acts.append(act)
                return
        act()

    def end(self, status: Status, **more: Any) -> bool:
        """The first end holds; False if there was one."""
        with self._changing:
            if self._ending:
                return False
            self._ending, self._is_open = True, False
            self._units.append([AnswerEnded(status=status, **self._of_it, **more)])
            acts, self._acts = self._acts, []
        self._ink.offer(self, urgent=True)
        for act in acts:
            with contextlib.suppress(OSError):
                act()
        return True

    @property
    def _of_it(self) -> dict[str, Any]:
        return {"session": self.asked.session, "message": self.asked.message}

    def _add(self, unit: list[Event], *, urgent: bool) -> None:
        with self._changing:
            if self._ending:
                return
            self._units.append(unit)
            self._is_open = False
        self._ink.offer(self, urgent=urgent)

    # -------------------------------------------------------------------------- for the scribe

    def take(self) -> list[list[Event]]:
        """What is to be written: a record for each."""
        with self._changing:
            units, self._units = self._units, []
            self._is_open = False
            return units

    def written(self, seq: int, unit: Sequence[Event]) -> None:
        """This record is durable, and readers see it."""
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
        """Its end is durable."""
        return self._ended.is_set()

    def wait(self) -> None:
        """Until its end is durable, or the log has refused it."""
        self._ended.wait()

    def after(self, place: Place, limit: int) -> list[PieceRow]:
        """The durable pieces after that place, some at once."""
        pieces = self._pieces
        if place == BEFORE_ALL:
            return pieces[:limit]
        at = len(pieces)
        while at and (pieces[at - 1].seq, pieces[at - 1].idx) > place:
            at -= 1
        return pieces[at : at + limit]

    @property
    def said(self) -> tuple[str, str | None]:
        """The whole text, and what it refers to, since it last began anew."""
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
    def last(self) -> Place:
        piece = self._pieces[-1] if self._pieces else None
        return BEFORE_ALL if piece is None else Place(piece.seq, piece.idx)
