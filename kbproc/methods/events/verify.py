"""events.verify: check the whole log: every record, and that each follows from the one before."""

from __future__ import annotations

from kbproc.base.params import ReadParams
from kbproc.knowledge.history import chain
from kbproc.knowledge.history.chain import Verified
from kbproc.methods.calls.call import Call
from kbproc.methods.calls.method import Example, method
from kbproc.methods.calls.reply import Reply


class VerifyEvents(ReadParams, kw_only=True, frozen=True):
    pass


@method(
    "events.verify",
    scope="admin",
    params=VerifyEvents,
    result=Verified,
    summary="Check each record's hash and its link to the one before.",
    when_to_use="After a crash, a copy or a doubt about the disk. Opening a store checks only "
    "what is new to its views.",
    examples=[Example(params={}, what="the whole chain")],
)
def verify(call: Call, params: VerifyEvents) -> Reply:
    outcome = chain.verify(call.store, call.check_cancelled)
    return Reply(data=outcome, seq=outcome.head.seq)
