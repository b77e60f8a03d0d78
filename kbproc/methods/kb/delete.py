"""kb.delete: delete a knowledge base and hide all of its documents."""

from __future__ import annotations

from msgspec import Struct

from kbproc.base.errors import KbprocError
from kbproc.base.params import DestructiveParams
from kbproc.base.settings.config import DEFAULT_KB
from kbproc.base.values import KbSlug
from kbproc.base.wording import plural
from kbproc.engine.events.document import DocDeleted
from kbproc.engine.events.event import Event
from kbproc.engine.events.kb import KbDeleted
from kbproc.engine.projections.catalog.filters import DocumentFilter
from kbproc.engine.projections.catalog.reader import EVERYTHING
from kbproc.engine.store.decision import Decide, Decision, DecisionState
from kbproc.engine.store.target import Target
from kbproc.knowledge.documents.kb import require
from kbproc.knowledge.documents.revision import is_bulk, targets_of
from kbproc.methods.calls.call import Call
from kbproc.methods.calls.method import Example, method


class DeleteKb(DestructiveParams, kw_only=True, frozen=True):
    slug: KbSlug


class DeletedKb(Struct, kw_only=True, frozen=True):
    slug: str
    documents: int


@method(
    "kb.delete",
    kind="destructive",
    undone_by=("events.revert",),
    params=DeleteKb,
    result=DeletedKb,
    summary="Delete a knowledge base and hide all of its documents.",
    when_to_use="When a whole body of documents is no longer wanted.",
    errors=["resource.not_found"],
    positional=["slug"],
    examples=[
        Example(params={"slug": "scratch"}, what="without a person's approval", exit=10),
        Example(params={"slug": "scratch", "dry_run": True}, what="only the plan"),
    ],
)
def delete(call: Call, params: DeleteKb) -> Decide:
    def decide(here: DecisionState) -> Decision:
        row = require(here.queries, params.slug)
        if row.slug == DEFAULT_KB:
            raise KbprocError(
                "input.invalid_params",
                "The knowledge base 'default' is always there and can't be deleted.",
                field="$.params.slug",
                hint="Delete its documents with doc.delete instead.",
            )
        rows = here.queries.documents(DocumentFilter(kbs=[row.slug]))
        here.queries.see(EVERYTHING)  # entries that the caller may not read go with it, too
        all_ids = here.queries.document_ids(DocumentFilter(kbs=[row.slug])).tolist()
        own = Target(kind="kb", id=row.slug, name=row.name, revision=row.revision)
        events: list[Event] = [DocDeleted(id=id) for id in all_ids]
        return Decision(
            events=[*events, KbDeleted(slug=row.slug)],
            data=DeletedKb(slug=row.slug, documents=len(rows)),
            targets=[own, *targets_of(rows)],
            changes=[f"delete {row.slug} and hide its {plural(len(rows), 'document')}"],
            # A new knowledge base under the same slug is another one.
            bound=[row.created_at, *map(str, all_ids)],
            bulk=is_bulk(here, row.slug, len(all_ids)),
        )

    return decide
