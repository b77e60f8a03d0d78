"""What happened to a document, and what each record left of it, read back from the log.

Owns: a document's timeline, and reading single records of the past.
Refuses to know: what may be brought back, params and the wire.

The catalog knows what is, its table of events which records touched a document,
and the log what they said. Nothing after a timeline's position is ever read: beyond
it a writer may be in the middle of a line.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, lru_cache
from itertools import groupby

from msgspec import UNSET, Struct

from kbproc.events import codec
from kbproc.events.document import DocWritten
from kbproc.events.event import Event
from kbproc.events.upkeep import ContentForgotten
from kbproc.history.state import State, Unknown, fold
from kbproc.log.interface import Log
from kbproc.views.catalog.rows import EventRow

# What these wrote was there before.
BRINGS_BACK = frozenset({"doc.restore", "events.revert"})
# One ingest's record concerns many documents, which are looked at one after another.
_KEPT_RECORDS = 16


class PastRecords:
    """Single records of the log, none after `to_seq`."""

    def __init__(self, log: Log, to_seq: int) -> None:
        self._log = log
        self._to_seq = to_seq
        self.events = lru_cache(_KEPT_RECORDS)(self._events)

    def _events(self, seq: int) -> Sequence[Event] | None:
        """None where the record was lost. Raises store.corrupt."""
        record = next(self._log.read(seq - 1, min(seq, self._to_seq)), None)
        if record is None or record.lost is not UNSET:
            return None
        return codec.decode(record.events)


class Touch(Struct, frozen=True, kw_only=True):
    """One record, as far as it concerns one document or knowledge base."""

    seq: int
    ts: str
    actor: str
    method: str
    types: frozenset[str]
    revision: int | None = None


def touches_of(rows: Sequence[EventRow]) -> list[Touch]:
    """One for each record, in order."""
    found = []
    for seq, group in groupby(rows, key=lambda row: row.seq):
        same = list(group)
        found.append(
            Touch(
                seq=seq,
                ts=same[0].ts,
                actor=same[0].actor,
                method=same[0].method,
                types=frozenset(row.type for row in same),
                revision=max((row.revision or 0 for row in same), default=0) or None,
            )
        )
    return found


class Timeline:
    """What happened to one document, oldest first; empty if there never was one."""

    def __init__(self, records: PastRecords, id: int, rows: Sequence[EventRow]) -> None:
        """`rows`: all that concern it, in order."""
        self.id = id
        self.touches = touches_of(rows)
        self._records = records
        self._states: dict[int, State] = {-1: None}

    @property
    def purge(self) -> Touch | None:
        """The record that erased it for good."""
        return next((t for t in reversed(self.touches) if "doc.purged" in t.types), None)

    @property
    def now(self) -> State:
        return self.state_after(len(self.touches) - 1)

    @cached_property
    def _kept(self) -> int:
        """The first revision whose content was not forgotten."""
        forgetting = (t for t in self.touches if ContentForgotten.tag() in t.types)
        told = (event for touch in forgetting for event in self._own(touch) or [])
        return max((one.kept for one in told if isinstance(one, ContentForgotten)), default=0)

    def state_after(self, index: int) -> State:
        """The state that the touch at `index` left behind; None for -1.

        What was purged or forgotten is unknown from the moment at which that was recorded: the
        log may still be waiting to be rewritten.
        """
        if self.purge is not None and index >= 0:
            return Unknown(why="purged")
        start = index
        while start not in self._states and "doc.written" not in self.touches[start].types:
            start -= 1
        for i in range(start, index + 1):
            if i not in self._states:
                self._states[i] = self._fold_record(self._states.get(i - 1), self.touches[i])
        return self._states[index]

    def events(self, index: int) -> Sequence[Event]:
        """Of the record at `index`; none if it was lost."""
        return self._records.events(self.touches[index].seq) or []

    def _fold_record(self, state: State, touch: Touch) -> State:
        events = self._own(touch)
        if events is None:
            return Unknown(why="lost")
        for event in events:
            if isinstance(event, DocWritten) and event.revision < self._kept:
                state = Unknown(why="forgotten")
            else:
                state = fold(state, event)
        return state

    def _own(self, touch: Touch) -> list[Event] | None:
        """The events of a record that concern this document; None if it was lost."""
        events = self._records.events(touch.seq)
        if events is None:
            return None
        return [event for event in events if event.concerns().document == self.id]

    def index_of_revision(self, revision: int) -> int | None:
        """Of the touch that made it."""
        found = [i for i, touch in enumerate(self.touches) if touch.revision == revision]
        return found[-1] if found else None

    def alike(self, one: int, other: int) -> bool:
        """Whether the same was to be seen after both touches."""
        a, b = self.state_after(one), self.state_after(other)
        if isinstance(a, Unknown) or isinstance(b, Unknown):
            return False
        if a is None or a.deleted or b is None or b.deleted:
            return (a is None or a.deleted) and (b is None or b.deleted)
        return a.looks_like(b)
