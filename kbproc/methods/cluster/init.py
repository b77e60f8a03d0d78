"""cluster.init: make a stream of the store's log, which other nodes can join."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from kbproc.base.wording import plural
from kbproc.calls.call import Call
from kbproc.calls.method import Example, method
from kbproc.calls.reply import Reply
from kbproc.library import cluster
from kbproc.store.decision import Decide, Decision, Here
from kbproc.store.pipeline import LongWrite


class InitCluster(cluster.Where, kw_only=True, frozen=True):
    replicas: Annotated[
        int, Meta(ge=1, le=5, description="how many servers keep each record; 3 where there are")
    ] = 1


class Founded(Struct, kw_only=True, frozen=True):
    """The node's log and the stream end with this record."""

    stream: str
    seq: int
    hash: str


def plan(call: Call, params: InitCluster) -> Decide:
    def decide(here: Here) -> Decision:
        cluster.check(call.library.store, shared=False)
        return Decision(
            events=[],
            data=None,
            changes=[f"publish {plural(here.head.seq, 'record')} as the stream {params.stream}"],
        )

    return decide


@method(
    "cluster.init",
    kind="write",
    streams=True,
    scope="admin",
    params=InitCluster,
    result=Founded,
    plan=plan,
    summary="Share the store's log with other nodes.",
    when_to_use="To share a store among several machines: the first node. The servers are yours: "
    "NATS 2.12.1 or later, with JetStream and sync_interval: always.",
    errors=["resource.conflict", "store.incompatible"],
    positional=["servers"],
    examples=[
        Example(
            params={"servers": ["nats://127.0.0.1:4222"], "stream": "team", "dry_run": True},
            what="only the plan",
        ),
    ],
)
def init(call: Call, params: InitCluster, write: LongWrite) -> Reply:
    total = call.store.published.seq
    cluster.found(
        call.library,
        params.settings(),
        params.replicas,
        lambda done: call.progress("publish", done, max(total, done), params.stream),
    )
    head = call.library.store.log.head
    data = Founded(stream=params.stream, seq=head.seq, hash=head.hash)
    outcome = write.end(data)
    return Reply(data=outcome.data, seq=max(outcome.seq, head.seq))
