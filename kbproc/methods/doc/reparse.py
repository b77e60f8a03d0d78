"""doc.reparse: cut documents into chunks afresh from their stored bytes."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct

from kbproc.base.errors import KbprocError
from kbproc.base.layout import LayoutPart, Report
from kbproc.base.params import WriteParams
from kbproc.base.values import KbSlug
from kbproc.base.wording import failure_in_words, plural
from kbproc.engine.projections.catalog.filters import DocumentFilter
from kbproc.engine.projections.catalog.queries import Queries
from kbproc.engine.projections.catalog.rows import DocumentRow
from kbproc.engine.store.decision import Decide, Decision, DecisionState, PartialSuccess
from kbproc.engine.store.pipeline import LongWrite
from kbproc.knowledge.documents import content as content_
from kbproc.knowledge.documents import ingest, lookup, revision
from kbproc.knowledge.documents.selection import DocumentIds
from kbproc.methods.calls.call import Call
from kbproc.methods.calls.method import Example, method
from kbproc.methods.calls.reply import Reply
from kbproc.methods.calls.run import reply_of


class Reparse(WriteParams, kw_only=True, frozen=True):
    ids: DocumentIds | None = None
    kb: Annotated[KbSlug, Meta(description="all documents of this one")] | None = None


class Reparsed(Struct, kw_only=True, frozen=True):
    updated: int
    unchanged: int
    failed: int
    failures: list[ingest.FileFailure]


def plan(call: Call, params: Reparse) -> Decide:
    def decide(here: DecisionState) -> Decision:
        rows = _rows(here.queries, params)
        change = f"parse {plural(len(rows), 'document')} again"
        return Decision(
            events=[],
            data=None,
            targets=revision.targets_of(rows),
            changes=[change],
            counts={"documents": len(rows)},
        )

    return decide


def _rows(queries: Queries, params: Reparse) -> list[DocumentRow]:
    lookup.require_kbs(queries.kb_slugs(), params.kb)
    if params.ids is not None:
        return lookup.require_all(queries, params.ids, field="$.params.ids")
    return queries.documents(DocumentFilter(kbs=None if params.kb is None else [params.kb]))


def as_report(data: dict[str, Any], params: dict[str, Any]) -> Report:
    lines = [
        failure_in_words(failure["path"], failure["message"], failure["path"])
        for failure in data["failures"]
    ]
    counts = {name: count for name, count in data.items() if name != "failures"}
    return Report(
        parts=[LayoutPart(heading="Could not be parsed again", lines=lines)], counts=counts
    )


@method(
    "doc.reparse",
    kind="write",
    undone_by=("doc.restore", "events.revert"),
    streams=True,
    idempotent=True,
    params=Reparse,
    result=Reparsed,
    plan=plan,
    summary="Cut documents into chunks afresh from their stored bytes.",
    when_to_use="After an upgrade with a better parser, or a change to a model of another length.",
    errors=["resource.not_found", "operation.partial"],
    positional=["ids"],
    layout=as_report,
    examples=[Example(params={"ids": [1]}, what="one document")],
)
def reparse(call: Call, params: Reparse, write: LongWrite) -> Reply:
    with call.store.reading() as snapshot:
        rows = _rows(snapshot.queries, params)
    updated, failures = 0, []
    for number, row in enumerate(rows, 1):
        call.check_cancelled(updated=updated)
        try:
            updated += content_.reparse_one(call.store, call.library.intake, row, write)
        except KbprocError as error:
            failures.append(
                ingest.FileFailure(path=row.title, type=error.type, message=error.message)
            )
        call.progress("reparse", number, len(rows), row.title)
    result = Reparsed(
        updated=updated,
        unchanged=len(rows) - updated - len(failures),
        failed=len(failures),
        failures=failures[:100],
    )
    message = f"{len(failures)} of {plural(len(rows), 'document')} could not be parsed again."
    partial = PartialSuccess(message=message) if failures else None
    return reply_of(write.end(result, partial=partial))
