"""Forgetting for good: store.purge."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from msgspec import Meta, Struct

from kbproc import documents as docs
from kbproc import events as ev
from kbproc import notes
from kbproc import purge as service
from kbproc.call import Call, Reply
from kbproc.chains import Chains
from kbproc.commit import Decision, Here, LongWrite, confirm, plan_of
from kbproc.errors import KbprocError
from kbproc.model import DestructiveParams
from kbproc.registry import Example, method
from kbproc.words import there_is_no

if TYPE_CHECKING:
    from kbproc.views.queries import DocumentRow

BACKUPS = "Backups and exports made earlier still hold what was purged."


class Purge(DestructiveParams, kw_only=True, frozen=True):
    document_ids: Annotated[
        docs.DocumentIds, Meta(description="documents, entries and notes, deleted ones too")
    ]


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
    whole=True,
    streams=True,
    params=Purge,
    result=Purged,
    summary="Erase documents, entries and notes from log, sources, vectors and views, for good.",
    when_to_use="When something must not be kept at all: a secret, personal data. To take a "
    "document or an entry out of search, deleting it is enough, and can be undone. Of a note "
    "the file goes, too; an entry that was superseded by what goes holds again.",
    errors=["resource.not_found", "resource.conflict"],
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
            _discard_files(call, here, decision.data)
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
    chains = Chains(here.queries, ids)
    chains.remove(ids)
    chains.settle()
    freed = list(here.queries.documents_by_id(chains.changed).values())
    return Decision(
        events=[*chains.events(), ev.DocPurged(ids=ids)] if ids else [],
        data=ids,
        targets=docs.targets_of([*left, *freed]),
        changes=[_says(row) for row in left] + [_holds(row, chains.by(row.id)) for row in freed],
        bound=[f"{row.id} deleted" for row in left if row.deleted_at]
        + [f"{row.id} superseded by {chains.by(row.id)}" for row in freed],
        bulk=any(
            docs.is_bulk(here, kb, sum(row.kb == kb and not row.deleted_at for row in left))
            for kb in {row.kb for row in left}
        ),
    )


def _says(row: DocumentRow) -> str:
    more = ", and the note's file" if row.type == "note" and not row.deleted_at else ""
    hidden = " (it is hidden already)" if row.deleted_at else ""
    return f"erase “{row.title}” for good, with all its revisions{more}{hidden}"


def _holds(row: DocumentRow, by: int | None) -> str:
    instead = "holds again" if by is None else f"is superseded by {by} instead"
    return f"entry {row.id} “{row.title}” {instead}"


def _discard_files(call: Call, here: Here, ids: list[int]) -> None:
    """Of notes, before the log forgets them: the next sync would only read them again."""
    for row in here.queries.documents_by_id(ids).values():
        if row.type == "note":
            notes.discard(call.store, row)


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
