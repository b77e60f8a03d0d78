"""Describes the history of one document: each record's action and its changes, in words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from kbproc.base.wording import plural
from kbproc.engine.events.entry import LINK_TAGS, REVIEW_TAG, EntryReviewed
from kbproc.knowledge.history.timeline import (
    BRINGS_BACK,
    DocumentState,
    State,
    Timeline,
    Touch,
    Unknown,
    links_after,
)

Action = Literal[
    "created",
    "replaced",
    "changed",
    "chunks_deleted",
    "deleted",
    "restored",
    "purged",
    "erased",
    "lost",
    "superseded",
    "revived",
    "forgotten",
    "reviewed",
]


class DocumentRevision(Struct, kw_only=True, frozen=True):
    """One record that touched a document or a note, and its state afterwards.

    Only actor, time and method remain where a purge has erased the state, store.compact has
    forgotten it or damage has lost it.
    """

    seq: int
    ts: str
    actor: str
    method: str
    action: Action
    summary: str
    revision: int | None = None
    title: str | None = None
    chunk_count: int | None = None
    size_bytes: int | None = None
    sha256: str | None = None


def revisions(timeline: Timeline, *, before: int, most: int) -> list[DocumentRevision]:
    """Returns the revisions newest first, those before a position of the log; 0 is its end."""
    indices = range(len(timeline.touches))
    earlier = [at for at in indices if not before or timeline.touches[at].seq < before]
    return [_revision_at(timeline, at) for at in earlier[::-1][:most]]


def _revision_at(timeline: Timeline, index: int) -> DocumentRevision:
    touch, after = timeline.touches[index], timeline.state_after(index)
    before = timeline.state_after(index - 1)
    action = _action(touch, before, after)
    summary = _summary(action, before, after)
    if action in {"superseded", "revived"}:
        summary = _link_summary(timeline, index)
    elif action == "reviewed":
        summary = _review_summary(timeline, index)
    bare = DocumentRevision(
        seq=touch.seq,
        ts=touch.ts,
        actor=touch.actor,
        method=touch.method,
        action=action,
        summary=summary,
    )
    if not isinstance(after, DocumentState):
        return bare
    return replace(
        bare,
        revision=after.revision,
        title=after.title,
        chunk_count=0 if after.deleted else after.chunk_count,
        size_bytes=after.written.size_bytes,
        sha256=after.written.source_sha256,
    )


def _action(touch: Touch, before: State, after: State) -> Action:
    if isinstance(after, Unknown) and after.why == "purged":
        return "purged" if "doc.purged" in touch.types else "erased"
    if touch.types == {"content.forgotten"}:
        return "forgotten"
    if "doc.deleted" in touch.types:
        return "deleted"
    if isinstance(after, Unknown) and after.why == "lost":
        return "lost"
    if touch.types == {REVIEW_TAG}:
        return "reviewed"
    if not touch.types - LINK_TAGS:
        return "superseded" if "entry.superseded" in touch.types else "revived"
    if touch.method in BRINGS_BACK or (isinstance(before, DocumentState) and before.deleted):
        return "restored"
    if "doc.written" in touch.types:
        return "created" if before is None else "replaced"
    return "changed" if "doc.changed" in touch.types else "chunks_deleted"


def _link_summary(timeline: Timeline, index: int) -> str:
    by = links_after(timeline.events(index)).get(timeline.id)
    return "it holds again" if by is None else f"entry {by} takes its place"


def _review_summary(timeline: Timeline, index: int) -> str:
    reviews = [
        event
        for event in timeline.events(index)
        if isinstance(event, EntryReviewed) and event.id == timeline.id
    ]
    return review_in_words(reviews[-1]) if reviews else ""


def review_in_words(review: EntryReviewed) -> str:
    by = review.verified_by
    words = "nobody has verified it" if by is None else f"{by} has verified it"
    return words if review.review_after is None else f"{words}; to check at {review.review_after}"


_SUMMARIES = {
    "purged": "erased for good",
    "erased": "what it was then, a purge has erased",
    "lost": "what it was then, damage has taken from the log",
    "deleted": "hidden from every read",
    "forgotten": "what it held before was erased",
}


def _summary(action: Action, before: State, after: State) -> str:
    if not isinstance(after, DocumentState) or action in _SUMMARIES:
        return _SUMMARIES.get(action, "what it held then is forgotten")
    if not isinstance(before, DocumentState) or before.deleted:
        return plural(after.chunk_count, "chunk")
    return "; ".join(_differences(before, after)) or "the same again"


def _differences(before: DocumentState, after: DocumentState) -> Iterator[str]:
    if before.title != after.title:
        yield f"title was “{before.title}”"
    if before.tags != after.tags:
        removed = [f"-{tag}" for tag in before.tags if tag not in after.tags]
        yield " ".join(["tags:", *(f"+{t}" for t in after.tags if t not in before.tags), *removed])
    if before.written.path != after.written.path:
        yield f"file was {before.written.path}"
    name = before.written.source_id
    if name is not None and name != after.written.source_id:
        yield f"name was {name}"
    if before.metadata != after.metadata:
        keys = {**before.metadata, **after.metadata}
        missing = object()
        differ = [
            k for k in keys if before.metadata.get(k, missing) != after.metadata.get(k, missing)
        ]
        yield f"metadata: {', '.join(differ)}"
    if not before.has_text_of(after):
        yield f"text: {plural(before.chunk_count, 'chunk')} before, {after.chunk_count} now"
