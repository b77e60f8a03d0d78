"""A knowledge base as methods return it, made from a row, and its not-found error."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from kbproc.engine.projections.catalog.queries import Queries
from kbproc.engine.projections.catalog.rows import KbRow
from kbproc.knowledge.documents.lookup import unknown_kb

Name = Annotated[str, Meta(min_length=1, max_length=200, description="name for people")]
Description = Annotated[str, Meta(max_length=2000, description="what belongs in here")]


class KnowledgeBase(Struct, kw_only=True, frozen=True):
    slug: str
    name: str
    description: str
    revision: int
    created_at: str
    updated_at: str


def knowledge_base_of(row: KbRow) -> KnowledgeBase:
    return KnowledgeBase(
        slug=row.slug,
        name=row.name,
        description=row.description,
        revision=row.revision,
        created_at=row.created_at,
        updated_at=row.updated_at,
    )


def require(queries: Queries, slug: str) -> KbRow:
    row = queries.kb(slug)
    if row is None:
        raise unknown_kb(slug, queries.kb_slugs(), field="$.params.slug")
    return row
