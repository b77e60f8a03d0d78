"""kb.create: create a knowledge base."""

from __future__ import annotations

from msgspec import UNSET, UnsetType

from kbproc.base.errors import KbprocError
from kbproc.base.params import WriteParams
from kbproc.base.values import KbSlug, clean_name
from kbproc.base.wording import change
from kbproc.engine.events.kb import KbCreated, Review
from kbproc.engine.store.decision import Decide, Decision, DecisionState
from kbproc.knowledge.documents.kb import Description, KnowledgeBase, Name, ReviewOf, stated_review
from kbproc.methods.calls.call import Call
from kbproc.methods.calls.method import Example, method


class CreateKb(WriteParams, kw_only=True, frozen=True):
    slug: KbSlug
    name: Name | None = None
    description: Description = ""
    review: ReviewOf | UnsetType = UNSET  # not none, so that older requests keep their hash


def _check_sight(call: Call, slug: str) -> None:
    """Gives the same answer whether it exists or not, so that an agent learns of no hidden one."""
    if call.sight is not None and not call.sight.sees(slug):
        raise KbprocError(
            "auth.insufficient_scope",
            f"{slug!r} is not among this agent's knowledge bases.",
            field="$.params.slug",
            valid_values=call.sight.kbs,
            hint="The person who looks after the agents can add it with agent.update.",
        )


@method(
    "kb.create",
    kind="write",
    undone_by=("events.revert",),
    params=CreateKb,
    result=KnowledgeBase,
    summary="Create a knowledge base.",
    when_to_use="To keep a body of documents apart, such as one project's or one customer's.",
    errors=["resource.already_exists"],
    positional=["slug"],
    examples=[
        Example(
            params={"slug": "handbook", "description": "How we work."},
            what="a knowledge base for a handbook",
        ),
        Example(
            params={"slug": "learned", "review": "agents"},
            what="one in which what agents store waits for an approval",
        ),
        Example(params={"slug": "default"}, what="a slug that is taken", exit=7),
    ],
)
def create(call: Call, params: CreateKb) -> Decide:
    review: Review = "none" if params.review is UNSET else params.review
    name = clean_name(params.name or params.slug, field="$.params.name")

    def decide(here: DecisionState) -> Decision:
        _check_sight(call, params.slug)
        if params.slug in here.kbs:
            raise KbprocError(
                "resource.already_exists",
                f"The knowledge base {params.slug!r} exists already.",
                field="$.params.slug",
                hint="Use it as it is, change it with kb.update, or choose another slug.",
            )
        event = KbCreated(
            slug=params.slug, name=name, description=params.description, review=review
        )
        created = KnowledgeBase(
            slug=params.slug,
            name=name,
            description=params.description,
            revision=1,
            created_at=here.ts,
            updated_at=here.ts,
            review=stated_review(review),
        )
        changes = [
            *change("name", None, name),
            *change("description", "", params.description),
            *change("review", "none", review),
        ]
        return Decision(events=[event], data=created, changes=changes)

    return decide
