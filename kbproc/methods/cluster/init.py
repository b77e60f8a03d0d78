"""cluster.init: make a stream of the store's log, which other nodes can join."""

from __future__ import annotations

from kbproc.engine.store.decision import Decide
from kbproc.engine.store.pipeline import LongWrite
from kbproc.knowledge.cluster import moving
from kbproc.methods.calls.call import Call
from kbproc.methods.calls.method import Example, method
from kbproc.methods.calls.reply import Reply


class InitCluster(moving.StreamParams, kw_only=True, frozen=True):
    replicas: moving.Replicas = None


def plan(call: Call, params: InitCluster) -> Decide:
    return moving.foresee_creation(call.library, params.stream)


@method(
    "cluster.init",
    kind="write",
    undone_by=("cluster.leave",),
    streams=True,
    scope="admin",
    params=InitCluster,
    result=moving.Moved,
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
    moved = moving.found(
        call.library,
        params.settings(call.peer.cwd),
        params.replicas,
        lambda done, total: call.progress("publish", done, total, params.stream),
    )
    return Reply.ending(write.end(moved), moved.seq)
