"""note.sync: record what people did to the files of notes: added, changed, renamed, removed."""

from __future__ import annotations

import contextlib
from typing import Annotated

import msgspec
from msgspec import Meta

from kbproc.base import paths
from kbproc.base.errors import KbprocError
from kbproc.base.params import DestructiveParams
from kbproc.base.values import SLUG
from kbproc.engine.store.decision import Decide, Decision
from kbproc.engine.store.pipeline import LongWrite
from kbproc.knowledge.agents.notes import files as notefiles
from kbproc.knowledge.agents.notes import note
from kbproc.knowledge.agents.notes.diff import Synced, sum_of
from kbproc.knowledge.agents.notes.files import NonNotes, Unavailable
from kbproc.knowledge.agents.notes.notebook import Notebook
from kbproc.knowledge.agents.notes.sync import Sync, preview, removal
from kbproc.methods.calls.call import Call
from kbproc.methods.calls.method import Example, method
from kbproc.methods.calls.reply import Reply
from kbproc.methods.calls.run import who_gives


class SyncNotes(DestructiveParams, kw_only=True, frozen=True):
    agent: (
        Annotated[str, Meta(pattern=SLUG, description="only this agent's notes; all if left out")]
        | None
    ) = None
    restore: Annotated[
        bool, Meta(description="write notes whose files are gone again, instead of removing them")
    ] = False


def plan(call: Call, params: SyncNotes) -> Decide:
    """Returns the plan; removing more than half of an agent's notes needs a person's approval."""
    books = _books(call, params)
    if not _may_read(call):
        nothing = Decision(events=[], data=None, changes=["sync"])
        return lambda here: nothing
    decision = removal([] if params.restore else books)
    if params.dry_run:
        changes = [*decision.changes, *preview(books, restore=params.restore)]
        decision = msgspec.structs.replace(decision, changes=changes)
    elif decision.events and "admin" not in call.scopes:
        decision = _without_removals(call, params)
    return lambda here: decision


def _without_removals(call: Call, params: SyncNotes) -> Decision:
    """Returns an empty decision, for a caller that can't get the approval.

    Raises auth.insufficient_scope.
    """
    if params.confirm is not None:
        raise KbprocError(
            "auth.insufficient_scope",
            "Removing more than half of the notes needs the scope admin.",
            field="$.params.confirm",
            hint=who_gives(call, "admin"),
            detail={"needed": "admin"},
        )
    return Decision(events=[], data=None)


@method(
    "note.sync",
    kind="write",
    undone_by=("note.put",),
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
    parts = [_sync(call, book, params, approved) for book in _books(call, params)]
    outcome = write.end(sum_of(parts))
    return Reply(data=outcome.data, duplicate=outcome.duplicate or None)


def _books(call: Call, params: SyncNotes) -> list[Notebook]:
    roster = call.store.published.roster
    if params.agent is None and call.agent is None:
        agents = note.agents_seen(roster, None)
    else:
        agents = [note.require_agent(roster, params.agent, call.agent)]
    return [call.library.notebooks.book(agent) for agent in agents]


def _sync(call: Call, book: Notebook, params: SyncNotes, approved: frozenset[int]) -> Synced:
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
    with contextlib.suppress(Unavailable):  # the sync itself has warned of it
        counts = notefiles.count_non_notes(book.folder)
        sync.result.in_folders = counts.in_folders
        if counts.in_folders_at_least:
            sync.result.warnings.append(_in_folders(book, counts))
    for warning in sync.result.warnings:
        call.emit("warning", {"message": warning})
    return sync.result


def _in_folders(book: Notebook, counts: NonNotes) -> str:
    count = counts.in_folders_at_least
    least = "At least " if counts.in_folders is None else ""
    lie = "Markdown file lies" if count == 1 else "Markdown files lie"
    return (
        f"{least}{count} {lie} in sub-folders of {paths.printable(book.folder)}: no "
        "notes, because notes lie in the folder itself."
    )


def _may_read(call: Call) -> bool:
    """Returns whether the caller may read notes, and so may see their changes."""
    return "note:read" in call.scopes
