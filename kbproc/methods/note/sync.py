"""note.sync: record what people did to the files of notes: added, changed, renamed, removed."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from kbproc.agents.notes import note
from kbproc.agents.notes.diff import Synced, sum_of
from kbproc.agents.notes.notebook import Notebook
from kbproc.agents.notes.plan import preview, removal
from kbproc.agents.notes.sync import Sync
from kbproc.base.errors import KbprocError
from kbproc.base.params import DestructiveParams
from kbproc.base.values import SLUG
from kbproc.calls.call import Call
from kbproc.calls.method import Example, method
from kbproc.calls.reply import Reply
from kbproc.calls.run import who_gives
from kbproc.store.decision import Decide, Decision
from kbproc.store.pipeline import LongWrite


class SyncNotes(DestructiveParams, kw_only=True, frozen=True):
    agent: (
        Annotated[str, Meta(pattern=SLUG, description="only this agent's notes; all if left out")]
        | None
    ) = None
    restore: Annotated[
        bool, Meta(description="write notes whose files are gone again, instead of removing them")
    ] = False


def plan(call: Call, params: SyncNotes) -> Decide:
    """More than half of an agent's notes goes only with a person's approval."""
    books = _books(call, params)
    if not _may_read(call):
        untold = Decision(events=[], data=None, changes=["sync"])
        return lambda here: untold
    asked = removal([] if params.restore else books)
    if params.dry_run:
        changes = [*asked.changes, *preview(books, restore=params.restore)]
        asked = msgspec.structs.replace(asked, changes=changes)
    elif asked.events and "admin" not in call.scopes:
        asked = _left_as_they_are(call, params)
    return lambda here: asked


def _left_as_they_are(call: Call, params: SyncNotes) -> Decision:
    """For whoever can't be given the approval. Raises auth.insufficient_scope."""
    if params.confirm is not None:
        raise KbprocError(
            "auth.insufficient_scope",
            "Removing more than half needs the scope admin.",
            field="$.params.confirm",
            hint=who_gives(call, "admin"),
            detail={"needed": "admin"},
        )
    return Decision(events=[], data=None)


@method(
    "note.sync",
    kind="write",
    streams=True,
    idempotent=True,
    params=SyncNotes,
    result=Synced,
    plan=plan,
    summary="Record what people did to the files of notes.",
    when_to_use="After editing notes by hand, if no process watches the folder; or to have it "
    "approved that more than half of the files are gone.",
    errors=["resource.not_found", "input.confirmation_required", "resource.plan_stale"],
    examples=[
        Example(params={}, what="all agents"),
        Example(params={"dry_run": True}, what="what would be recorded"),
        Example(params={"agent": "nobody"}, what="an unknown agent", exit=5),
    ],
)
def sync_notes(call: Call, params: SyncNotes, write: LongWrite) -> Reply:
    approved = write.approved.deleted
    parts = [_synced(call, book, params, approved) for book in _books(call, params)]
    outcome = write.end(sum_of(parts))
    return Reply(data=outcome.data, duplicate=outcome.duplicate or None)


def _books(call: Call, params: SyncNotes) -> list[Notebook]:
    roster = call.store.published.roster
    if params.agent is None and call.agent is None:
        agents = note.agents_seen(roster, None)
    else:
        agents = [note.require_agent(roster, params.agent, call.agent)]
    return [call.library.notebooks.book(agent) for agent in agents]


def _synced(call: Call, book: Notebook, params: SyncNotes, approved: frozenset[int]) -> Synced:
    def report(current: int, count: int, slug: str) -> None:
        if _may_read(call):
            call.progress("sync", current, count, f"{book.agent}/{slug}")

    sync = Sync(
        book,
        approved=approved,
        restore=params.restore,
        report=report,
        check=call.check_cancelled,
    )
    sync.run()
    if not _may_read(call):
        return Synced(agents=1)
    for warning in sync.result.warnings:
        call.emit("warning", {"message": warning})
    return sync.result


def _may_read(call: Call) -> bool:
    """Who may not read notes learns nothing of what was done to them."""
    return "note:read" in call.scopes
