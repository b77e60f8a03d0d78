"""note.get: show one note with its whole text."""

from __future__ import annotations

import msgspec

from kbproc.base.params import BudgetTokens, PastParams, TextOffset
from kbproc.knowledge.agents.notes import note as notes
from kbproc.knowledge.agents.notes.note import AgentSlug, Note, NoteSlug
from kbproc.methods.calls.call import Call
from kbproc.methods.calls.method import Example, method
from kbproc.methods.calls.reply import Reply, Wait, cut, once


class GetNote(PastParams, kw_only=True, frozen=True):
    agent: AgentSlug | None = None
    slug: NoteSlug
    offset: TextOffset = 0
    budget_tokens: BudgetTokens | None = None


@method(
    "note.get",
    params=GetNote,
    result=Note,
    summary="Show one note with its whole text.",
    when_to_use="To read a note that a search or a list has named; its revision guards a put.",
    errors=["resource.not_found"],
    positional=["slug"],
    examples=[
        Example(params={"agent": "gitea", "slug": "gitea-webhooks"}, what="one with its text"),
        Example(params={"agent": "nobody", "slug": "todo"}, what="an unknown agent", exit=5),
        Example(params={"slug": "To Do"}, what="no slug", exit=1),
    ],
)
def get_note(call: Call, params: GetNote) -> Reply | Wait:
    if params.as_of is not None:
        return _note(call, params)
    agent = notes.require_agent(call.store.published.roster, params.agent, call.agent)
    return once(
        lambda: call.library.notebooks.ready(agent.slug),
        lambda: _note(call, params),
        timeout_ms=params.timeout_ms,
        expired=lambda: notes.not_read_yet(agent),
    )


def _note(call: Call, params: GetNote) -> Reply:
    with call.state(params) as state, state.reading() as snapshot:
        agent = notes.require_agent(state.published.roster, params.agent, call.agent)
        row = notes.require_note(snapshot.queries, agent.slug, params.slug)
        data = call.store.blobs.get(row.sha256)
        changed = call.sources(params, snapshot.queries).changes({row.id: row})
        note = notes.note_of(row, agent.slug, data, changed.get(row.id))
        warnings = call.library.notebooks.warnings(agent) if params.as_of is None else None
        part = cut(note.text[params.offset :], params.budget_tokens)
        more = True if params.offset + len(part) < len(note.text) else None
        note = msgspec.structs.replace(note, text=part)
        return Reply(data=note, seq=snapshot.seq, has_more=more, notice=warnings)
