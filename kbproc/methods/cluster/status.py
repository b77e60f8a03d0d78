"""cluster.status: tell where the log is and how far this node has come."""

from __future__ import annotations

from msgspec import Struct

from kbproc.base.params import ReadParams
from kbproc.methods.calls.call import Call
from kbproc.methods.calls.method import Example, method
from kbproc.methods.calls.reply import Reply


class ClusterStatus(ReadParams, kw_only=True, frozen=True):
    pass


class NodeStatus(Struct, kw_only=True, frozen=True):
    """`seq` and `hash`: of the last record that this node has; `stream_seq`: that it knows of.

    `connected`: it can write; else `problem` says why not. `workers`: that embed for the nodes;
    `dead_jobs`: what they have failed at lately, `dead_why` the last time.
    """

    shared: bool
    stream: str | None
    servers: list[str]
    seq: int
    hash: str
    stream_seq: int
    connected: bool
    problem: str | None
    workers: int
    dead_jobs: int
    dead_why: str | None


@method(
    "cluster.status",
    params=ClusterStatus,
    result=NodeStatus,
    scope="admin",
    summary="Tell how far this node is.",
    when_to_use="To compare nodes: those with equal seq and hash hold the same records.",
    examples=[Example(params={}, what="of a store that shares nothing")],
)
def status(call: Call, params: ClusterStatus) -> Reply:
    return Reply(data=NodeStatus(**call.library.node.status()))
