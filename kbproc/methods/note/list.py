"""note.list: list an agent's notes by slug."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from kbproc.base.params import PastListParams
from kbproc.base.times import instant
from kbproc.knowledge.agents.notes import note
from kbproc.knowledge.agents.notes.note import AgentSlug, NoteHead
from kbproc.knowledge.documents.selection import UpdatedAfter
from kbproc.methods.calls.call import Call
from kbproc.methods.calls.method import Example, method
from kbproc.methods.calls.reply import Page, Reply, Wait, once


class ListNotes(PastListParams, kw_only=True, frozen=True):
    agent: AgentSlug | None = None
    updated_after: UpdatedAfter | None = None
    stale: Annotated[bool, Meta(description="only notes of which a source has changed since")] = (
        False
    )


@method(
    "note.list",
    params=ListNotes,
    result=list[NoteHead],
    summary="List an agent's notes by slug.",
    when_to_use="To see what there is; with stale, what was derived from a document, a file or a "
    "commit that has changed since. To find a note by its words use note.search.",
    errors=["resource.not_found"],
    examples=[
        Example(params={"agent": "gitea"}, what="all of an agent's"),
        Example(params={"agent": "gitea", "stale": True}, what="what to compare with its source"),
        Example(params={"agent": "nobody"}, what="an unknown agent", exit=5),
        Example(params={"agent": "nobody", "limit": 0}, what="a limit out of range", exit=1),
    ],
)
def list_notes(call: Call, params: ListNotes) -> Reply | Wait:
    if params.as_of is not None:
        return _page(call, params)
    agent = note.require_agent(call.store.published.roster, params.agent, call.agent)
    return once(
        lambda: call.library.notebooks.ready(agent.slug),
        lambda: _page(call, params),
        timeout_ms=params.timeout_ms,
        expired=lambda: note.not_read_yet(agent),
    )


def _page(call: Call, params: ListNotes) -> Reply:
    page = Page(params, str)
    with call.state(params) as state, state.reading() as snapshot:
        agent = note.require_agent(state.published.roster, params.agent, call.agent)
        updated_after = params.updated_after
        since = (
            "" if updated_after is None else instant(updated_after, field="$.params.updated_after")
        )
        queries, sources = snapshot.queries, call.sources(params, snapshot.queries)
        if params.stale:
            notes = queries.notes(agent.slug, since=since)
            changed = sources.changes({row.id: row for row in notes})
            stale = [row for row in notes if row.id in changed]
            rows = [row for row in stale if str(row.source_id) > page.after][: page.read_limit]
            total = len(stale)
        else:
            rows = queries.notes(agent.slug, since=since, after=page.after, limit=page.read_limit)
            changed = sources.changes({row.id: row for row in rows})
            total = queries.notes_count(agent.slug, since=since)
        return page.reply(
            rows,
            lambda row: note.head(row, changed.get(row.id)),
            key=lambda row: str(row.source_id),
            seq=snapshot.seq,
            total=total,
            notice=call.library.notebooks.warnings(agent) if params.as_of is None else None,
        )
