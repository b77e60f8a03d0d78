"""Chooses the standing instructions of conversations that bear on a query.

One bears on it if both are about the same: by words, or because one of the best hits holds it. One
that names its condition ("when I ask about dates") bears on it by the words of the condition. What
is about every answer, such as its language, always bears. Of two about the same thing the later
holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from kbproc.base.text.likeness import likeness
from kbproc.base.text.standing import (
    asked_subjects,
    asks_for_all,
    condition_of,
    is_general,
    replaced_subjects,
    subjects,
    topics,
)
from kbproc.engine.projections.catalog.filters import DocumentFilter
from kbproc.engine.projections.catalog.queries import Queries
from kbproc.engine.projections.catalog.rows import HitRow, StandingRow
from kbproc.engine.projections.catalog.standing import EVERY, GENERAL
from kbproc.knowledge.search.hits import Hit, StandingInstruction, cite_at
from kbproc.knowledge.search.params import Search

_MOST = 5
_READ = 40  # because some repeat others, or are about the same without bearing on the query
_BEST_HITS = 3
# The share of common subjects from which two are about the same thing.
_SAME = 0.5
# An instruction about so many subjects bears on a query that names one of them.
_FEW = 7


class _Candidate(Struct, frozen=True):
    row: HitRow
    place: StandingRow
    text: str
    about: frozenset[str]


def bearing(
    queries: Queries, params: Search, filter: DocumentFilter, hits: Sequence[Hit]
) -> list[StandingInstruction]:
    """Returns the instructions that bear on the query, or, where it asks for them, the newest."""
    query, limit = params.query, _MOST
    if asks_for_all(query):
        limit = params.limit
        places = queries.standing(filter, [EVERY], limit + _READ)
        chosen = _latest(_candidates(queries, places))
    else:
        query_subjects = asked_subjects(query)
        places = queries.standing(filter, [*query_subjects, GENERAL], _READ)
        best = [hit.chunk_id for hit in hits[:_BEST_HITS] if hit.source.type == "conversation"]
        if best:
            places += queries.standing(filter, [EVERY], _READ, best)
        candidates = _candidates(queries, places)
        about = {subject for one in candidates for subject in one.about}
        others = queries.standing(filter, about, _READ) if about else []
        every = _latest(_candidates(queries, [*places, *others]))  # a later one may share no word
        scored = [(_score(one, query_subjects, best), one) for one in every]
        scored.sort(key=lambda entry: -entry[0])  # the newest stay first among equals
        chosen = [one for score, one in scored if score]
    return [_shown(one) for one in chosen[:limit]]


def _candidates(queries: Queries, places: Iterable[StandingRow]) -> list[_Candidate]:
    """Returns the instructions, each once, newest first."""
    unique = {(place.chunk_id, place.at): place for place in places}
    rows = queries.hit_rows([*{place.chunk_id for place in unique.values()}])
    candidates = []
    for place in unique.values():
        row = rows[place.chunk_id]
        text = row.text[place.at : place.at + place.size]
        candidates.append(_Candidate(row, place, text, subjects(text)))
    key = lambda one: (one.place.said_at, one.place.chunk_id, one.place.at)  # noqa: E731
    return sorted(candidates, key=key, reverse=True)


def _latest(candidates: Iterable[_Candidate]) -> list[_Candidate]:
    """Returns the instructions without those for which a later one has taken their place."""
    latest: list[_Candidate] = []
    for one in candidates:
        if not any(_replaces(later, one) for later in latest):
            latest.append(one)
    return latest


def _replaces(later: _Candidate, earlier: _Candidate) -> bool:
    revoked = replaced_subjects(later.text) & earlier.about
    return (
        2 * len(revoked) > len(earlier.about)
        or likeness(later.about, earlier.about) >= _SAME
        or not topics(later.text).isdisjoint(topics(earlier.text))
    )


def _score(one: _Candidate, query_subjects: frozenset[str], best: Sequence[int]) -> float:
    """Returns how much an instruction bears on the query; 0 for not at all."""
    about = subjects(condition_of(one.text)) or one.about
    common = len(about & query_subjects)
    if common > 1 or (common and len(about) <= _FEW):
        return 1 + common
    if one.row.chunk_id in best:
        return 1
    return 0.5 if is_general(one.text) else 0


def _shown(one: _Candidate) -> StandingInstruction:
    return StandingInstruction(
        text=one.text,
        cite=cite_at(one.row, one.place.at, one.place.at + one.place.size),
        document_id=one.row.document_id,
        chunk_id=one.row.chunk_id,
        said_at=one.place.said_at,
        origin=one.row.origin,
    )
