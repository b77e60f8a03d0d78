"""Chooses the standing instructions of conversations that bear on a query.

One bears on it if both are about the same: by words, or because one of the best hits holds it. One
that names its condition ("when I ask about dates") bears on it by the words of the condition. What
is about every answer, such as its language, always bears. Of two about the same thing the later
holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from kbproc.base.text.caches import cached
from kbproc.base.text.instruction import (
    asks_for_all,
    condition_of,
    is_general,
    query_subjects,
    revoked_subjects,
    subjects,
    topics,
)
from kbproc.base.text.likeness import likeness
from kbproc.engine.events.document import CONVERSATION
from kbproc.engine.projections.catalog.filters import DocumentFilter
from kbproc.engine.projections.catalog.instruction import EVERY, GENERAL
from kbproc.engine.projections.catalog.queries import Queries
from kbproc.engine.projections.catalog.rows import StandingRow
from kbproc.knowledge.search.hits import Hit, StandingInstruction, cite_at
from kbproc.knowledge.search.params import Search

_MOST = 5
_READ = 12  # because some repeat others, or share a word without bearing on the query
_WEIGHED = 6  # because later ones take the places of some
_BEST_HITS = 3
# The share of common subjects from which two are about the same thing.
_SAME = 0.5
# An instruction about so many subjects bears on a query that names one of them.
_FEW = 7


class _Meaning(Struct, frozen=True):
    """The subjects of an instruction, those on which it bears, those that it revokes, and so on."""

    about: frozenset[str]
    bears_on: frozenset[str]
    revokes: frozenset[str]
    topics: frozenset[str]
    is_general: bool


@cached(4096)
def _meaning(text: str) -> _Meaning:
    about = subjects(text)
    bears_on = subjects(condition_of(text)) or about
    return _Meaning(about, bears_on, revoked_subjects(text), topics(text), is_general(text))


def bearing(
    queries: Queries, params: Search, filter: DocumentFilter, hits: Sequence[Hit]
) -> list[StandingInstruction]:
    """Returns the instructions that bear on the query, or, where it asks for them, the newest."""
    if asks_for_all(params.query):
        rows = queries.standing(filter, [EVERY], params.limit + _READ)
        return _shown(queries, _latest(rows, rows)[: params.limit])
    subjects_in_query = query_subjects(params.query)
    rows = queries.standing(filter, [*subjects_in_query, GENERAL], _READ)
    best = [hit.chunk_id for hit in hits[:_BEST_HITS] if hit.source.type == CONVERSATION]
    if best:
        rows += queries.standing(filter, [EVERY], _READ, best)
    scored = [(_score(row, subjects_in_query, best), row) for row in _newest_first(rows)]
    chosen = [row for score, row in sorted(scored, key=lambda one: -one[0]) if score]
    chosen = chosen[:_WEIGHED]
    if not chosen:
        return []
    about = {subject for row in chosen for subject in _meaning(row.text).about}
    others = queries.standing(filter, about, _READ)  # a later one may share no word of the query
    return _shown(queries, _latest(chosen, [*chosen, *others])[:_MOST])


def _newest_first(rows: Iterable[StandingRow]) -> list[StandingRow]:
    """Returns the instructions, each once, newest first."""
    unique = {(row.chunk_id, row.at): row for row in rows}
    return sorted(unique.values(), key=_age, reverse=True)


def _age(row: StandingRow) -> tuple[str, int, int]:
    return row.said_at, row.chunk_id, row.at


def _latest(chosen: Iterable[StandingRow], every: Iterable[StandingRow]) -> list[StandingRow]:
    """Returns the chosen instructions without those for which a later one has taken its place."""
    newest = [(_age(row), _meaning(row.text)) for row in every]
    latest = []
    for row in chosen:
        age, meaning = _age(row), _meaning(row.text)
        if not any(other > age and _replaces(new, meaning) for other, new in newest):
            latest.append(row)
    return latest


def _replaces(new: _Meaning, old: _Meaning) -> bool:
    if new.about.isdisjoint(old.about):
        return not new.topics.isdisjoint(old.topics)
    revoked = len(new.revokes & old.about)
    return 2 * revoked > len(old.about) or likeness(new.about, old.about) >= _SAME


def _score(row: StandingRow, query_subjects: frozenset[str], best: Sequence[int]) -> float:
    """Returns how much an instruction bears on the query; 0 for not at all."""
    meaning = _meaning(row.text)
    common = len(meaning.bears_on & query_subjects)
    if common > 1 or (common and len(meaning.bears_on) <= _FEW):
        return 1 + common
    if row.chunk_id in best:
        return 1
    return 0.5 if meaning.is_general else 0


def _shown(queries: Queries, rows: Sequence[StandingRow]) -> list[StandingInstruction]:
    chunks = queries.hit_rows([row.chunk_id for row in rows])
    return [
        StandingInstruction(
            text=chunk.text[row.at : row.at + row.size],
            cite=cite_at(chunk, row.at, row.at + row.size),
            document_id=chunk.document_id,
            chunk_id=chunk.chunk_id,
            said_at=row.said_at,
            origin=chunk.origin,
        )
        for row in rows
        if (chunk := chunks.get(row.chunk_id)) is not None
    ]
