"""status: count what the store holds and tell how far its indexes are; cheap."""

from __future__ import annotations

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from kbproc import SCHEMA_VERSION
from kbproc.base.params import ReadParams
from kbproc.engine.projections.catalog.queries import Queries
from kbproc.engine.store.folder import size_of
from kbproc.engine.store.state import Freshness
from kbproc.knowledge.watching.watch import Watch, watch_of
from kbproc.methods.calls.call import Call
from kbproc.methods.calls.method import Example, method
from kbproc.methods.calls.reply import Reply


class Status(ReadParams, kw_only=True, frozen=True):
    pass


class ModelChange(Struct, kw_only=True, frozen=True):
    """A change to another model that has not ended; the one in use answers until then.

    Of `chunks`, so many are `embedded`. `running`: in this process; otherwise a server that opens
    the store goes on with it, or model.use does. `problem`: why it does not go on.
    """

    name: str
    kind: str
    embedded: int
    chunks: int
    running: bool
    problem: str | None


class StoreStatus(Struct, kw_only=True, frozen=True):
    """`documents`: type → count. `embedding_dim` is null while no model is ready. `model_change`: a
    change to another model that has not ended. `watched`: the watched folders, if there are any.
    `in_review`: entries that wait for an approval, if there are any.
    """

    store: str
    documents: dict[str, int]
    total_documents: int
    total_chunks: int
    knowledge_bases: int
    db_size_bytes: int
    model_name: str | None
    model_state: str
    embedding_dim: int | None
    schema_version: int
    seq: int
    freshness: Freshness
    model_change: ModelChange | UnsetType = UNSET
    watched: list[Watch] | UnsetType = UNSET
    in_review: int | UnsetType = UNSET


def _size(call: Call, queries: Queries) -> int:
    """Returns the size on disk; for a caller that sees a part, the size of that part's sources."""
    if call.sight is None:
        return size_of(call.store.origin)
    return queries.source_bytes()


def _watched(call: Call, queries: Queries) -> list[Watch]:
    watches, sight = call.library.watches, call.sight
    return [
        watch_of(row, watches.progress(row))
        for row in queries.watches()
        if sight is None or sight.sees(row.kb)
    ]


def _model_change(call: Call) -> ModelChange | None:
    change = call.library.model_change
    if change is None:
        return None
    return ModelChange(
        name=change.spec.name,
        kind=change.spec.kind,
        embedded=change.embedded,
        chunks=change.chunks,
        running=change.is_running,
        problem=change.problem,
    )


def _in_review(call: Call) -> int:
    """Returns how many entries wait; an agent learns of its own alone, unless it is a reviewer."""
    sight = call.review_sight if call.agent else replace(call.review_sight, in_review=None)
    with call.store.reading_as(sight) as snapshot:
        return snapshot.queries.in_review()


@method(
    "status",
    params=Status,
    result=StoreStatus,
    summary="Count what the store holds; cheap.",
    when_to_use="To see whether there is anything to search, and whether it is all indexed.",
    scope="store:read",
    examples=[Example(params={}, what="counts and freshness")],
)
def status(call: Call, params: Status) -> Reply:
    store = call.store
    with store.reading() as snapshot:
        queries, freshness = snapshot.queries, store.freshness(snapshot)
        documents = queries.by_type()
        data = StoreStatus(
            store=str(store.origin),
            documents=documents,
            total_documents=sum(documents.values()),
            total_chunks=queries.chunk_total(),
            knowledge_bases=len(queries.kb_slugs()),
            db_size_bytes=call.host.database_size(_size(call, queries)),
            model_name=store.model.model_name,
            model_state=store.model.state,
            embedding_dim=store.model.dim,
            schema_version=SCHEMA_VERSION,
            seq=snapshot.seq,
            freshness=freshness,
            model_change=_model_change(call) or UNSET,
            watched=_watched(call, queries) or UNSET,
            in_review=_in_review(call) or UNSET,
        )
        return Reply(data=data, seq=snapshot.seq, freshness=freshness)
