"""events.verify: check the whole log: every record, and that each follows from the one before."""

from __future__ import annotations

from kbproc.base.params import ReadParams
from kbproc.calls.call import Call
from kbproc.calls.method import Example, method
from kbproc.calls.reply import Reply
from kbproc.history import chain
from kbproc.history.chain import Verified


class VerifyEvents(ReadParams, kw_only=True, frozen=True):
    pass


@method(
    "events.verify",
    scope="admin",
    params=VerifyEvents,
    result=Verified,
    summary="Check the whole log: every record, and that each follows from the one before.",
    when_to_use="After a crash, a copy or a doubt about the disk. Opening a store checks only "
    "what is new to its views.",
    examples=[Example(params={}, what="the whole chain")],
)
def verify(call: Call, params: VerifyEvents) -> Reply:
    found = chain.verify(call.store, call.check_cancelled)
    return Reply(data=found, seq=found.head.seq)
