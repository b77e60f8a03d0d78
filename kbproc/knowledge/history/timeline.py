"""Reads a document's timeline back from the log: the records that touched it, and its states.

The catalog's table of events says which records touched a document; the log holds these records.
No record after a timeline's position is read, because a writer may be in the middle of a line
there. A state is a fold of the document's events; two states give the events that turn one into
the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property, lru_cache
from itertools import groupby
from typing import Literal

from msgspec import UNSET, Struct
from msgspec.structs import replace

from kbproc.base.values import Scalar
from kbproc.engine.events import codec
from kbproc.engine.events.document import ChunkDeleted, DocChanged, DocDeleted, DocWritten
from kbproc.engine.events.entry import EntryReplaces, EntryRevived, EntrySuperseded
from kbproc.engine.events.event import Event
from kbproc.engine.events.upkeep import ContentForgotten, DocPurged, Erased
from kbproc.engine.log.interface import Log
from kbproc.engine.projections.catalog.rows import EventRow

# Methods that write an earlier state again.
BRINGS_BACK = frozenset({"doc.restore", "events.revert"})
# One ingest's record concerns many documents, which are examined one after another.
_KEPT_RECORDS = 16
Why = Literal["purged", "forgotten", "lost"]


class PastRecords:
    """Reads single records of the log, none after `to_seq`."""

    def __init__(self, log: Log, to_seq: int) -> None:
        self._log = log
        self._to_seq = to_seq
        self.events = lru_cache(_KEPT_RECORDS)(self._events)

    def _events(self, seq: int) -> Sequence[Event] | None:
        """Returns the record's events; None where the record was lost. Raises store.corrupt."""
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
    """Returns one touch for each record, in order."""
    touches = []
    for seq, group in groupby(rows, key=lambda row: row.seq):
        record_rows = list(group)
        touches.append(
            Touch(
                seq=seq,
                ts=record_rows[0].ts,
                actor=record_rows[0].actor,
                method=record_rows[0].method,
                types=frozenset(row.type for row in record_rows),
                revision=max((row.revision or 0 for row in record_rows), default=0) or None,
            )
        )
    return touches


class Timeline:
    """The touches of one document, oldest first; empty if the document never existed."""

    def __init__(self, records: PastRecords, id: int, rows: Sequence[EventRow]) -> None:
        """`rows`: all events of the document, in order."""
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
    def _first_retained(self) -> int:
        """The first revision whose content was not forgotten."""
        forgetting = (t for t in self.touches if ContentForgotten.tag() in t.types)
        events = (event for touch in forgetting for event in self._own(touch) or [])
        return max((one.kept for one in events if isinstance(one, ContentForgotten)), default=0)

    def state_after(self, index: int) -> State:
        """Returns the state after the touch at `index`; None for -1.

        Purged and forgotten states are unknown as soon as the purge is recorded, because the log
        may be rewritten only later.
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
        """Returns the events of the record at `index`; none if it was lost."""
        return self._records.events(self.touches[index].seq) or []

    def _fold_record(self, state: State, touch: Touch) -> State:
        events = self._own(touch)
        if events is None:
            return Unknown(why="lost")
        for event in events:
            if isinstance(event, DocWritten) and event.revision < self._first_retained:
                state = Unknown(why="forgotten")
            else:
                state = fold(state, event)
        return state

    def _own(self, touch: Touch) -> list[Event] | None:
        """Returns the record's events that concern this document; None if the record was lost."""
        events = self._records.events(touch.seq)
        if events is None:
            return None
        return [event for event in events if event.concerns().document == self.id]

    def index_of_revision(self, revision: int) -> int | None:
        """Returns the index of the touch that made this revision; None if there is none."""
        indices = [i for i, touch in enumerate(self.touches) if touch.revision == revision]
        return indices[-1] if indices else None

    def alike(self, one: int, other: int) -> bool:
        """Returns True if a read showed the same after both touches."""
        a, b = self.state_after(one), self.state_after(other)
        if isinstance(a, Unknown) or isinstance(b, Unknown):
            return False
        if a is None or a.deleted or b is None or b.deleted:
            return (a is None or a.deleted) and (b is None or b.deleted)
        return a.looks_like(b)


