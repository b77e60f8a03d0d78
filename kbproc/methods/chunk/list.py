"""chunk.list: list a document's chunks in order."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from kbproc.base.params import PastListParams
from kbproc.base.values import DocumentId
from kbproc.calls.call import Call
from kbproc.calls.method import Example, method
from kbproc.calls.pages import Page
from kbproc.calls.reply import Reply
from kbproc.documents.chunk import ChunkView, shown
from kbproc.documents.lookup import require


class ListChunks(PastListParams, kw_only=True, frozen=True):
    document_id: DocumentId
    text: Annotated[bool, Meta(description="the text of each chunk")] = True

    def left_out(self) -> frozenset[str]:
        return frozenset() if self.text else frozenset({"text"})


@method(
    "chunk.list",
    params=ListChunks,
    result=list[ChunkView],
    shown=("id", "chunk_index", "page", "section", "text"),
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
        found = snapshot.queries.chunks_of(row.id, page.after, page.wanted)
        return page.reply(
            found, shown, key=lambda chunk: chunk.id, seq=snapshot.seq, total=row.chunk_count
        )
