"""chunk.list: list a document's chunks in order."""

from __future__ import annotations

from kbproc.base.paging import decode_cursor, encode_cursor, page
from kbproc.base.params import PastListParams
from kbproc.base.values import DocumentId
from kbproc.calls.call import Call
from kbproc.calls.method import Example, method
from kbproc.calls.reply import Reply
from kbproc.documents.chunk import ChunkView, shown
from kbproc.documents.documents import require


class ListChunks(PastListParams, kw_only=True, frozen=True):
    document_id: DocumentId


@method(
    "chunk.list",
    params=ListChunks,
    result=list[ChunkView],
    summary="List a document's chunks in order.",
    when_to_use="To read a document piece by piece.",
    errors=["resource.not_found"],
    positional=["document_id"],
    examples=[Example(params={"document_id": 1, "limit": 2}, what="the first two")],
)
def list_chunks(call: Call, params: ListChunks) -> Reply:
    after = decode_cursor(params.cursor, int)
    with call.state(params) as state, state.reading() as snapshot:
        row = require(snapshot.queries, params.document_id, field="$.params.document_id")
        found = snapshot.queries.chunks_of(row.id, after, params.limit + 1)
        rows, more = page(found, params.limit)
        return Reply(
            data=[shown(chunk) for chunk in rows],
            seq=snapshot.seq,
            count=len(rows),
            total=row.chunk_count,
            has_more=more,
            next_cursor=encode_cursor(rows[-1].id) if more else None,
        )
