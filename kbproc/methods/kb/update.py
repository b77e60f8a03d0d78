"""kb.update: change a knowledge base's name or description."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from kbproc.base.errors import KbprocError
from kbproc.base.params import WriteParams
from kbproc.base.values import KbSlug, clean_name
from kbproc.base.wording import change
from kbproc.engine.events.kb import KbUpdated
from kbproc.engine.store.decision import Decide, Decision, DecisionState
from kbproc.engine.store.target import Target
from kbproc.knowledge.documents.kb import Description, KnowledgeBase, Name, require
from kbproc.methods.calls.call import Call
from kbproc.methods.calls.method import Example, method


class UpdateKb(WriteParams, kw_only=True, frozen=True):
    slug: KbSlug
    name: Name | None = None
    description: Description | None = None
    expected_revision: Annotated[int, Meta(ge=1, description="fail if it has changed")] | None = (
        None
    )


@method(
    "kb.update",
    kind="write",
    undone_by=("events.revert",),
    idempotent=True,
    params=UpdateKb,
    result=KnowledgeBase,
    summary="Change a knowledge base's name or description.",
    when_to_use="When its purpose has changed; the slug stays for ever.",
    errors=["resource.not_found"],
    positional=["slug"],
    examples=[Example(params={"slug": "default", "name": "Everything"}, what="another name")],
)
def update(call: Call, params: UpdateKb) -> Decide:
    if params.name is None and params.description is None:
        raise KbprocError(
            "input.invalid_params",
            "There is nothing to change: give name or description.",
            field="$.params",
            valid_values=["name", "description"],
        )

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
        updated = KnowledgeBase(
            slug=row.slug,
            name=name,
            description=text,
            revision=row.revision + 1,
            created_at=row.created_at,
            updated_at=here.ts,
        )
        target = Target(kind="kb", id=row.slug, name=row.name, revision=row.revision)
        event = KbUpdated(slug=row.slug, name=name, description=text)
        changes = change("name", row.name, name) + change("description", row.description, text)
        return Decision(events=[event], data=updated, targets=[target], changes=changes)

    return decide
