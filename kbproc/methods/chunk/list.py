"""chunk.list: list a document's chunks in order."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from kbproc.base.params import PastListParams
from kbproc.base.values import DocumentId
from kbproc.knowledge.documents.document import ChunkView, chunk_view_of
from kbproc.knowledge.documents.lookup import require
from kbproc.methods.calls.call import Call
from kbproc.methods.calls.method import Example, method
from kbproc.methods.calls.reply import Page, Reply


class ListChunks(PastListParams, kw_only=True, frozen=True):
    document_id: DocumentId
    text: Annotated[bool, Meta(description="the text of each chunk")] = True

    def left_out(self) -> frozenset[str]:
        return frozenset() if self.text else frozenset({"text"})


@method(
    "chunk.list",
    params=ListChunks,
    result=list[ChunkView],
    layout=("id", "chunk_index", "page", "section", "text"),
    summary="List a document's chunks in order.",
    when_to_use="To read a document piece by piece.",
    errors=["resource.not_found"],
    positional=["document_id"],
    examples=[Example(params={"document_id": 1, "limit": 2}, what="the first two")],
)
def list_chunks(call: Call, params: ListChunks) -> Reply:
    page = Page(params, int)
    with call.state(params) as state, state.reading() as snapshot:
        row = require(snapshot.queries, params.document_id, field="$.params.document_id")
        rows = snapshot.queries.chunks_of(row.id, page.after, page.read_limit)
        return page.reply(
            rows, chunk_view_of, key=lambda chunk: chunk.id, seq=snapshot.seq, total=row.chunk_count
        )
