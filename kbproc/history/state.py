"""What a document was after some record.

Owns: a document's state, the fold of events into it, and the events that make of one
state another.
Refuses to know: where the events come from, and what may be brought back.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from kbproc.base.values import Scalar
from kbproc.events.document import ChunkDeleted, DocChanged, DocDeleted, DocWritten
from kbproc.events.event import Event
from kbproc.events.upkeep import DocPurged, Erased

Why = Literal["purged", "forgotten", "lost"]


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
    """What the log does not hold any more: it was erased, or lost to damage."""

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
