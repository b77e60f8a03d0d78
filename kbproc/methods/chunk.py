"""Chunks: the pieces of a document that are searched."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from msgspec import Meta, Struct

from kbproc.base.errors import KbprocError
from kbproc.base.paging import decode_cursor, encode_cursor, page
from kbproc.base.params import DestructiveParams, PastListParams, PastParams
from kbproc.base.values import ChunkId, DocumentId
from kbproc.base.wording import plural, there_is_no
from kbproc.calls.call import Call
from kbproc.calls.method import Example, method
from kbproc.calls.reply import Reply
from kbproc.documents.document import ChunkView
from kbproc.documents.documents import refuse_others, require, targets_of
from kbproc.events.document import ChunkDeleted
from kbproc.events.event import Event
from kbproc.store.decision import Decide, Decision, Here

if TYPE_CHECKING:
    from kbproc.views.catalog.rows import ChunkRow

Neighbours = Annotated[int, Meta(ge=0, le=50, description="how many neighbours on this side")]


class ListChunks(PastListParams, kw_only=True, frozen=True):
    document_id: DocumentId


class GetChunk(PastParams, kw_only=True, frozen=True):
    id: ChunkId
    before: Neighbours = 0
    after: Neighbours = 0


class DeleteChunks(DestructiveParams, kw_only=True, frozen=True):
    ids: Annotated[list[ChunkId], Meta(min_length=1, max_length=1000, description="chunks, by id")]


class ChunkInContext(Struct, kw_only=True, frozen=True):
    """A chunk with its neighbours in the same document, in order."""

    chunk: ChunkView
    before: list[ChunkView]
    after: list[ChunkView]
    title: str
    total_chunks: int


class DeletedChunks(Struct, kw_only=True, frozen=True):
    deleted: int
    documents: list[int]


def _shown(row: ChunkRow) -> ChunkView:
    return ChunkView(
        id=row.id,
        document_id=row.document_id,
        chunk_index=row.idx,
        text=row.text,
        page=row.page,
        section=row.section,
    )


def _missing(ids: list[int], field: str) -> KbprocError:
    return KbprocError(
        "resource.not_found",
        there_is_no("chunk", ids),
        field=field,
        hint="Chunk ids change with each new revision of a document: search or list again.",
        detail={"missing": ids[:100]},
    )


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
            data=[_shown(chunk) for chunk in rows],
            seq=snapshot.seq,
            count=len(rows),
            total=row.chunk_count,
            has_more=more,
            next_cursor=encode_cursor(rows[-1].id) if more else None,
        )


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
        row = snapshot.queries.chunks([params.id]).get(params.id)
        if row is None:
            raise _missing([params.id], "$.params.id")
        document = require(snapshot.queries, row.document_id)
        around = [_shown(chunk) for chunk in snapshot.queries.chunks_of(document.id)]
        at = next(i for i, chunk in enumerate(around) if chunk.id == params.id)
        data = ChunkInContext(
            chunk=around[at],
            before=around[max(0, at - params.before) : at],
            after=around[at + 1 : at + 1 + params.after],
            title=document.title,
            total_chunks=len(around),
        )
        return Reply(data=data, seq=snapshot.seq)


@method(
    "chunk.delete",
    kind="destructive",
    params=DeleteChunks,
    result=DeletedChunks,
    summary="Hide chunks from search; their documents get a new revision.",
    when_to_use="When a part of a document misleads; ingesting the changed file brings it back.",
    errors=["resource.not_found"],
    positional=["ids"],
    examples=[Example(params={"ids": [1]}, what="without a person's approval", exit=10)],
)
def delete(call: Call, params: DeleteChunks) -> Decide:
    def decide(here: Here) -> Decision:
        owners = here.queries.document_of_chunks(params.ids)
        missing = [id for id in params.ids if id not in owners]
        if missing:
            raise _missing(missing, "$.params.ids")
        rows = here.queries.documents_by_id(set(owners.values()))
        refuse_others(rows.values(), method="chunk.delete", field="$.params.ids")
        events: list[Event] = [
            ChunkDeleted(
                document_id=id,
                revision=row.revision + 1,
                ids=sorted(chunk for chunk, owner in owners.items() if owner == id),
            )
            for id, row in sorted(rows.items())
        ]
        return Decision(
            events=events,
            data=DeletedChunks(deleted=len(owners), documents=sorted(rows)),
            targets=targets_of(rows.values()),
            changes=[f"hide {plural(len(owners), 'chunk')} of {plural(len(rows), 'document')}"],
        )

    return decide
