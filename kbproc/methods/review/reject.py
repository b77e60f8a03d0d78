"""review.reject: hide entries in review for good; the log keeps their text."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from kbproc.base.params import WriteParams
from kbproc.engine.events.document import DocDeleted
from kbproc.engine.store.decision import Decide, Decision, DecisionState
from kbproc.knowledge.documents import entry, review
from kbproc.knowledge.documents.entry import EntryId
from kbproc.methods.calls.call import Call
from kbproc.methods.calls.method import Example, method


class RejectEntries(WriteParams, kw_only=True, frozen=True):
    ids: Annotated[list[EntryId], Meta(min_length=1, max_length=1000, description="entries, by id")]


class RejectedEntries(Struct, kw_only=True, frozen=True):
    """The rejected entries, whose text the log keeps."""

    rejected: int
    ids: list[int]


@method(
    "review.reject",
    kind="write",
    undone_by=("events.revert",),
    params=RejectEntries,
    result=RejectedEntries,
    summary="Reject entries in review; the log keeps their text.",
    when_to_use="When a reviewer has read entries of review.list and they don't hold. Their "
    "author deletes them with knowledge.delete. store.purge erases their text.",
    errors=["resource.not_found", "resource.conflict"],
    positional=["ids"],
    examples=[
        Example(params={"ids": [9_999_999]}, what="one that does not exist", exit=5),
    ],
)
def reject(call: Call, params: RejectEntries) -> Decide:
    def decide(here: DecisionState) -> Decision:
        rows = [item.row for item in review.require_in_review(here.queries, params.ids)]
        return Decision(
            events=[DocDeleted(id=row.id) for row in rows],
            data=RejectedEntries(rejected=len(rows), ids=[row.id for row in rows]),
            targets=entry.targets_of(rows),
            changes=[f"reject “{row.title}”" for row in rows],
        )

    return decide
