"""knowledge.verify: note that a person found entries to hold."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from kbproc.base.params import DestructiveParams
from kbproc.base.settings.config import DEFAULT_ACTOR
from kbproc.base.times import instant
from kbproc.base.wording import change
from kbproc.engine.events.origin import PERSON
from kbproc.engine.projections.catalog.rows import EntryRow, anchors_of
from kbproc.engine.store.decision import Decide, Decision, DecisionState
from kbproc.knowledge.documents import anchors, entry, review, trust
from kbproc.knowledge.documents.entry import EntryId
from kbproc.knowledge.documents.trust import VerifiedEntries
from kbproc.methods.calls.call import Call
from kbproc.methods.calls.method import Example, method


class VerifyEntries(DestructiveParams, kw_only=True, frozen=True):
    ids: Annotated[list[EntryId], Meta(min_length=1, max_length=1000, description="entries, by id")]
    review_after: trust.ReviewAfter | None = None


@method(
    "knowledge.verify",
    kind="write",
    undone_by=("events.revert",),
    params=VerifyEntries,
    result=VerifiedEntries,
    summary="Note that a person found entries to hold.",
    when_to_use="When a person has checked entries, such as those that knowledge.list shows as "
    "due or stale. An agent's call only proposes it: a person approves the plan. Without "
    "review_after a day of checking that has passed is dropped. Sources count from now on as they "
    "are now. events.revert takes it back.",
    errors=[
        "resource.not_found",
        "input.confirmation_required",
        "resource.plan_stale",
    ],
    positional=["ids"],
    examples=[
        Example(params={"ids": [4], "review_after": "2099-01-01"}, what="it holds, until then"),
        Example(params={"ids": [4], "dry_run": True}, what="only the plan"),
        Example(params={"ids": [9_999_999]}, what="one that does not exist", exit=5),
    ],
)
def verify(call: Call, params: VerifyEntries) -> Decide:
    review_after = params.review_after
    if review_after is not None:
        review_after = instant(review_after, field="$.params.review_after")
    is_person = call.origin == PERSON

    def decide(here: DecisionState) -> Decision:
        trust.check_future(review_after, here.now, field="$.params.review_after")
        rows = entry.require_all(here.queries, params.ids, field="$.params.ids")
        review.refuse_in_review(rows, field="$.params.ids")
        # The plan of an agent is approved by the person at its client.
        by = call.peer.actor if is_person else DEFAULT_ACTOR
        events = [
            trust.review_of(
                row,
                by=by,
                at=here.ts,
                now=here.now,
                review_after=review_after,
                anchors=anchors.renewed(
                    here.queries, anchors_of(row.anchors), sees_files=call.library.store.is_local
                ),
            )
            for row in rows
        ]
        days = [event.review_after for event in events if event.review_after is not None]
        return Decision(
            events=[*events],
            data=VerifiedEntries(
                verified=len(rows),
                ids=[row.id for row in rows],
                verified_by=by,
                verified_at=here.ts,
                review_after=min(days, default=None),
            ),
            targets=entry.targets_of(rows),
            changes=[
                line
                for row, event in zip(rows, events, strict=True)
                for line in _changes(row, event.review_after)
            ],
            destructive=not is_person,
        )

    return decide


def _changes(row: EntryRow, review_after: str | None) -> list[str]:
    lines = change("review_after", row.review_after, review_after)
    return [f"entry {row.id} “{row.title}” holds", *lines]
