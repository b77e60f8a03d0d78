"""Finds turns of the store's own sessions, a question with its answer each, by their words.

A turn is scored as it is visible to the caller, from the catalog: it is in no index, so that no
hidden word finds it, and what is deleted, withdrawn or purged is gone at once. Its BM25 takes the
rarity of words from the full-text index of documents, and is a share of the greatest that any text
could reach. So its score compares with theirs, and no session changes a score of theirs. It has no
vector, which counts as a pending one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import fsum
from typing import Any

from msgspec import UNSET, Struct, UnsetType

from kbproc.base.layout import HitLayout
from kbproc.base.text.analysis import analyse
from kbproc.base.text.forms import Term
from kbproc.base.text.query import Query, parse_query
from kbproc.base.text.snippet import BEST_CHARS, beginnings, counts, snippet
from kbproc.base.text.stems import stems
from kbproc.base.times import dated
from kbproc.base.values import Share
from kbproc.engine.projections.catalog.filters import SessionFilter
from kbproc.engine.projections.catalog.rows import TurnRow
from kbproc.engine.store.snapshot import Snapshot
from kbproc.engine.store.state import State
from kbproc.knowledge.search.fusion import FULLTEXT_WEIGHT, PLACES
from kbproc.knowledge.search.probability import (
    LEAST_SCORE,
    NOTHING,
    Confidence,
    Evidence,
    QueryWords,
)
from kbproc.knowledge.search.times import ELSEWHEN, Period, period

_MIDDLING_WORDS = 140  # a constant, so that a turn's score does not depend on other turns


class TurnHit(Struct, kw_only=True, frozen=True):
    """A turn of a session. `turn` counts from 1. `highlights`: character offsets into `snippet`.

    `asked_at` is its time; `cite`: a citation of session, turn and time; `dated`: the day of
    `asked_at`, and how long ago that was.
    """

    session_id: int
    message_id: int
    turn: int
    title: str
    score: Share
    snippet: str
    highlights: list[tuple[int, int]]
    agent: str | None
    asked_at: str
    asked_by: str
    cite: str
    dated: str | UnsetType = UNSET


class TurnSearch(Struct, kw_only=True, frozen=True):
    """A search for turns. `is_hybrid`: scores are those of mode hybrid, else those of mode fts.

    `now`: the moment from which words such as "yesterday" count.
    """

    query: str
    filter: SessionFilter
    now: str
    is_hybrid: bool = False
    limit: int = 10
    offset: int = 0
    min_score: float | None = None
    snippet_chars: int = 240
    highlight: bool = True


class TurnAnswer(Struct, kw_only=True, frozen=True):
    """A page of turns. `confidence`: that of the best turn. `hint`: why there is none."""

    hits: list[TurnHit]
    total: int
    confidence: Confidence
    has_more: bool
    hint: str | None
    seq: int


class _Word(Struct, frozen=True):
    """A word of a query: its stem, and the score that it adds, relative to other words.

    `most`: what it adds to the greatest score.
    """

    stem: str
    worth: float
    most: float


class _Scored(Struct, frozen=True):
    score: float
    share: float
    row: TurnRow


def run(state: State, search: TurnSearch) -> TurnAnswer:
    """Returns the best visible turns."""
    when = period(search.query, search.now)
    query = parse_query(when.timeless(search.query) if when else search.query)
    with state.searching() as snapshot:
        rows = (
            [] if query.reason else snapshot.queries.turns(search.filter, beginnings(query.terms))
        )
        scored = sorted(_scored(snapshot, query, search, when, rows), key=lambda one: -one.score)
        best = _evidence(snapshot, query, scored)
        seq = snapshot.seq
    end = search.offset + search.limit
    return TurnAnswer(
        hits=[_hit(one, query, search) for one in scored[search.offset : end]],
        total=len(scored),
        confidence=best.level,
        has_more=len(scored) > end,
        hint=None if scored else query.reason or "No question or answer contains these words.",
        seq=seq,
    )


def _evidence(snapshot: Snapshot, query: Query, scored: Sequence[_Scored]) -> Evidence:
    """Returns the evidence for the turn that holds most of the query."""
    if not scored:
        return NOTHING
    row = max(scored, key=lambda one: one.share).row
    text = _text(row)
    best = snippet(text, query.marked, BEST_CHARS).best
    passage = text[slice(*best)] if best else ""
    return QueryWords(snapshot.fulltext, query).evidence(row.title or "", text, passage)


def _scored(
    snapshot: Snapshot,
    query: Query,
    search: TurnSearch,
    when: Period | None,
    rows: Sequence[TurnRow],
) -> Iterator[_Scored]:
    """Yields the turns that match, in the order of `rows`."""
    words = list(_words(snapshot, query))
    greatest = fsum(word.most for word in words)
    least = max(LEAST_SCORE, search.min_score or 0.0)
    for row in rows:
        text = _text(row)
        share = _bm25(snapshot, text, query, words) / greatest if _has_phrases(text, query) else 0.0
        weight = (FULLTEXT_WEIGHT if search.is_hybrid else 1.0) * _factor(row, when)
        score = round(share * weight, PLACES)
        if share and score >= least:
            yield _Scored(score, round(share, PLACES), row)


def _words(snapshot: Snapshot, query: Query) -> Iterator[_Word]:
    lookups = query.looked_up()
    for (_, boost, most), stem in zip(lookups, stems([word for word, *_ in lookups]), strict=True):
        idf = snapshot.fulltext.clauses.idf(Term("stem", stem, boost, most))
        yield _Word(stem, boost * idf, most * idf)


def _bm25(snapshot: Snapshot, text: str, query: Query, words: Sequence[_Word]) -> float:
    present = counts(text, query.terms)
    if not present:
        return 0.0
    length = len(text.split()) / _MIDDLING_WORDS
    shares = (
        word.worth * snapshot.fulltext.share_of_most(present[word.stem], length)
        for word in words
        if word.stem in present
    )
    return fsum(shares)


def _has_phrases(text: str, query: Query) -> bool:
    """Returns whether a text holds every phrase and nothing that is excluded."""
    if not (query.phrases or query.excluded):
        return True
    analysed = f" {analyse(text)} "
    required = (f" {' '.join(phrase)} " in analysed for phrase in query.phrases)
    excluded = (f" {' '.join(words)} " in analysed for words in query.excluded)
    return all(required) and not any(excluded)


def _factor(row: TurnRow, when: Period | None) -> float:
    return 1.0 if when is None or when.holds(row.asked_at) else ELSEWHEN


def _text(row: TurnRow) -> str:
    return f"{row.question}\n{row.text}"


def _hit(one: _Scored, query: Query, search: TurnSearch) -> TurnHit:
    row = one.row
    excerpt = snippet(_text(row), query.marked, search.snippet_chars)
    title = row.title or f"Session {row.session_id}"
    place = f"{row.asked_at[:10]} > turn {row.number}, {row.asked_at[11:16]}"
    return TurnHit(
        session_id=row.session_id,
        message_id=row.id,
        turn=row.number,
        title=title,
        score=one.score,
        snippet=excerpt.text,
        highlights=excerpt.highlights if search.highlight else [],
        agent=row.agent,
        asked_at=row.asked_at,
        asked_by=row.asked_by,
        cite=f"{title}, § {place}",
        dated=dated(row.asked_at, search.now),
    )


def turn_layout(hit: dict[str, Any]) -> HitLayout:
    """Returns a turn for people."""
    return HitLayout(
        score=hit["score"],
        title=hit["cite"],
        labels=f" [session] of {hit['agent']}" if hit["agent"] else " [session]",
        snippet=hit["snippet"],
        highlights=hit["highlights"],
        where=f"session {hit['session_id']}, message {hit['message_id']}, {hit['dated']}",
    )
