"""doc.delete: hide documents from every read; the log keeps their text."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from kbproc.base.errors import KbprocError
from kbproc.base.params import DestructiveParams
from kbproc.engine.store.decision import Decide, Decision, DecisionState
from kbproc.knowledge.documents import lookup, revision, selection
from kbproc.knowledge.documents.revision import Deleted
from kbproc.knowledge.documents.selection import DocumentIds, Selection
from kbproc.methods.calls.call import Call
from kbproc.methods.calls.method import Example, method


class Delete(DestructiveParams, kw_only=True, frozen=True):
    ids: DocumentIds | None = None
    where: Annotated[Selection, Meta(description="all documents that match")] | None = None


@method(
    "doc.delete",
    kind="destructive",
    undone_by=("doc.restore", "events.revert"),
    params=Delete,
    result=Deleted,
    summary="Hide documents from every read; the log keeps their text.",
    when_to_use="When documents are wrong or no longer wanted. It does not erase anything: "
    "doc.restore brings them back, store.purge erases for good.",
    errors=["resource.not_found"],
    positional=["ids"],
    examples=[
        Example(params={"ids": [1]}, what="without a person's approval", exit=10),
        Example(params={"where": {"tags": ["draft"]}, "dry_run": True}, what="only the plan"),
    ],
)
def delete(call: Call, params: Delete) -> Decide:
    if (params.ids is None) == (params.where is None):
        raise KbprocError(
            "input.invalid_params",
            "Give either ids or where.",
            field="$.params",
            valid_values=["ids", "where"],
        )
    if params.where is not None and params.where.is_everything:
        raise KbprocError(
            "input.invalid_params",
            "where names no condition and would delete everything.",
            field="$.params.where",
            valid_values=list(Selection.__struct_fields__),
        )

    def decide(here: DecisionState) -> Decision:
        if params.ids is not None:
            rows = lookup.require_all(here.queries, params.ids, field="$.params.ids")
            lookup.refuse_others(rows, method="doc.delete", field="$.params.ids")
        else:
            lookup.require_kbs(here.kbs, params.where.kb if params.where else None)
            rows = here.queries.documents(selection.filter_of(params.where, own_types=False))
        return revision.deletion(here, rows)

    return decide
