"""doc.list: list documents by id, filtered."""

# Annotations are values here: msgspec compiles each that is a text, at every start.

from typing import Annotated

from msgspec import Meta

from kbproc.base.params import PastListParams
from kbproc.base.values import Tags
from kbproc.engine.store.model import IndexStatus
from kbproc.knowledge.documents import document, lookup, selection
from kbproc.knowledge.documents.document import Document
from kbproc.methods.calls.call import Call
from kbproc.methods.calls.method import Example, method
from kbproc.methods.calls.reply import Page, Reply


class ListDocuments(PastListParams, kw_only=True, frozen=True):
    kb: Annotated[selection.Kbs, Meta(description="one or several; all if left out")] | None = None
    types: selection.Types | None = None
    tags: Tags | None = None
    tags_mode: selection.TagsMode = "all"
    status: Annotated[IndexStatus, Meta(description="of embedding")] | None = None
    path_prefix: selection.PathPrefix | None = None
    url: selection.Url | None = None
    source_id: selection.SourceId | None = None
    title_contains: selection.TitlePart | None = None
    created_after: selection.CreatedAfter | None = None
    created_before: selection.CreatedBefore | None = None
    updated_after: selection.UpdatedAfter | None = None


@method(
    "doc.list",
    params=ListDocuments,
    result=list[Document],
    layout=("id", "title", "kb", "type", "tags", "chunk_count", "created_at"),
    summary="List documents by id, filtered.",
    when_to_use="To see what a knowledge base holds; to find a document by its words use search.",
    errors=["resource.not_found"],
    alias="list",
    examples=[
        Example(params={"limit": 5}, what="the first five"),
        Example(params={"tags": ["release"]}, what="those with a tag"),
        Example(params={"updated_after": "2026-01-31"}, what="what has changed since then"),
        Example(params={"limit": 0}, what="a limit out of range", exit=1),
    ],
)
def list_documents(call: Call, params: ListDocuments) -> Reply:
    page = Page(params, int)
    with call.state(params) as state, state.reading() as snapshot:
        embedding = state.model
        lookup.require_kbs(snapshot.kbs, params.kb)
        filter = selection.filter_of(params, **embedding.ids_with_status(params.status))
        rows = snapshot.queries.documents(filter, after=page.after, limit=page.read_limit)
        return page.reply(
            rows,
            lambda row: document.document_of(row, embedding),
            key=lambda row: row.id,
            seq=snapshot.seq,
            total=snapshot.queries.count(filter),
        )