# ------------------------------------------------------------------ states


class DocumentState(Struct, frozen=True, kw_only=True):
    """A document after some record; `hidden` are the chunks that were deleted since `written`."""

    written: DocWritten
    title: str
    tags: list[str]
    metadata: dict[str, Scalar]
    revision: int
    hidden: frozenset[int] = frozenset()
    deleted: bool = False

    @property
    def chunk_count(self) -> int:
        return len(self.written.chunks) - len(self.hidden)

    def has_text_of(self, other: DocumentState) -> bool:
        """Returns True if both have the same chunks under the same ids, from the same source."""
        return self.hidden == other.hidden and _bare(self.written) == _bare(other.written)

    def looks_like(self, other: DocumentState) -> bool:
        """Returns True if a read shows the same for both, but for revision and times."""
        return (
            self.deleted == other.deleted
            and (self.title, self.tags, self.metadata) == (other.title, other.tags, other.metadata)
            and self.has_text_of(other)
        )

    def written_again(self, revision: int) -> DocWritten:
        """Returns the event that writes this state again, with all chunks of its last writing."""
        return replace(
            self.written,
            revision=revision,
            title=self.title,
            tags=self.tags,
            metadata=self.metadata,
        )


class Unknown(Struct, frozen=True, kw_only=True):
    """A state that the log does not hold any more: it was erased, or lost to damage."""

    why: Why


# None: it did not exist yet.
State = DocumentState | Unknown | None


def _bare(event: DocWritten) -> DocWritten:
    return replace(
        event, revision=0, title="", tags=[], metadata={}, created_at=None, created_by=None
    )


def fold(state: State, event: Event) -> State:
    """Returns the state after `event`, which concerns this document."""
    match event:
        case DocWritten() if event.forgotten is not None:
            return Unknown(why="forgotten")
        case DocWritten():
            return DocumentState(
                written=event,
                title=event.title,
                tags=event.tags,
                metadata=event.metadata,
                revision=event.revision,
            )
        case DocPurged() | Erased():
            return Unknown(why="purged")
    if not isinstance(state, DocumentState):
        return state or Unknown(why="lost")
    return _changed(state, event)


def _changed(state: DocumentState, event: Event) -> State:
    match event:
        case DocDeleted():
            return replace(state, deleted=True)
        case DocChanged() | ChunkDeleted() if event.revision > state.revision + 1:
            return Unknown(why="lost")  # revisions count up by one, so a record is missing
        case DocChanged():
            return replace(
                state,
                title=event.title,
                tags=event.tags,
                metadata=event.metadata,
                revision=event.revision,
                written=replace(state.written, origin=event.origin or state.written.origin),
            )
        case ChunkDeleted():
            return replace(
                state, hidden=state.hidden | frozenset(event.ids), revision=event.revision
            )
        case EntryReplaces() if state.written.entry is not None:
            facts = replace(state.written.entry, replaces=event.replaces)
            return replace(state, written=replace(state.written, entry=facts))
    return state


def events_towards(now: State, target: DocumentState, revision: int) -> list[Event]:
    """Returns the events that turn the state `now` into `target`, as revision `revision`.

    Chunks come back under the ids that they had, so that citations hold again.
    """
    id = target.written.id
    if isinstance(now, DocumentState) and not now.deleted and now.has_text_of(target):
        changed = DocChanged(
            id=id,
            revision=revision,
            title=target.title,
            tags=target.tags,
            metadata=target.metadata,
        )
        return [] if now.looks_like(target) else [changed]
    events: list[Event] = [target.written_again(revision)]
    if target.hidden:
        hidden = sorted(target.hidden)
        events.append(ChunkDeleted(document_id=id, revision=revision, ids=hidden))
    return events


def links_after(events: Iterable[Event]) -> dict[int, int | None]:
    """Returns entry → its successor after these events, for the entries that they concern."""
    links: dict[int, int | None] = {}
    for event in events:
        if isinstance(event, EntrySuperseded):
            links[event.id] = event.by
        elif isinstance(event, EntryRevived):
            links.update(dict.fromkeys(event.ids))
    return links
