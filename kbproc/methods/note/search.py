"""note.search: search an agent's notes, one hit a note."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct

from kbproc.agents.notes import note
from kbproc.agents.notes.note import AgentSlug
from kbproc.base.layout import Hit, Hits
from kbproc.base.params import BudgetTokens, PastParams
from kbproc.base.values import Share
from kbproc.calls.call import Call
from kbproc.calls.lean import fitting
from kbproc.calls.method import Example, method
from kbproc.calls.reply import Reply, Wait, once
from kbproc.search.layout import title_of
from kbproc.search.params import Fusion, MinScore, Mode, QueryText, Search, SnippetChars
from kbproc.search.search import run as run_search
from kbproc.views.catalog.reader import NOTES


class SearchNotes(PastParams, kw_only=True, frozen=True):
    agent: AgentSlug | None = None
    query: QueryText
    limit: Annotated[int, Meta(ge=1, le=100, description="most notes to return")] = 5
    mode: Mode = "hybrid"
    fusion: Fusion = "blend"
    min_score: MinScore | None = None
    snippet_chars: SnippetChars = 240
    budget_tokens: BudgetTokens | None = None


class NoteHit(Struct, kw_only=True, frozen=True):
    """The best passage of a note. `highlights`: character offsets into `snippet`."""

    id: int
    slug: str
    title: str
    score: Share
    snippet: str
    highlights: list[tuple[int, int]]
    section: str | None
    updated_at: str


def as_hits(hits: list[dict[str, Any]], params: dict[str, Any]) -> Hits:
    return Hits(
        hits=[
            Hit(
                score=hit["score"],
                title=title_of(hit),
                labels=f" ({hit['slug']})",
                snippet=hit["snippet"],
            )
            for hit in hits
        ]
    )


@method(
    "note.search",
    params=SearchNotes,
    result=list[NoteHit],
    shown=as_hits,
    summary="Search an agent's notes, one hit a note.",
    when_to_use="To recall what was written down before; scores are absolute, as those of search.",
    errors=["resource.not_found", "model.unavailable"],
    positional=["query"],
    examples=[
        Example(params={"agent": "gitea", "query": "deploy hooks"}, what="an agent's notes"),
        Example(params={"agent": "nobody", "query": "x"}, what="an unknown agent", exit=5),
        Example(params={"query": "deploy hooks"}, what="no agent said, none bound", exit=1),
    ],
)
def search_notes(call: Call, params: SearchNotes) -> Reply | Wait:
    if params.as_of is not None:
        return _searched(call, params)
    agent = note.require_agent(call.store.published.roster, params.agent, call.agent)
    return once(
        lambda: call.library.notebooks.ready(agent.slug),
        lambda: _searched(call, params),
        timeout_ms=params.timeout_ms,
        expired=lambda: note.not_read_yet(agent),
    )


def _searched(call: Call, params: SearchNotes) -> Reply:
    asked = Search(
        query=params.query,
        limit=params.limit,
        mode=params.mode,
        fusion=params.fusion,
        min_score=params.min_score,
        snippet_chars=params.snippet_chars,
        per_document=1,
    )
    with call.state(params) as state:
        agent = note.require_agent(state.published.roster, params.agent, call.agent)
        found = run_search(state, asked, now=call.moment(params), kbs=[NOTES + agent.slug])
        with state.reading() as snapshot:
            ids = [hit.source.document_id for hit in found.results.results]
            rows = snapshot.queries.documents_by_id(ids)
            some = bool(ids) or snapshot.queries.notes_count(agent.slug)
    hits = [
        NoteHit(
            id=row.id,
            slug=str(row.source_id),
            title=hit.source.title,
            score=hit.score,
            snippet=hit.snippet,
            highlights=hit.highlights,
            section=hit.source.section,
            updated_at=row.updated_at,
        )
        for hit in found.results.results
        if (row := rows.get(hit.source.document_id)) is not None
    ]
    count = fitting(params, params.budget_tokens, hits)
    warnings = call.library.notebooks.warnings(agent) if params.as_of is None else None
    empty = f"{agent.slug} has no notes yet: note.put writes one."
    return Reply(
        data=hits[:count],
        seq=found.freshness.seq,
        count=count,
        has_more=found.has_more or count < len(hits),
        hint=found.hint if some else empty,
        notice=[*found.notice, *(warnings or [])] or None,
        freshness=found.freshness,
    )
