"""cluster.join: follow the stream that other nodes write to."""

from __future__ import annotations

from kbproc.engine.store.decision import Decide
from kbproc.engine.store.pipeline import LongWrite
from kbproc.knowledge.cluster import moving
from kbproc.methods.calls.call import Call
from kbproc.methods.calls.method import Example, method
from kbproc.methods.calls.reply import Reply


class JoinCluster(moving.StreamParams, kw_only=True, frozen=True):
    pass


def plan(call: Call, params: JoinCluster) -> Decide:
    return moving.foresee_join(call.library, params.stream)


@method(
    "cluster.join",
    kind="write",
    undone_by=("cluster.leave",),
    streams=True,
    scope="admin",
    params=JoinCluster,
    result=moving.Moved,
    plan=plan,
    summary="Follow the log that other nodes share.",
    when_to_use="On every machine but the first, with --store naming a new folder: it takes in all "
    "that the stream holds.",
    errors=["resource.conflict", "store.incompatible"],
    positional=["servers"],
    examples=[
        Example(
            params={"servers": ["nats://127.0.0.1:4222"], "stream": "team"},
            what="of a store that holds documents",
            exit=7,
        ),
    ],
)
def join(call: Call, params: JoinCluster, write: LongWrite) -> Reply:
    moved = moving.join(call.library, params.settings(call.peer.cwd))
    return Reply.ending(write.end(moved), moved.seq)
