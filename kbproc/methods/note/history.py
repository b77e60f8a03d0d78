"""note.history: list what happened to a note, newest first."""

from __future__ import annotations

from kbproc.base.params import PastListParams
from kbproc.engine.projections.catalog.reader import NOTES
from kbproc.knowledge.agents.notes import note as notes
from kbproc.knowledge.agents.notes.note import AgentSlug, NoteSlug
from kbproc.knowledge.documents.lookup import newest_deleted
from kbproc.knowledge.history.revisions import DocumentRevision
from kbproc.knowledge.history.timeline import PastRecords, Timeline
from kbproc.methods.calls.call import Call
from kbproc.methods.calls.method import Example, method
from kbproc.methods.calls.reply import Reply, Wait, history_reply, once


class HistoryOfNote(PastListParams, kw_only=True, frozen=True):
    agent: AgentSlug | None = None
    slug: NoteSlug


@method(
    "note.history",
    params=HistoryOfNote,
    result=list[DocumentRevision],
    layout=("seq", "ts", "actor", "action", "revision", "summary"),
    summary="List what happened to a note, newest first.",
    when_to_use="To see who changed or renamed a note, when and how; the actor file is whoever "
    "edits by hand. A deleted note has a history, too.",
    errors=["resource.not_found"],
    positional=["slug"],
    examples=[
        Example(
            params={"agent": "gitea", "slug": "gitea-webhooks"},
            what="everything that happened to a note",
        ),
        Example(params={"agent": "nobody", "slug": "todo"}, what="an unknown agent", exit=5),
    ],
)
def history(call: Call, params: HistoryOfNote) -> Reply | Wait:
    if params.as_of is not None:
        return _history(call, params)
    agent = notes.require_agent(call.store.published.roster, params.agent, call.agent)
    return once(
        lambda: call.library.notebooks.ready(agent.slug),
        lambda: _history(call, params),
        timeout_ms=params.timeout_ms,
        expired=lambda: notes.not_read_yet(agent),
    )


def _history(call: Call, params: HistoryOfNote) -> Reply:
    with call.state(params) as state, state.reading() as snapshot:
        agent = notes.require_agent(state.published.roster, params.agent, call.agent)
        row = snapshot.queries.note(agent.slug, params.slug)
        row = row or newest_deleted(snapshot.queries, NOTES + agent.slug, params.slug)
        row = row or notes.require_note(snapshot.queries, agent.slug, params.slug)
        records = PastRecords(call.store.log, snapshot.seq)
        timeline = Timeline(records, row.id, snapshot.queries.events_of_document(row.id))
        return history_reply(params, timeline, seq=snapshot.seq)
