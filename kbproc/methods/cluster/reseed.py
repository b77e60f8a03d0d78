"""cluster.reseed: fill a stream that has lost records from this node's log."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from kbproc.base.errors import KbprocError
from kbproc.base.params import DestructiveParams
from kbproc.calls.call import Call
from kbproc.calls.method import Example, method
from kbproc.calls.reply import Reply
from kbproc.library import cluster
from kbproc.store.decision import Decide, Decision, Here
from kbproc.store.pipeline import LongWrite


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
    cluster.check(store, shared=True)
    found = cluster.standing(store)
    if found.remedy == "follow":
        raise KbprocError(
            "resource.conflict",
            f"The stream is whole up to record {found.sound.seq}, and this node has {found.log.seq}"
            " of them.",
            hint="It takes in the rest by itself: kbproc cluster status.",
        )
    stream = store.settings["log"]["stream"]

    def decide(here: Here) -> Decision:
        return Decision(
            events=[],
            data=found,
            changes=cluster.told(stream, found),
            bound=[f"{found}"],
            destructive=found.remedy != "nothing",
        )

    return decide


@method(
    "cluster.reseed",
    kind="destructive",
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
    found = write.approved.data
    total, already = found.log.seq, found.equal.seq if found.remedy == "append" else 0
    sources = cluster.reseed(
        call.library,
        found,
        params.replicas,
        lambda done: call.progress("publish", done, total, "records"),
    )
    data = Reseeded(
        stream=call.library.store.settings["log"]["stream"],
        seq=found.log.seq,
        hash=found.log.hash,
        published=0 if found.remedy == "nothing" else total - already,
        sources=sources,
    )
    outcome = write.end(data)
    return Reply(data=outcome.data, seq=max(outcome.seq, total))
