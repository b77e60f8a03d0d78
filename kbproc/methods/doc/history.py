"""doc.history: list what happened to a document, newest first."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from kbproc.base.errors import KbprocError
from kbproc.base.params import PastListParams
from kbproc.base.values import DocumentId
from kbproc.base.wording import plural
from kbproc.calls.call import Call
from kbproc.calls.method import Example, method
from kbproc.calls.pages import Page
from kbproc.calls.reply import Reply
from kbproc.events.entry import LINK_TAGS
from kbproc.history.revert.links import links_after
from kbproc.history.state import DocumentState, State, Unknown
from kbproc.history.timeline import BRINGS_BACK, PastRecords, Timeline, Touch

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
]


class History(PastListParams, kw_only=True, frozen=True):
    id: DocumentId


class DocumentRevision(Struct, kw_only=True, frozen=True):
    """One record that touched a document, and the document after it.

    What a purge has erased, store.compact has forgotten or damage has lost leaves only who,
    when and how.
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


def _revision_at(timeline: Timeline, index: int) -> DocumentRevision:
    touch, after = timeline.touches[index], timeline.state_after(index)
    before = timeline.state_after(index - 1)
    action = _action(touch, before, after)
    says = _summary(action, before, after)
    if action in {"superseded", "revived"}:
        says = _link(timeline, index)
    bare = DocumentRevision(
        seq=touch.seq,
        ts=touch.ts,
        actor=touch.actor,
        method=touch.method,
        action=action,
        summary=says,
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
    if not touch.types - LINK_TAGS:
        return "superseded" if "entry.superseded" in touch.types else "revived"
    if touch.method in BRINGS_BACK or (isinstance(before, DocumentState) and before.deleted):
        return "restored"
    if "doc.written" in touch.types:
        return "created" if before is None else "replaced"
    return "changed" if "doc.changed" in touch.types else "chunks_deleted"


def _link(timeline: Timeline, index: int) -> str:
    by = links_after(timeline.events(index)).get(timeline.id)
    return "it holds again" if by is None else f"entry {by} takes its place"


_SAYS = {
    "purged": "erased for good",
    "erased": "what it was then, a purge has erased",
    "lost": "what it was then, damage has taken from the log",
    "deleted": "hidden from every read",
    "forgotten": "what it held before was erased",
}


def _summary(action: Action, before: State, after: State) -> str:
    if not isinstance(after, DocumentState) or action in _SAYS:
        return _SAYS.get(action, "what it held then is forgotten")
    if not isinstance(before, DocumentState) or before.deleted:
        return plural(after.chunk_count, "chunk")
    return "; ".join(_differences(before, after)) or "the same again"


def _differences(before: DocumentState, after: DocumentState) -> Iterator[str]:
    if before.title != after.title:
        yield f"title was “{before.title}”"
    if before.tags != after.tags:
        gone = [f"-{tag}" for tag in before.tags if tag not in after.tags]
        yield " ".join(["tags:", *(f"+{t}" for t in after.tags if t not in before.tags), *gone])
    if before.written.path != after.written.path:
        yield f"file was {before.written.path}"
    if before.metadata != after.metadata:
        keys = {**before.metadata, **after.metadata}
        missing = object()
        differ = [
            k for k in keys if before.metadata.get(k, missing) != after.metadata.get(k, missing)
        ]
        yield f"metadata: {', '.join(differ)}"
    if not before.has_text_of(after):
        yield f"text: {plural(before.chunk_count, 'chunk')} before, {after.chunk_count} now"


@method(
    "doc.history",
    params=History,
    result=list[DocumentRevision],
    shown=("seq", "ts", "actor", "action", "revision", "summary"),
    summary="List what happened to a document, newest first.",
    when_to_use="To see who changed a document, when and how, and which revision to restore; "
    "deleted and purged documents have a history, too.",
    errors=["resource.not_found"],
    positional=["id"],
    examples=[
        Example(params={"id": 1}, what="everything that happened to a document"),
        Example(params={"id": 9_999_999}, what="one that never was", exit=5),
    ],
)
def history(call: Call, params: History) -> Reply:
    page = Page(params, int)  # newest first: what follows came before
    with call.state(params) as state, state.reading() as snapshot:
        records = PastRecords(call.store.log, snapshot.seq)
        rows = snapshot.queries.events_of_document(params.id)
        if call.sight is not None and snapshot.queries.document(params.id) is None:
            rows = []
        timeline = Timeline(records, params.id, rows)
        if not timeline.touches:
            raise KbprocError(
                "resource.not_found",
                f"There has never been a document {params.id}.",
                field="$.params.id",
                hint="See doc.list for the documents there are.",
            )
        seqs = [touch.seq for touch in timeline.touches]
        left = [i for i, seq in enumerate(seqs) if not page.after or seq < page.after]
        return page.reply(
            left[::-1][: page.wanted],
            lambda index: _revision_at(timeline, index),
            key=lambda index: seqs[index],
            seq=snapshot.seq,
            total=len(seqs),
        )
