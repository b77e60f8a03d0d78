"""kb.update: change a knowledge base's name, its description, or which entries wait."""

from __future__ import annotations

from typing import Annotated

from msgspec import UNSET, Meta, UnsetType

from kbproc.base.errors import KbprocError
from kbproc.base.params import WriteParams
from kbproc.base.values import KbSlug, clean_name
from kbproc.base.wording import change
from kbproc.engine.events.kb import KbUpdated, Review
from kbproc.engine.store.decision import Decide, Decision, DecisionState
from kbproc.engine.store.target import Target
from kbproc.knowledge.documents.kb import (
    Description,
    KnowledgeBase,
    Name,
    ReviewOf,
    require,
    stated_review,
)
from kbproc.methods.calls.call import Call
from kbproc.methods.calls.method import Example, method
from kbproc.methods.calls.run import who_gives


class UpdateKb(WriteParams, kw_only=True, frozen=True):
    slug: KbSlug
    name: Name | None = None
    description: Description | None = None
    review: ReviewOf | UnsetType = UNSET  # not null, so that older requests keep their hash
    expected_revision: Annotated[int, Meta(ge=1, description="fail if it has changed")] | None = (
        None
    )


def _check_reviewer(call: Call) -> None:
    """Raises auth.insufficient_scope for a caller who could end a review that it is subject to."""
    if call.scopes.isdisjoint({"admin", "review:write"}):
        raise KbprocError(
            "auth.insufficient_scope",
            "Changing which entries wait for an approval needs the scope review:write.",
            field="$.params.review",
            hint=who_gives(call, "review:write"),
            detail={"needed": "review:write", "scopes": sorted(call.scopes)},
        )


@method(
    "kb.update",
    kind="write",
    undone_by=("events.revert",),
    idempotent=True,
    params=UpdateKb,
    result=KnowledgeBase,
    summary="Change a knowledge base's name, description or review.",
    when_to_use="When its purpose has changed, or when new entries are to wait for an approval "
    "from now on (review); those that wait already stay in review. The slug stays for ever.",
    errors=["resource.not_found"],
    positional=["slug"],
    examples=[
        Example(params={"slug": "default", "name": "Everything"}, what="another name"),
        Example(
            params={"slug": "default", "review": "web"},
            what="what is learned from the web waits for an approval",
        ),
    ],
)
def update(call: Call, params: UpdateKb) -> Decide:
    if params.name is None and params.description is None and params.review is UNSET:
        raise KbprocError(
            "input.invalid_params",
            "There is nothing to change: give name, description or review.",
            field="$.params",
            valid_values=["name", "description", "review"],
        )
    review = params.review
    if review is not UNSET:
        _check_reviewer(call)

    def decide(here: DecisionState) -> Decision:
        row = require(here.queries, params.slug)
        if params.expected_revision not in {None, row.revision}:
            raise KbprocError(
                "resource.conflict",
                f"{row.slug} is at revision {row.revision}, not {params.expected_revision}.",
                field="$.params.expected_revision",
                detail={"revision": row.revision},
            )
        name = row.name if params.name is None else clean_name(params.name, field="$.params.name")
        text = row.description if params.description is None else params.description
        level: Review = row.review if review is UNSET else review
        updated = KnowledgeBase(
            slug=row.slug,
            name=name,
            description=text,
            revision=row.revision + 1,
            created_at=row.created_at,
            updated_at=here.ts,
            review=stated_review(level),
        )
        target = Target(kind="kb", id=row.slug, name=row.name, revision=row.revision)
        event = KbUpdated(slug=row.slug, name=name, description=text, review=level)
        changes = [
            *change("name", row.name, name),
            *change("description", row.description, text),
            *change("review", row.review, level),
        ]
        return Decision(events=[event], data=updated, targets=[target], changes=changes)

    return decide
