"""knowledge.supersede: let one entry take the place of another."""

from __future__ import annotations

from kbproc.base.params import WriteParams
from kbproc.engine.events.entry import EntrySuperseded
from kbproc.engine.store.decision import Decide, Decision, DecisionState
from kbproc.knowledge.documents import entry, review
from kbproc.knowledge.documents.entry import Superseded
from kbproc.methods.calls.call import Call
from kbproc.methods.calls.method import Example, method


class Supersede(WriteParams, kw_only=True, frozen=True):
    old_id: entry.Replaced
    new_id: entry.Successor


@method(
    "knowledge.supersede",
    kind="write",
    undone_by=("knowledge.unsupersede", "events.revert"),
    idempotent=True,
    params=Supersede,
    result=Superseded,
    summary="Let one entry take the place of another.",
    when_to_use="When an entry is outdated or wrong and a newer one says it right: searches find "
    "only the newer one from then on. One of the two must be yours. A newer one in review takes "
    "the place once it is approved.",
    errors=["resource.not_found", "knowledge.cycle", "auth.not_owner"],
    positional=["old_id", "new_id"],
    examples=[
        Example(params={"old_id": 3, "new_id": 4}, what="the newer one holds"),
        Example(params={"old_id": 9998, "new_id": 9999}, what="no such entries", exit=5),
    ],
)
def supersede(call: Call, params: Supersede) -> Decide:
    def decide(here: DecisionState) -> Decision:
        old, new = entry.require_both(here.queries, params.old_id, params.new_id)
        data = Superseded(old_id=old.id, new_id=new.id, head=new.head)
        if old.superseded_by == new.id:
            return Decision(events=[], data=data)
        entry.check_owner(old, new, call.peer.actor, call.own_names, call.scopes)
        entry.check_link(here.queries, old, new)
        review.refuse_in_review([old], field="$.params.old_id")
        if new.in_review:
            waiting = Superseded(old_id=old.id, new_id=new.id, head=old.head, in_review=True)
            return Decision(
                events=[review.replacing(new, old, is_replaced=True)],
                data=waiting,
                targets=entry.targets_of([old, new]),
                changes=[f"“{new.title}” takes the place of “{old.title}” once it is approved"],
            )
        return Decision(
            events=[EntrySuperseded(id=old.id, by=new.id)],
            data=data,
            targets=entry.targets_of([old, new]),
            changes=[f"“{new.title}” takes the place of “{old.title}”"],
        )

    return decide
