"""chunk.delete: hide chunks from search; their documents get a new revision."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from kbproc.base.params import DestructiveParams
from kbproc.base.values import ChunkId
from kbproc.base.wording import plural
from kbproc.engine.events.document import ChunkDeleted
from kbproc.engine.events.event import Event
from kbproc.engine.store.decision import Decide, Decision, DecisionState
from kbproc.knowledge.documents.document import chunks_not_found
from kbproc.knowledge.documents.lookup import refuse_others
from kbproc.knowledge.documents.revision import targets_of
from kbproc.methods.calls.call import Call
from kbproc.methods.calls.method import Example, method


class DeleteChunks(DestructiveParams, kw_only=True, frozen=True):
    ids: Annotated[list[ChunkId], Meta(min_length=1, max_length=1000, description="chunks, by id")]


class DeletedChunks(Struct, kw_only=True, frozen=True):
    deleted: int
    documents: list[int]


@method(
    "chunk.delete",
    kind="destructive",
    undone_by=("doc.restore", "events.revert"),
    params=DeleteChunks,
    result=DeletedChunks,
    summary="Hide chunks from search.",
    when_to_use="When a part of a document misleads; ingesting the changed file brings it back.",
    errors=["resource.not_found"],
    positional=["ids"],
    examples=[Example(params={"ids": [1]}, what="without a person's approval", exit=10)],
)
def delete(call: Call, params: DeleteChunks) -> Decide:
    def decide(here: DecisionState) -> Decision:
        chunks = here.queries.chunks(params.ids)
        owners = {id: row.document_id for id, row in chunks.items()}
        missing = [id for id in params.ids if id not in owners]
        if missing:
            raise chunks_not_found(missing, "$.params.ids")
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
