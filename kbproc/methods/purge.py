"""Forgetting for good: store.purge."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from kbproc import documents as docs
from kbproc import events as ev
from kbproc import purge as service
from kbproc.call import Call, Reply
from kbproc.commit import Decision, Here, LongWrite, confirm, plan_of
from kbproc.errors import KbprocError
from kbproc.model import DestructiveParams, Target
from kbproc.registry import Example, method
from kbproc.words import there_is_no

BACKUPS = "Backups and exports made earlier still hold what was purged."


class Purge(DestructiveParams, kw_only=True, frozen=True):
    document_ids: Annotated[docs.DocumentIds, Meta(description="documents, deleted ones too")]


class Purged(Struct, kw_only=True, frozen=True):
    """`records` of the log, `sources` and `vectors` that were erased."""

    purged: int
    ids: list[int]
    records: int
    sources: int
    vectors: int


@method(
    "store.purge",
    kind="destructive",
    streams=True,
    params=Purge,
    result=Purged,
    summary="Erase documents from log, sources, vectors, views and snapshots, for good.",
    when_to_use="When something must not be kept at all: a secret, personal data. To take a "
    "document out of search, doc.delete is enough, and can be undone.",
    errors=["resource.not_found"],
    positional=["document_ids"],
    examples=[
        Example(params={"document_ids": [1]}, what="without a person's approval", exit=10),
        Example(params={"document_ids": [1], "dry_run": True}, what="only the plan"),
    ],
)
def purge(call: Call, params: Purge, write: LongWrite) -> Reply:
    """What is purged already is passed over: a request that was cut off can be repeated."""
    with call.store.reading() as snapshot:
        found = Here(snapshot.queries, call.now, snapshot.published.head)
        planned = _decide(found, params)
    if params.dry_run:
        return Reply(data=None, plan=plan_of(write.request, planned), hint=BACKUPS)

    def decide(here: Here) -> Decision:
        decision = _decide(here, params)
        if decision.events:
            confirm(write.request, decision)
        return decision

    with call.store.exclusive(call.check_cancelled):
        ids = write.item(decide)
        erased = service.finish(call.store, lambda stage: _tell(call, stage))
    data = Purged(
        purged=len(ids), ids=ids, records=erased.records, sources=erased.sources,
        vectors=erased.vectors,
    )  # fmt: skip
    outcome = write.end(data)
    return Reply(data=outcome.data, seq=max(outcome.seq, call.store.seq), hint=BACKUPS)


def _decide(here: Here, params: Purge) -> Decision:
    rows = here.queries.documents_by_id(params.document_ids)
    missing = [id for id in params.document_ids if id not in rows]
    if missing:
        raise KbprocError(
            "resource.not_found", there_is_no("document", missing),
            field="$.params.document_ids", detail={"missing": missing[:100]},
        )  # fmt: skip
    left = [row for id, row in sorted(rows.items()) if not docs.is_purged(row)]
    ids = [row.id for row in left]
    return Decision(
        events=[ev.DocPurged(ids=ids)] if ids else [],
        data=ids,
        targets=[
            Target(kind="document", id=row.id, name=row.title, revision=row.revision)
            for row in left
        ],
        changes=[
            f"erase “{row.title}” for good, with all its revisions"
            + (" (it is hidden already)" if row.deleted_at else "")
            for row in left
        ],
        bound=[f"{row.id} deleted" for row in left if row.deleted_at],
        bulk=any(
            docs.is_bulk(here, kb, sum(row.kb == kb and not row.deleted_at for row in left))
            for kb in {row.kb for row in left}
        ),
    )


def _tell(call: Call, stage: str) -> None:
    number = service.STAGES.index(stage)
    call.emit(
        "progress",
        {
            "stage": "purge", "current": number, "total": len(service.STAGES),
            "percent": round(100 * number / len(service.STAGES), 1), "message": stage,
            "last": True,
        },
    )  # fmt: skip
