"""cluster.leave: go on alone, with the log in the store's own folder."""

from __future__ import annotations

from kbproc.base.params import WriteParams
from kbproc.engine.store.decision import Decide
from kbproc.engine.store.pipeline import LongWrite
from kbproc.knowledge.cluster import moving
from kbproc.methods.calls.call import Call
from kbproc.methods.calls.method import Example, method
from kbproc.methods.calls.reply import Reply


class LeaveCluster(WriteParams, kw_only=True, frozen=True):
    pass


def plan(call: Call, params: LeaveCluster) -> Decide:
    return moving.foresee_leave(call.library)


@method(
    "cluster.leave",
    kind="write",
    undone_by=("cluster.join",),
    streams=True,
    scope="admin",
    params=LeaveCluster,
    result=moving.Moved,
    plan=plan,
    summary="Keep the log alone again.",
    when_to_use="To move a shared store back to one machine. The stream and its other nodes go on.",
    idempotent=True,
    elsewhere=True,
    examples=[Example(params={}, what="of a store that shares nothing")],
)
def leave(call: Call, params: LeaveCluster, write: LongWrite) -> Reply:
    moved = moving.leave(call.library)
    return Reply.ending(write.end(moved), moved.seq)
