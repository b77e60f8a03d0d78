"""What was, and bringing it back: doc.history, doc.restore, events.revert."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from msgspec import Meta, Struct
from msgspec.structs import replace

from kbproc.base import values
from kbproc.base.errors import KbprocError
from kbproc.base.paging import decode_cursor, encode_cursor
from kbproc.base.params import DestructiveParams, PastListParams, WriteParams
from kbproc.base.values import DocumentId, Instant
from kbproc.base.wording import plural
from kbproc.calls.call import Call
from kbproc.calls.method import Example, method
from kbproc.calls.reply import Reply
from kbproc.documents.documents import DocumentIds
from kbproc.events.entry import LINK_TAGS
from kbproc.history.restore import Restored, restore
from kbproc.history.revert.links import links_after
from kbproc.history.revert.revert import revert
from kbproc.history.revert.undoing import Reversal
from kbproc.history.timeline import (
    BRINGS_BACK,
    DocumentState,
    PastRecords,
    State,
    Timeline,
    Touch,
    Unknown,
)
from kbproc.store.decision import Decide, Decision, Here

MOST_RECORDS = 1000

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
]
Seq = Annotated[int, Meta(ge=1, le=2**53, description="record of the log, by seq")]


class History(PastListParams, kw_only=True, frozen=True):
    id: DocumentId


class Restore(WriteParams, kw_only=True, frozen=True):
    ids: DocumentIds
    revision: (
        Annotated[int, Meta(ge=1, description="as it was then; for one document only")] | None
    ) = None
    expected_revision: (
        Annotated[int, Meta(ge=1, description="fail if it has changed since; for one document")]
        | None
    ) = None


class Revert(DestructiveParams, kw_only=True, frozen=True):
    seqs: (
        Annotated[list[Seq], Meta(min_length=1, max_length=1000, description="records, by seq")]
        | None
    ) = None
    actor: (
        Annotated[str, Meta(min_length=1, max_length=200, description="all that they did since")]
        | None
    ) = None
    since: (
        Annotated[
            Instant | Annotated[int, Meta(ge=1, le=2**53)],
            Meta(description="RFC 3339 time, or a seq; itself included"),
        ]
        | None
    ) = None


class DocumentRevision(Struct, kw_only=True, frozen=True):
    """One record that touched a document, and the document after it.

    What a purge has erased, or damage has lost, leaves only who, when and how.
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


def revision_at(timeline: Timeline, index: int) -> DocumentRevision:
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
    if "doc.deleted" in touch.types:
        return "deleted"
    if not isinstance(after, DocumentState):
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
}


def _summary(action: Action, before: State, after: State) -> str:
    if not isinstance(after, DocumentState) or action in _SAYS:
        return _SAYS[action]
    if not isinstance(before, DocumentState) or before.deleted:
        return plural(after.chunk_count, "chunk")
    return "; ".join(_differences(before, after)) or "the same again"


def _differences(before: DocumentState, after: DocumentState) -> Iterator[str]:
    if before.title != after.title:
        yield f"title was “{before.title}”"
    if before.tags != after.tags:
        gone = [f"-{tag}" for tag in before.tags if tag not in after.tags]
        yield " ".join(["tags:", *(f"+{t}" for t in after.tags if t not in before.tags), *gone])
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
    before = decode_cursor(params.cursor, int)
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
        left = [i for i, t in enumerate(timeline.touches) if not before or t.seq < before]
        shown = left[-params.limit :][::-1]
        more = len(left) > len(shown)
        return Reply(
            data=[revision_at(timeline, index) for index in shown],
            seq=snapshot.seq,
            count=len(shown),
            total=len(timeline.touches),
            has_more=more,
            next_cursor=encode_cursor(timeline.touches[shown[-1]].seq) if more else None,
        )


@method(
    "doc.restore",
    kind="write",
    idempotent=True,
    params=Restore,
    result=Restored,
    summary="Bring deleted documents back, or one document to an earlier revision.",
    when_to_use="After a deletion or a change that was a mistake. Chunks come back under their "
    "old ids, so that citations hold again. What is already so is left alone and listed as "
    "unchanged; what was purged is gone.",
    errors=["resource.not_found", "resource.already_exists"],
    positional=["ids"],
    examples=[
        Example(params={"ids": [1]}, what="one that is not deleted: unchanged"),
        Example(params={"ids": [1], "revision": 1}, what="a document as it was at first"),
        Example(params={"ids": [1], "revision": 99}, what="a revision it never had", exit=5),
        Example(params={"ids": [9_999_999]}, what="one that never was", exit=5),
    ],
)
def restore_documents(call: Call, params: Restore) -> Decide:
    for name in ("revision", "expected_revision"):
        if getattr(params, name) is not None and len(set(params.ids)) > 1:
            raise KbprocError(
                "input.invalid_params",
                f"{name} can be given for one document only.",
                field=f"$.params.{name}",
                hint="Restore the documents one by one.",
            )

    def decide(here: Here) -> Decision:
        return restore(
            here,
            call.store.log,
            call.store.embedding,
            ids=params.ids,
            revision=params.revision,
            expected_revision=params.expected_revision,
        )

    return decide


@method(
    "events.revert",
    kind="destructive",
    whole=True,
    params=Revert,
    result=Reversal,
    summary="Undo records of the log, or all that somebody did since some moment.",
    when_to_use="When somebody, or some agent, did what should not have been done. What was "
    "changed again by others later is kept, and the plan says so first. A revert is a record, "
    "too: revert it to do everything again.",
    errors=["input.too_large"],
    examples=[
        Example(params={"seqs": [2]}, what="without a person's approval", exit=10),
        Example(params={"seqs": [2], "dry_run": True}, what="only the plan"),
        Example(params={"actor": "nobody", "since": 1}, what="nothing to undo"),
        Example(params={"seqs": [9_999_999]}, what="a record that is not there", exit=1),
    ],
)
def revert_records(call: Call, params: Revert) -> Decide:
    given = [getattr(params, name) is not None for name in ("seqs", "actor", "since")]
    if given not in ([True, False, False], [False, True, True]):
        raise KbprocError(
            "input.invalid_params",
            "Give either seqs, or actor and since.",
            field="$.params",
            valid_values=["seqs", "actor", "since"],
        )
    since = params.since
    if isinstance(since, str):
        since = values.instant(since, field="$.params.since")

    def decide(here: Here) -> Decision:
        if params.seqs is None:
            seqs = _seqs_by(here, str(params.actor), since or 1)
        else:
            seqs = _existing(here, params.seqs)
        return revert(here, call.store.log, seqs)

    return decide


def _existing(here: Here, seqs: list[int]) -> list[int]:
    for index, seq in enumerate(seqs):
        if seq > here.head.seq:
            raise KbprocError(
                "input.invalid_params",
                f"There is no record {seq}: the log ends at seq {here.head.seq}.",
                field=f"$.params.seqs[{index}]",
            )
    return seqs


def _seqs_by(here: Here, actor: str, since: str | int) -> list[int]:
    moment = here.queries.ts_of(since) if isinstance(since, int) else since
    found = here.queries.records_by(actor, moment)
    if isinstance(since, int):
        found = [seq for seq in found if seq >= since]
    if len(found) > MOST_RECORDS:
        raise KbprocError(
            "input.too_large",
            f"{actor} has written {len(found)} records since then; at most {MOST_RECORDS} are "
            "undone at once.",
            field="$.params.since",
            hint=f"Go back in steps, the newest first: since {found[-MOST_RECORDS]}.",
            detail={"records": len(found), "since": found[-MOST_RECORDS]},
        )
    return found
