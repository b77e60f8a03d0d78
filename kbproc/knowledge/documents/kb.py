"""A knowledge base as methods return it, made from a row, and its not-found error."""

from __future__ import annotations

from typing import Annotated, cast

from msgspec import UNSET, Meta, Struct, UnsetType

from kbproc.engine.events.kb import Review
from kbproc.engine.projections.catalog.queries import Queries
from kbproc.engine.projections.catalog.rows import KbRow
from kbproc.knowledge.documents.lookup import unknown_kb

Name = Annotated[str, Meta(min_length=1, max_length=200, description="name for people")]
Description = Annotated[str, Meta(max_length=2000, description="what belongs in here")]


ReviewOf = Annotated[
    Review,
    Meta(
        description="which new entries wait for an approval: none, those from the web (or an "
        "import), those that are not a person's own words (agents), or all"
    ),
]


class KnowledgeBase(Struct, kw_only=True, frozen=True):
    """A knowledge base. `review`: which new entries wait for an approval; left out for none."""

    slug: str
    name: str
    description: str
    revision: int
    created_at: str
    updated_at: str
    review: Review | UnsetType = UNSET


def knowledge_base_of(row: KbRow) -> KnowledgeBase:
    return KnowledgeBase(
        slug=row.slug,
        name=row.name,
        description=row.description,
        revision=row.revision,
        created_at=row.created_at,
        updated_at=row.updated_at,
        review=stated_review(row.review),
    )


def stated_review(review: str) -> Review | UnsetType:
    """Returns what a knowledge base shows of its review: nothing where no entry waits."""
    return UNSET if review == "none" else cast("Review", review)


def require(queries: Queries, slug: str) -> KbRow:
    row = queries.kb(slug)
    if row is None:
        raise unknown_kb(slug, queries.kb_slugs(), field="$.params.slug")
    return row
