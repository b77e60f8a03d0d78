"""index.rebuild: rebuild every view from the log and swap it in."""

from __future__ import annotations

from msgspec import Struct

from kbproc.base.params import WriteParams
from kbproc.engine.store.decision import Decide, Decision
from kbproc.engine.store.pipeline import LongWrite
from kbproc.methods.calls.call import Call
from kbproc.methods.calls.method import Example, method
from kbproc.methods.calls.reply import Reply


class Rebuild(WriteParams, kw_only=True, frozen=True):
    pass


class Rebuilt(Struct, kw_only=True, frozen=True):
    seq: int
    documents: int
    chunks: int


def plan(call: Call, params: Rebuild) -> Decide:
    change = "rebuild the catalog, the full-text index and the vector index"
    return lambda here: Decision(events=[], data=None, changes=[change])


@method(
    "index.rebuild",
    kind="write",
    undone_by=(),
    streams=True,
    scope="admin",
    idempotent=True,
    params=Rebuild,
    result=Rebuilt,
    plan=plan,
    summary="Rebuild every view from the log and swap it in.",
    when_to_use="When doctor says that a view disagrees with the log. Reads go on meanwhile; "
    "nothing is embedded again.",
    examples=[Example(params={}, what="all views")],
)
def rebuild(call: Call, params: Rebuild, write: LongWrite) -> Reply:
    store = call.store
    stages = ("catalog", "fulltext", "vectors")

    def tell(stage: str) -> None:
        call.progress("rebuild", stages.index(stage), len(stages), stage, last=True)

    call.library.rebuild(tell)
    with store.reading() as snapshot:
        data = Rebuilt(
            seq=snapshot.seq,
            documents=sum(snapshot.queries.by_type().values()),
            chunks=snapshot.queries.chunk_total(),
        )
    outcome = write.end(data)
    return Reply(data=outcome.data, seq=max(outcome.seq, data.seq))
