"""cluster.reseed: fill a stream that has lost records from this node's log."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from kbproc.base.errors import KbprocError
from kbproc.base.params import DestructiveParams
from kbproc.engine.store.decision import Decide, Decision, DecisionState
from kbproc.engine.store.pipeline import LongWrite
from kbproc.knowledge.cluster import moving
from kbproc.methods.calls.call import Call
from kbproc.methods.calls.method import Example, method
from kbproc.methods.calls.reply import Reply


class ReseedCluster(DestructiveParams, kw_only=True, frozen=True):
    replicas: (
        Annotated[
            int,
            Meta(
                ge=1,
                le=5,
                description="how many servers keep each record of a stream that is made anew; as "
                "many as before, or 3 where there is none and three are named",
            ),
        ]
        | None
    ) = None


class Reseeded(Struct, kw_only=True, frozen=True):
    """The node's log and the stream end with this record.

    `published`: records that the stream has got; `sources`: those that the servers had lost.
    """

    stream: str
    seq: int
    hash: str
    published: int
    sources: int


def plan(call: Call, params: ReseedCluster) -> Decide:
    store = call.library.store
    if store.read_only and not params.dry_run:
        store.check_writable()
    moving.require_shared(store)
    standing = moving.standing(store)
    if standing.remedy == "follow":
        raise KbprocError(
            "resource.conflict",
            f"The stream is whole up to record {standing.sound.seq}, and this node has "
            f"{standing.log.seq} of them.",
            hint="It takes in the rest by itself: kbproc cluster status.",
        )
    stream = store.settings["log"]["stream"]

    def decide(here: DecisionState) -> Decision:
        return Decision(
            events=[],
            data=standing,
            changes=moving.reseed_changes(stream, standing),
            bound=[f"{standing}"],
            destructive=standing.remedy != "nothing",
        )

    return decide


@method(
    "cluster.reseed",
    kind="destructive",
    undone_by=(),
    whole=True,
    streams=True,
    elsewhere=True,
    idempotent=True,
    params=ReseedCluster,
    result=Reseeded,
    plan=plan,
    summary="Refill a damaged stream from this node's log.",
    when_to_use="When the stream was deleted, rolled back, cut off, forked or damaged: on the node "
    "that holds most. Other nodes go on by themselves; one that holds records which this node "
    "lacks says so. Where the stream is whole it puts back the sources that the servers have lost.",
    errors=["resource.conflict", "store.incompatible"],
    examples=[Example(params={}, what="of a store that shares nothing", exit=7)],
)
def reseed(call: Call, params: ReseedCluster, write: LongWrite) -> Reply:
    standing = write.approved.data
    total, already = standing.log.seq, standing.equal.seq if standing.remedy == "append" else 0
    sources = moving.reseed(
        call.library,
        standing,
        params.replicas,
        lambda done: call.progress("publish", done, total, "records"),
    )
    data = Reseeded(
        stream=call.library.store.settings["log"]["stream"],
        seq=standing.log.seq,
        hash=standing.log.hash,
        published=0 if standing.remedy == "nothing" else total - already,
        sources=sources,
    )
    outcome = write.end(data)
    return Reply(data=outcome.data, seq=max(outcome.seq, total))
