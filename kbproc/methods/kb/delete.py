"""kb.delete: delete a knowledge base and hide all of its documents."""

from __future__ import annotations

from msgspec import Struct

from kbproc.base.errors import KbprocError
from kbproc.base.params import DestructiveParams
from kbproc.base.values import KbSlug
from kbproc.base.wording import plural
from kbproc.calls.call import Call
from kbproc.calls.method import Example, method
from kbproc.documents.deletion import is_bulk, targets_of
from kbproc.documents.kb import require
from kbproc.events.document import DocDeleted
from kbproc.events.event import Event
from kbproc.events.kb import KbDeleted
from kbproc.settings.config import DEFAULT_KB
from kbproc.store.decision import Decide, Decision, Here, Target
from kbproc.views.catalog.filters import DocumentFilter
from kbproc.views.catalog.reader import EVERYTHING


class DeleteKb(DestructiveParams, kw_only=True, frozen=True):
    slug: KbSlug


class DeletedKb(Struct, kw_only=True, frozen=True):
    slug: str
    documents: int


@method(
    "kb.delete",
    kind="destructive",
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
    def decide(here: Here) -> Decision:
        row = require(here.queries, params.slug)
        if row.slug == DEFAULT_KB:
            raise KbprocError(
                "input.invalid_params",
                "The knowledge base 'default' is always there and can't be deleted.",
                field="$.params.slug",
                hint="Delete its documents with doc.delete instead.",
            )
        rows = here.queries.documents(DocumentFilter(kbs=[row.slug]))
        here.queries.see(EVERYTHING)  # entries that may not be read go with it, too
        every = here.queries.document_ids(DocumentFilter(kbs=[row.slug])).tolist()
        own = Target(kind="kb", id=row.slug, name=row.name, revision=row.revision)
        events: list[Event] = [DocDeleted(id=id) for id in every]
        return Decision(
            events=[*events, KbDeleted(slug=row.slug)],
            data=DeletedKb(slug=row.slug, documents=len(rows)),
            targets=[own, *targets_of(rows)],
            changes=[f"delete {row.slug} and hide its {plural(len(rows), 'document')}"],
            # A new one under the same slug is another one.
            bound=[row.created_at, *map(str, every)],
            bulk=is_bulk(here, row.slug, len(every)),
        )

    return decide
