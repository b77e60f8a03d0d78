"""knowledge.delete: hide knowledge entries from every read; the log keeps their text."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from kbproc.base.params import DestructiveParams
from kbproc.engine.events.document import DocDeleted
from kbproc.engine.events.event import Event
from kbproc.engine.store.decision import Decide, Decision, DecisionState
from kbproc.knowledge.documents import entry, revision
from kbproc.knowledge.documents.entry import EntryId
from kbproc.methods.calls.call import Call
from kbproc.methods.calls.method import Example, method


class DeleteEntries(DestructiveParams, kw_only=True, frozen=True):
    ids: Annotated[list[EntryId], Meta(min_length=1, max_length=1000, description="entries, by id")]


class DeletedEntries(Struct, kw_only=True, frozen=True):
    """`revived`: entries that hold again, as the one that superseded them is gone."""

    deleted: int
    ids: list[int]
    revived: list[int]


@method(
    "knowledge.delete",
    kind="destructive",
    undone_by=("events.revert",),
    own_scope="knowledge:write",
    params=DeleteEntries,
    result=DeletedEntries,
    summary="Hide knowledge entries from reads; the log keeps their text.",
    when_to_use="When entries should never have been stored; what is merely outdated is better "
    "superseded. What a deleted entry had superseded directly holds again.",
    errors=["resource.not_found", "auth.not_owner"],
    positional=["ids"],
    examples=[
        Example(params={"ids": [3], "dry_run": True}, what="only the plan"),
        Example(params={"ids": [9_999_999]}, what="one that does not exist", exit=5),
    ],
)
def delete(call: Call, params: DeleteEntries) -> Decide:
    def decide(here: DecisionState) -> Decision:
        rows = entry.require_all(here.queries, params.ids, field="$.params.ids")
        if "admin" not in call.scopes:
            entry.check_own(rows, call.peer.actor, call.own_names)
        chains = entry.chains_without(here.queries, rows)
        changes = entry.describe_changes(here.queries, chains)
        hidden: list[Event] = [DocDeleted(id=row.id) for row in rows]
        revived = [id for id in chains.changed if chains.successor_of(id) is None]
        per_kb = {row.kb: sum(other.kb == row.kb for other in rows) for row in rows}
        return Decision(
            events=[*chains.events(), *hidden],
            data=DeletedEntries(
                deleted=len(rows), ids=[row.id for row in rows], revived=revived[:1000]
            ),
            targets=entry.targets_of(rows),
            changes=[*(f"hide entry {row.id} “{row.title}”" for row in rows), *changes],
            bound=changes,  # because a new link changes what the deletion does
            bulk=any(revision.is_bulk(here, kb, count) for kb, count in per_kb.items()),
        )

    return decide
