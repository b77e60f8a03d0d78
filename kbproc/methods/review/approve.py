"""review.approve: let everybody find entries that were in review."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from kbproc.base.params import WriteParams
from kbproc.base.wording import plural
from kbproc.engine.events.event import Event
from kbproc.engine.events.origin import PERSON
from kbproc.engine.store.decision import Decide, Decision, DecisionState
from kbproc.knowledge.documents import entry, review, revision, trust
from kbproc.knowledge.documents.entry import EntryId
from kbproc.methods.calls.call import Call
from kbproc.methods.calls.method import Example, method


class ApproveEntries(WriteParams, kw_only=True, frozen=True):
    ids: Annotated[list[EntryId], Meta(min_length=1, max_length=1000, description="entries, by id")]


class ApprovedEntries(Struct, kw_only=True, frozen=True):
    """`superseded`: entries whose place an approved one has taken."""

    approved: int
    ids: list[int]
    superseded: list[int] = []


@method(
    "review.approve",
    kind="write",
    undone_by=("events.revert",),
    looks_first=True,
    params=ApproveEntries,
    result=ApprovedEntries,
    summary="Approve entries in review: searches find them then.",
    when_to_use="When a reviewer has read entries of review.list and they hold. A person's "
    "approval verifies them, too (knowledge.verify). An agent has the scope review:write only if "
    "a person gave it. events.revert puts them back into review.",
    errors=["resource.not_found", "resource.conflict"],
    positional=["ids"],
    examples=[
        Example(params={"ids": [9_999_999]}, what="one that does not exist", exit=5),
    ],
)
def approve(call: Call, params: ApproveEntries) -> Decide:
    with call.store.reading_as(call.review_sight) as snapshot:
        items = review.require_in_review(snapshot.queries, params.ids)
    intake, blobs = call.library.intake, call.store.blobs
    contents = {
        row.id: review.content_of(
            intake, row, blobs.get(row.sha256).decode(), row.title, keep=False
        )
        for row, _ in items
    }
    revisions = {row.id: row.revision for row, _ in items}

    def decide(here: DecisionState) -> Decision:
        items = review.require_in_review(here.queries, params.ids)
        rows = [item.row for item in items]
        review.check_same(rows, revisions)
        ids = revision.Ids(here)
        events, changes, superseded = list[Event](), list[str](), list[int]()
        for item in items:
            row = item.row
            links = list(review.links_of(here.queries, row))
            events += [review.written(here, item, contents[row.id], ids, approved=True), *links]
            if call.origin == PERSON:
                by = call.peer.actor
                events.append(
                    trust.review_of(row, by=by, at=here.ts, now=here.now, review_after=None)
                )
            superseded += [link.id for link in links]
            changes += [f"approve “{row.title}”", *review.links_in_words(row, links)]
        return Decision(
            events=events,
            data=ApprovedEntries(
                approved=len(rows), ids=[row.id for row in rows], superseded=superseded
            ),
            targets=entry.targets_of(rows),
            changes=[f"{plural(len(rows), 'entry', 'entries')} approved", *changes],
        )

    return decide
