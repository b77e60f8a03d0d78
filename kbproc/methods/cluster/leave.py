"""cluster.leave: go on alone, with the log in the store's own folder."""

from __future__ import annotations

from msgspec import Struct

from kbproc.base.params import WriteParams
from kbproc.calls.call import Call
from kbproc.calls.method import Example, method
from kbproc.calls.reply import Reply
from kbproc.library import cluster
from kbproc.store.decision import Decide, Decision, Here
from kbproc.store.pipeline import LongWrite


class LeaveCluster(WriteParams, kw_only=True, frozen=True):
    pass


class Left(Struct, kw_only=True, frozen=True):
    """The last record that this store has in common with the stream."""

    seq: int
    hash: str


def plan(call: Call, params: LeaveCluster) -> Decide:
    def decide(here: Here) -> Decision:
        told = "go on alone: what other nodes write from now on does not come here"
        shared = call.library.store.log.is_shared
        return Decision(events=[], data=None, changes=[told] if shared else [])

    return decide


@method(
    "cluster.leave",
    kind="write",
    streams=True,
    scope="admin",
    params=LeaveCluster,
    result=Left,
    plan=plan,
    summary="Keep the log alone again.",
    when_to_use="To move a shared store back to one machine. The stream and its other nodes go on.",
    idempotent=True,
    elsewhere=True,
    examples=[Example(params={}, what="of a store that shares nothing")],
)
def leave(call: Call, params: LeaveCluster, write: LongWrite) -> Reply:
    head = cluster.leave(call.library)
    outcome = write.end(Left(seq=head.seq, hash=head.hash))
    return Reply(data=outcome.data, seq=max(outcome.seq, head.seq))
