"""knowledge.unsupersede: undo that one entry took the place of another."""

from __future__ import annotations

from kbproc.base.errors import KbprocError
from kbproc.base.params import WriteParams
from kbproc.engine.events.entry import EntryRevived
from kbproc.engine.store.decision import Decide, Decision, DecisionState
from kbproc.knowledge.documents import entry, review
from kbproc.knowledge.documents.entry import Superseded
from kbproc.methods.calls.call import Call
from kbproc.methods.calls.method import Example, method


class Unsupersede(WriteParams, kw_only=True, frozen=True):
    old_id: entry.Replaced
    new_id: entry.Successor


@method(
    "knowledge.unsupersede",
    kind="write",
    undone_by=("knowledge.supersede", "events.revert"),
    params=Unsupersede,
    result=Superseded,
    summary="Undo that one entry took the place of another.",
    when_to_use="When the older entry was right after all: searches find it again.",
    errors=["resource.not_found", "auth.not_owner"],
    positional=["old_id", "new_id"],
    examples=[
        Example(params={"old_id": 5, "new_id": 4}, what="it holds again"),
        Example(params={"old_id": 9998, "new_id": 9999}, what="no such entries", exit=5),
    ],
)
def unsupersede(call: Call, params: Unsupersede) -> Decide:
    def decide(here: DecisionState) -> Decision:
        old, new = entry.require_both(here.queries, params.old_id, params.new_id)
        entry.check_owner(old, new, call.peer.actor, call.own_names, call.scopes)
        if old.id in new.replaces:
            return Decision(
                events=[review.replacing(new, old, is_replaced=False)],
                data=Superseded(old_id=old.id, new_id=new.id, head=old.head),
                targets=entry.targets_of([old, new]),
                changes=[f"“{old.title}” stays once “{new.title}” is approved"],
            )
        if old.superseded_by != new.id:
            by = "nothing" if old.superseded_by is None else f"entry {old.superseded_by}"
            raise KbprocError(
                "resource.conflict",
                f"Entry {old.id} is superseded by {by}, not by {new.id}.",
                field="$.params.new_id",
                hint="It holds already."
                if old.superseded_by is None
                else f"Give new_id {old.superseded_by}.",
                detail={"superseded_by": old.superseded_by},
            )
        return Decision(
            events=[EntryRevived(ids=[old.id], was=new.id)],
            data=Superseded(old_id=old.id, new_id=new.id, head=old.id),
            targets=entry.targets_of([old, new]),
            changes=[f"“{old.title}” holds again"],
        )

    return decide
