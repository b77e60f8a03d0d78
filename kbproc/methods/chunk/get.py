"""chunk.get: show one chunk, with as many neighbours as asked for."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from kbproc.base.params import BudgetTokens, PastParams
from kbproc.base.values import ChunkId
from kbproc.knowledge.documents.document import ChunkView, chunk_view_of, chunks_not_found
from kbproc.methods.calls.call import Call
from kbproc.methods.calls.method import Example, method
from kbproc.methods.calls.reply import Reply, fitting

Neighbours = Annotated[int, Meta(ge=0, le=50, description="how many neighbours on this side")]


class GetChunk(PastParams, kw_only=True, frozen=True):
    id: ChunkId
    before: Neighbours = 0
    after: Neighbours = 0
    budget_tokens: BudgetTokens | None = None


class ChunkInContext(Struct, kw_only=True, frozen=True):
    """A chunk with its neighbours in the same document, in order."""

    chunk: ChunkView
    before: list[ChunkView]
    after: list[ChunkView]
    title: str
    total_chunks: int


@method(
    "chunk.get",
    params=GetChunk,
    result=ChunkInContext,
    summary="Show one chunk, with as many neighbours as asked for.",
    when_to_use="When a search hit needs the text around it.",
    errors=["resource.not_found"],
    positional=["id"],
    examples=[
        Example(params={"id": 1, "after": 1}, what="a chunk and the one after it"),
        Example(params={"id": 9_999_999}, what="one that does not exist", exit=5),
    ],
)
def get(call: Call, params: GetChunk) -> Reply:
    with call.state(params) as state, state.reading() as snapshot:
        queries = snapshot.queries
        row = queries.chunks([params.id]).get(params.id)
        document = None if row is None else queries.document(row.document_id)
        if row is None or document is None:
            raise chunks_not_found([params.id], "$.params.id")
        is_wide = bool(params.before or params.after)
        rows = queries.chunks_of(document.id) if is_wide else [row]
        around = [chunk_view_of(row) for row in rows]
        at = next(i for i, chunk in enumerate(around) if chunk.id == params.id)
        span = range(max(0, at - params.before), min(len(around), at + params.after + 1))
        nearest = sorted(span, key=lambda i: abs(i - at))
        room = fitting(params, params.budget_tokens, [around[i] for i in nearest])
        fitting_places = sorted(nearest[:room])
        data = ChunkInContext(
            chunk=around[at],
            before=[around[i] for i in fitting_places if i < at],
            after=[around[i] for i in fitting_places if i > at],
            title=document.title,
            total_chunks=document.chunk_count,
        )
        more = True if room < len(nearest) else None
        return Reply(data=data, seq=snapshot.seq, has_more=more)
