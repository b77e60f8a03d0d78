"""Undoing what happened to conversations.

Owns: which sessions and questions are hidden or come back, and what keeps one as it is.
Refuses to know: what was asked and answered.

An answer goes, and comes back, with its question. A session whose beginning is undone goes once no
other question is left in it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from kbproc.base.wording import plural
from kbproc.events import session as says
from kbproc.events.event import Event
from kbproc.history.revert.undoing import Undoing, by
from kbproc.history.revert.unwind import Unwound, unwind
from kbproc.history.timeline import Touch, touches_of
from kbproc.store.decision import Target
from kbproc.views.catalog.queries.all import Queries
from kbproc.views.catalog.rows import EventRow, SessionRow

_ALL = 1_000_000_000
_BEGINS = frozenset({says.SessionCreated.tag(), says.QuestionAsked.tag()})
_HIDES = frozenset({says.SessionDeleted.tag(), says.QuestionWithdrawn.tag()})
_BRINGS = frozenset({says.SessionRestored.tag(), says.QuestionRestored.tag()})
KNOWN = _BEGINS | _HIDES | _BRINGS


class _Line:
    """Whether a session or question was to be seen after each record, oldest first.

    What began it is among the records only where that is to be undone.
    """

    def __init__(self, rows: Sequence[EventRow]) -> None:
        self.touches = touches_of(sorted(rows, key=lambda row: (row.seq, row.idx)))
        self.begins = not self.touches[0].types.isdisjoint(_BEGINS)

    def there_after(self, index: int) -> bool:
        return not self.begins if index < 0 else self.touches[index].types.isdisjoint(_HIDES)

    def alike(self, one: int, other: int) -> bool:
        return self.there_after(one) == self.there_after(other)


class Sessions:
    """First questions, then sessions, since one that is left without a question may go."""

    def __init__(self, queries: Queries, undoing: Undoing, seqs: Collection[int]) -> None:
        self._queries = queries
        self._undoing = undoing
        self._seqs = seqs
        self._left: dict[int, int] = {}  # session → how many questions more it has by now
        self._withdrawn: list[int] = []

    def undo(self, rows: Sequence[EventRow]) -> Collection[int]:
        """`rows`: of the records to be undone. Returns the questions that go with their answers."""
        named = [row for row in rows if row.type in KNOWN]
        if not named:
            return ()
        seqs = self._queries.matching_records(0, _ALL, sorted(_HIDES | _BRINGS), None, None)
        rare = self._queries.events_of_records(seqs)
        every = [row for row in named if row.type in _BEGINS]
        every += [row for row in rare if row.type in _HIDES | _BRINGS]
        for id in sorted({row.message_id for row in named if row.message_id}):
            line = _Line([row for row in every if row.message_id == id])
            answer = [row for row in rows if row.message_id == id and row.type not in KNOWN]
            self._question(id, line, touches_of(answer))
        for id in sorted({row.session_id or 0 for row in named if not row.message_id}):
            own = [row for row in every if row.session_id == id and not row.message_id]
            self._session(id, _Line(own))
        return self._withdrawn

    def _question(self, id: int, line: _Line, answer: list[Touch]) -> None:
        row = self._queries.message(id)
        session = self._queries.session(row.session_id) if row else None
        if row is None or session is None:
            self._keep(line.touches, f"question {id} was purged")
        elif row.status is None:
            self._keep(line.touches, f"question {id} is being answered: session.stop ends that")
        elif unwound := self._unwound(line, f"question {id}"):
            back = line.there_after(unwound.to)
            self._left[session.id] = self._left.get(session.id, 0) + (1 if back else -1)
            made = says.QuestionRestored if back else says.QuestionWithdrawn
            told = f"bring question {id} back" if back else f"hide question {id} and its answer"
            if not back:
                self._withdrawn.append(id)
            undone = unwound.undone if back else [*unwound.undone, *answer]
            self._does(session, undone, made(session=session.id, message=id), told)

    def _session(self, id: int, line: _Line) -> None:
        row = self._queries.session(id)
        if row is None or row.purged:
            self._keep(line.touches, f"session {id} was purged")
        elif unwound := self._unwound(line, f"session {id}"):
            back = line.there_after(unwound.to)
            left = row.message_count + self._left.get(id, 0)
            if left and unwound.to < 0 and not back:
                self._keep(unwound.undone, f"session {id} still holds {plural(left, 'question')}")
                return
            made = says.SessionRestored if back else says.SessionDeleted
            told = "bring {} back" if back else "hide {}"
            named = f"session {id} “{row.title}”"
            self._does(row, unwound.undone, made(session=id), told.replace("{}", named))

    def _unwound(self, line: _Line, what: str) -> Unwound | None:
        """None if nothing of it is to change; what is kept is told."""
        unwound = unwind(line, self._seqs)
        for touch, other in unwound.already:
            self._keep([touch], f"{what} is as it was before: undone {by(other)}")
        if unwound.blocked:
            last = line.touches[unwound.to]
            did = "brought back" if line.there_after(unwound.to) else "hidden"
            self._keep(unwound.blocked, f"{what} was {did} {by(last)}")
        if unwound.undone and line.alike(unwound.to, len(line.touches) - 1):
            self._keep(unwound.undone, f"{what} is as it was before")
            return None
        return unwound if unwound.undone else None

    def _keep(self, touches: Sequence[Touch], why: str) -> None:
        self._undoing.keep_of_session([touch for touch in touches if touch.seq in self._seqs], why)

    def _does(self, session: SessionRow, undone: Sequence[Touch], event: Event, what: str) -> None:
        targets = []
        if session.id not in self._undoing.sessions:
            named, asked = session.title, session.message_count
            targets.append(Target(kind="session", id=session.id, name=named, revision=asked))
        self._undoing.sessions[session.id] = None
        self._undoing.does(undone, [event], what, targets)
