"""note.search: search an agent's notes, one hit a note."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType

from kbproc.base.layout import HitLayout, Hits
from kbproc.base.params import BudgetTokens, PastParams
from kbproc.base.values import Share, Tags
from kbproc.base.wording import source_changes_in_words
from kbproc.engine.events.origin import Origin
from kbproc.engine.projections.catalog.reader import NOTES
from kbproc.engine.projections.catalog.rows import DocumentRow
from kbproc.knowledge.agents.notes import note
from kbproc.knowledge.agents.notes.note import AgentSlug
from kbproc.knowledge.documents.document import SourceChange
from kbproc.knowledge.documents.trust import MinTrust
from kbproc.knowledge.search.hits import Hit, title_of
from kbproc.knowledge.search.params import (
    Fusion,
    MinScore,
    Mode,
    Only,
    QueryText,
    Search,
    SnippetChars,
)
from kbproc.knowledge.search.search import run as run_search
from kbproc.methods.calls.call import Call
from kbproc.methods.calls.method import Example, method
from kbproc.methods.calls.reply import Reply, Wait, fitting, once


class SearchNotes(PastParams, kw_only=True, frozen=True):
    agent: AgentSlug | None = None
    query: QueryText
    limit: Annotated[int, Meta(ge=1, le=100, description="most notes to return")] = 5
    mode: Mode = "hybrid"
    fusion: Fusion = "blend"
    min_score: MinScore | None = None
    tags: Tags | None = None
    min_trust: MinTrust | None = None
    only: Only | None = None
    snippet_chars: SnippetChars = 240
    budget_tokens: BudgetTokens | None = None


class NoteHit(Struct, kw_only=True, frozen=True):
    """The best passage of a note. `highlights`: character offsets into `snippet`.

    `dated`: the day of `updated_at`, and how long ago that was. `source_changed`: what the note
    was derived from and what has changed since.
    """

    id: int
    slug: str
    title: str
    score: Share
    snippet: str
    highlights: list[tuple[int, int]]
    section: str | None
    updated_at: str
    dated: str | UnsetType = UNSET
    origin: Origin = "agent"
    source_changed: list[SourceChange] | UnsetType = UNSET


def as_hits(hits: list[dict[str, Any]], params: dict[str, Any]) -> Hits:
    return Hits(
        hits=[
            HitLayout(
                score=hit["score"],
                title=title_of(hit),
                labels=f" ({', '.join(_labels(hit))})",
                snippet=hit["snippet"],
                highlights=hit["highlights"],
            )
            for hit in hits
        ]
    )


def _labels(hit: dict[str, Any]) -> list[str]:
    changed = source_changes_in_words(hit.get("source_changed", []))
    return [hit["slug"], hit["dated"], *([changed] if changed else [])]


@method(
    "note.search",
    params=SearchNotes,
    result=list[NoteHit],
    layout=as_hits,
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
        return _search(call, params)
    agent = note.require_agent(call.store.published.roster, params.agent, call.agent)
    return once(
        lambda: call.library.notebooks.ready(agent.slug),
        lambda: _search(call, params),
        timeout_ms=params.timeout_ms,
        expired=lambda: note.not_read_yet(agent),
    )


def _search(call: Call, params: SearchNotes) -> Reply:
    request = Search(
        query=params.query,
        limit=params.limit,
        mode=params.mode,
        fusion=params.fusion,
        min_score=params.min_score,
        tags=params.tags,
        min_trust=params.min_trust,
        only=params.only,
        snippet_chars=params.snippet_chars,
        per_document=1,
    )
    with call.state(params) as state:
        agent = note.require_agent(state.published.roster, params.agent, call.agent)
        answer = run_search(
            state,
            request,
            now=call.moment(params),
            kbs=[NOTES + agent.slug],
            sources=partial(call.sources, params),
        )
        with state.reading() as snapshot:
            ids = [hit.source.document_id for hit in answer.results.results]
            rows = snapshot.queries.documents_by_id(ids)
            has_notes = bool(ids) or snapshot.queries.notes_count(agent.slug)
    hits = [
        _hit(hit, row)
        for hit in answer.results.results
        if (row := rows.get(hit.source.document_id)) is not None
    ]
    count = fitting(params, params.budget_tokens, hits)
    warnings = call.library.notebooks.warnings(agent) if params.as_of is None else None
    empty = f"{agent.slug} has no notes yet: note.put writes one."
    return Reply(
        data=hits[:count],
        seq=answer.freshness.seq,
        count=count,
        has_more=answer.has_more or count < len(hits),
        hint=answer.hint if has_notes else empty,
        notice=[*answer.notice, *(warnings or [])] or None,
        freshness=answer.freshness,
    )


def _hit(hit: Hit, row: DocumentRow) -> NoteHit:
    return NoteHit(
        id=row.id,
        slug=str(row.source_id),
        title=hit.source.title,
        score=hit.score,
        snippet=hit.snippet,
        highlights=hit.highlights,
        section=hit.source.section,
        updated_at=row.updated_at,
        dated=hit.source.dated,
        origin=row.origin,
        source_changed=hit.source_changed,
    )
