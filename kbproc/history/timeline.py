"""What a document was after each record that touched it, read back from the log.

Owns: a document's timeline, the state that each record left behind, the events that
make of one state another, and how far records can be taken off a timeline's end.
Refuses to know: what may be brought back (restore.py, revert.py), params and the wire.

The catalog knows what is, its table of events which records touched a document,
and the log what they said. Nothing after a timeline's position is ever read: beyond
it a writer may be in the middle of a line.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import lru_cache
from itertools import groupby
from typing import Literal, NamedTuple, Protocol

from msgspec import UNSET, Struct
from msgspec.structs import replace

from kbproc.base.values import Scalar
from kbproc.events import codec
from kbproc.events.document import ChunkDeleted, DocChanged, DocDeleted, DocWritten
from kbproc.events.event import Event
from kbproc.events.upkeep import DocPurged, Erased
from kbproc.log.interface import Log
from kbproc.views.catalog.rows import EventRow

# What these wrote was there before.
BRINGS_BACK = frozenset({"doc.restore", "events.revert"})
# One ingest's record concerns many documents, which are looked at one after another.
_KEPT_RECORDS = 16

Why = Literal["purged", "lost"]


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
        """The same chunks under the same ids, from the same source."""
        return self.hidden == other.hidden and _bare(self.written) == _bare(other.written)

    def looks_like(self, other: DocumentState) -> bool:
        """Equal in all that a read shows, but for revision and times."""
        return (
            self.deleted == other.deleted
            and (self.title, self.tags, self.metadata) == (other.title, other.tags, other.metadata)
            and self.has_text_of(other)
        )


class Unknown(Struct, frozen=True, kw_only=True):
    """What the log does not hold any more: it was purged, or lost to damage."""

    why: Why


# None: it did not exist yet.
State = DocumentState | Unknown | None


def _bare(event: DocWritten) -> DocWritten:
    return replace(
        event, revision=0, title="", tags=[], metadata={}, created_at=None, created_by=None
    )


def fold(state: State, event: Event) -> State:
    """The state after `event`, which concerns this document."""
    match event:
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
            return Unknown(why="lost")  # revisions count up by one: there was another between
        case DocChanged():
            return replace(
                state,
                title=event.title,
                tags=event.tags,
                metadata=event.metadata,
                revision=event.revision,
            )
        case ChunkDeleted():
            return replace(
                state, hidden=state.hidden | frozenset(event.ids), revision=event.revision
            )
    return state


def towards(now: State, wanted: DocumentState, revision: int) -> list[Event]:
    """What makes a document of `now` look like `wanted`, as its revision `revision`.

    Chunks come back under the ids that they had, so that citations hold again.
    """
    id = wanted.written.id
    if isinstance(now, DocumentState) and not now.deleted and now.has_text_of(wanted):
        changed = DocChanged(
            id=id,
            revision=revision,
            title=wanted.title,
            tags=wanted.tags,
            metadata=wanted.metadata,
        )
        return [] if now.looks_like(wanted) else [changed]
    again: list[Event] = [written_again(wanted, revision)]
    if wanted.hidden:
        hidden = sorted(wanted.hidden)
        again.append(ChunkDeleted(document_id=id, revision=revision, ids=hidden))
    return again


def written_again(state: DocumentState, revision: int) -> DocWritten:
    """All chunks of its last writing, those hidden since too."""
    return replace(
        state.written,
        revision=revision,
        title=state.title,
        tags=state.tags,
        metadata=state.metadata,
    )


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

    def state_after(self, index: int) -> State:
        """The state that the touch at `index` left behind; None for -1.

        A purge says of all before it that it is unknown: files may still be waiting
        to be rewritten.
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
        events = self._records.events(touch.seq)
        if events is None:
            return Unknown(why="lost")
        for event in events:
            if event.concerns().document == self.id:
                state = fold(state, event)
        return state

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


# ------------------------------------------------------------------------ unwinding


class Line(Protocol):
    """What happened to one thing, oldest first."""

    touches: list[Touch]

    def alike(self, one: int, other: int) -> bool: ...


class Unwound(NamedTuple):
    """`to`: the touch to go back to, -1 for before the first. `already`: a touch, and the
    one that has undone it; `blocked`: by the touch at `to`, which stays."""

    to: int
    undone: list[Touch]
    already: list[tuple[Touch, Touch]]
    blocked: list[Touch]


def unwind(line: Line, seqs: Collection[int]) -> Unwound:
    """Takes records off the end, as long as they are among `seqs`."""
    at = len(line.touches) - 1
    undone: list[Touch] = []
    already: list[tuple[Touch, Touch]] = []
    while at >= 0:
        touch = line.touches[at]
        if touch.seq in seqs:
            undone.append(touch)
            at -= 1
            continue
        same = _alike_before(line, at)
        if same is None:
            break
        between = line.touches[same + 1 : at]
        already += [(other, touch) for other in between if other.seq in seqs]
        at = same
    return Unwound(at, undone, already, [t for t in line.touches[: at + 1] if t.seq in seqs])


def _alike_before(line: Line, at: int) -> int | None:
    """The state that this touch has only brought back, if that is what it did."""
    if line.touches[at].method not in BRINGS_BACK:
        return None
    return next((i for i in range(at - 1, -2, -1) if line.alike(i, at)), None)
