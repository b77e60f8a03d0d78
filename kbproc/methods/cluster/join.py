"""cluster.join: follow the stream that other nodes write to."""

from __future__ import annotations

from msgspec import Struct

from kbproc.calls.call import Call
from kbproc.calls.method import Example, method
from kbproc.calls.reply import Reply
from kbproc.library import cluster
from kbproc.store.decision import Decide, Decision, Here
from kbproc.store.pipeline import LongWrite


class JoinCluster(cluster.Where, kw_only=True, frozen=True):
    pass


class Joined(Struct, kw_only=True, frozen=True):
    """The node's log and the stream end with this record."""

    stream: str
    seq: int
    hash: str


def plan(call: Call, params: JoinCluster) -> Decide:
    def decide(here: Here) -> Decision:
        cluster.check(call.library.store, shared=False)
        cluster.check_blank(call.library.store)
        return Decision(events=[], data=None, changes=[f"follow the stream {params.stream}"])

    return decide


@method(
    "cluster.join",
    kind="write",
    streams=True,
    scope="admin",
    params=JoinCluster,
    result=Joined,
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
    cluster.join(call.library, params.settings())
    head = call.library.store.log.head
    data = Joined(stream=params.stream, seq=head.seq, hash=head.hash)
    outcome = write.end(data)
    return Reply(data=outcome.data, seq=max(outcome.seq, head.seq))
