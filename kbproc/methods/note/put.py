"""note.put: create a note or replace it, and write its file."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from kbproc.base.params import WriteParams
from kbproc.engine.store.decision import Decide
from kbproc.knowledge.agents.notes import note
from kbproc.knowledge.agents.notes.note import AgentSlug, NoteInfo, NotePut, NoteSlug
from kbproc.knowledge.agents.notes.notebook import content_of
from kbproc.methods.calls.call import Call
from kbproc.methods.calls.method import Example, method


class PutNote(WriteParams, kw_only=True, frozen=True):
    agent: AgentSlug | None = None
    slug: NoteSlug
    text: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=note.MOST_BYTES,
            description="the whole note, Markdown; at most 64 KiB of UTF-8",
        ),
    ]
    expected_revision: (
        Annotated[int, Meta(ge=1, description="fail if it has changed since")] | None
    ) = None


@method(
    "note.put",
    kind="write",
    undone_by=("note.put", "note.delete"),
    looks_first=True,
    idempotent=True,
    params=PutNote,
    result=NoteInfo,
    summary="Create a note or replace it, and write its file.",
    when_to_use="To write something down for later. An edit of the file that was not seen yet is "
    "kept as a revision of its own first; expected_revision refuses to write over it.",
    errors=["resource.not_found", "quota.exceeded", "input.too_large"],
    positional=["slug", "text"],
    examples=[
        Example(
            params={"agent": "gitea", "slug": "deploys", "text": "# Deploys\n\nOn Friday.\n"},
            what="a new note",
        ),
        Example(params={"agent": "nobody", "slug": "todo", "text": ""}, what="no text", exit=1),
    ],
)
def put_note(call: Call, params: PutNote) -> Decide:
    agent = note.require_agent(call.store.published.roster, params.agent, call.agent)
    data = note.bytes_of(params.text)
    books = call.library.notebooks  # a dry run records no edits made by hand
    book = books.book(agent) if params.dry_run else books.ensure(agent)
    change = NotePut(
        book,
        params.slug,
        data=data,
        content=content_of(call.library.intake, params.slug, data),
        expected_revision=params.expected_revision,
        folder=call.peer.cwd,
        root=call.peer.root,
    )
    change.prepare(dry_run=params.dry_run)
    return change
