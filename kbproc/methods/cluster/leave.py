"""cluster.leave: go on alone, with the log in the store's own folder."""

from __future__ import annotations

from kbproc.base.params import WriteParams
from kbproc.calls.call import Call
from kbproc.calls.method import Example, method
from kbproc.calls.reply import Reply
from kbproc.library import cluster
from kbproc.store.decision import Decide
from kbproc.store.pipeline import LongWrite


class LeaveCluster(WriteParams, kw_only=True, frozen=True):
    pass


def plan(call: Call, params: LeaveCluster) -> Decide:
    return cluster.foresee_leave(call.library)


@method(
    "cluster.leave",
    kind="write",
    streams=True,
    scope="admin",
    params=LeaveCluster,
    result=cluster.Moved,
    plan=plan,
    summary="Keep the log alone again.",
    when_to_use="To move a shared store back to one machine. The stream and its other nodes go on.",
    idempotent=True,
    elsewhere=True,
    examples=[Example(params={}, what="of a store that shares nothing")],
)
def leave(call: Call, params: LeaveCluster, write: LongWrite) -> Reply:
    moved = cluster.leave(call.library)
    return Reply.ending(write.end(moved), moved.seq)
