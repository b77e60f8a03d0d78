"""note.delete: hide a note and remove its file; the log keeps its text."""

from __future__ import annotations

from kbproc.base.params import DestructiveParams
from kbproc.engine.store.decision import Decide
from kbproc.knowledge.agents.notes import note
from kbproc.knowledge.agents.notes.note import AgentSlug, DeletedNote, NoteDeletion, NoteSlug
from kbproc.methods.calls.call import Call
from kbproc.methods.calls.method import Example, method


class DeleteNote(DestructiveParams, kw_only=True, frozen=True):
    agent: AgentSlug | None = None
    slug: NoteSlug


@method(
    "note.delete",
    kind="destructive",
    undone_by=("note.put",),
    looks_first=True,
    own_scope="note:write",
    params=DeleteNote,
    result=DeletedNote,
    summary="Hide a note and remove its file; the log keeps its text.",
    when_to_use="When a note is wrong or no longer wanted. store.purge erases it for good.",
    errors=["resource.not_found"],
    positional=["slug"],
    examples=[
        Example(
            params={"agent": "gitea", "slug": "gitea-webhooks"},
            what="without a person's approval",
            exit=10,
        ),
        Example(params={"agent": "nobody", "slug": "todo"}, what="an unknown agent", exit=5),
    ],
)
def delete_note(call: Call, params: DeleteNote) -> Decide:
    agent = note.require_agent(call.store.published.roster, params.agent, call.agent)
    books = call.library.notebooks  # a dry run records no edits made by hand
    book = books.book(agent) if params.dry_run else books.ensure(agent)
    change = NoteDeletion(book, params.slug, confirmed=params.confirm is not None)
    change.prepare(dry_run=params.dry_run)
    return change
