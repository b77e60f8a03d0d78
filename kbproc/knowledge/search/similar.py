"""Finds entries that say nearly the same as a new one."""

from __future__ import annotations

from collections.abc import Sequence
from math import isnan
from typing import TYPE_CHECKING

from msgspec import Struct

from kbproc.base.text.likeness import likeness
from kbproc.base.text.query import Query, parse_query
from kbproc.engine.projections.catalog.filters import DocumentFilter
from kbproc.engine.projections.catalog.rows import HitRow, IndexRow
from kbproc.engine.projections.restriction import Restriction
from kbproc.engine.sources.chunk import embed_text
from kbproc.engine.store.snapshot import PendingIndexChanges, Snapshot
from kbproc.engine.store.state import State
from kbproc.knowledge.search.candidates import restriction_of
from kbproc.knowledge.search.fusion import PLACES
from kbproc.knowledge.search.params import Share

if TYPE_CHECKING:
    from kbproc.engine.projections.fulltext.search import FullTextSnapshot

_MOST = 3
# Entries on one topic have about .4, the same in other words .6 and more.
_NEAR = 0.6
_CANDIDATES = 10
_MOST_RECENT = 50  # entries without an index that are compared one by one
_WORDS = 100  # enough words of a long entry to find those that say the same


class Similar(Struct, frozen=True, kw_only=True):
    """An entry that is similar to a new one. `score`: 1 for the same text."""

    id: int
    title: str
    score: Share


def similar(state: State, title: str, body: str, *, now: str) -> list[Similar]:
    """Returns the entries nearest to a new one, best first, among those that are valid `now`.

    The score is the mean of the cosine and of the share of common words; without a vector it is
    that share.
    """
    with state.reading() as snapshot:
        filter = DocumentFilter(types=["knowledge"], hide_superseded=True, valid_at=now)
        restriction = restriction_of(snapshot, filter)
        fulltext, recent = _as_indexed(snapshot)
        cosines = _near(state, fulltext, restriction, title, body)
        indexed = snapshot.queries.hit_rows(list(cosines)).values()
    rows: list[HitRow | IndexRow] = [r for r in indexed if r.document_id not in recent.removed]
    rows += [row for row in recent.rows if _allows(restriction, row)]
    best_by_document: dict[int, Similar] = {}
    for row in rows:
        share = likeness(f"{title}\n{body}", f"{row.title}\n{row.text}")
        cosine = cosines.get(row.chunk_id)
        score = share if cosine is None else (share + min(1.0, max(0.0, cosine))) / 2
        previous = best_by_document.get(row.document_id)
        if score >= _NEAR and (previous is None or previous.score < score):
            best_by_document[row.document_id] = Similar(
                id=row.document_id, title=row.title, score=round(score, PLACES)
            )
    return sorted(best_by_document.values(), key=lambda entry: (-entry.score, entry.id))[:_MOST]


def _as_indexed(snapshot: Snapshot) -> tuple[FullTextSnapshot, PendingIndexChanges]:
    """Returns the index, and the latest entries that it lacks; these only if they are few.

    Comparing them one by one takes less time than waiting until they are indexed.
    """
    fulltext, recent = snapshot.as_indexed
    if sum("#" in row.label for row in recent.rows) > _MOST_RECENT:
        return snapshot.fulltext, PendingIndexChanges()
    return fulltext, recent


def _allows(restriction: Restriction, row: IndexRow) -> bool:
    """Returns whether a restriction allows a row, by the same rules as in the indexes.

    A restriction to entries names what it allows, so its `without` is empty.
    """
    if restriction.kbs is not None and row.label not in restriction.kbs:
        return False
    if restriction.documents is not None and row.document_id not in restriction.documents:
        return False
    return restriction.exclude is None or row.document_id not in restriction.exclude


def _near(
    state: State, fulltext: FullTextSnapshot, restriction: Restriction, title: str, body: str
) -> dict[int, float | None]:
    """Returns chunk id → cosine, None for a chunk without a vector, for both channels' hits."""
    hits = fulltext.search(_words(title, body), _CANDIDATES, restriction=restriction)
    ids: Sequence[int] = hits.chunk_ids
    vectors = state.vectors
    vector = None
    if vectors is not None and vectors.snapshot().live:
        vector, _ = state.model.query_vector(embed_text(title, None, body))
    if vector is None or vectors is None:
        return dict.fromkeys(ids)
    snapshot = vectors.snapshot()
    near, cosines, others = snapshot.search_with_cosines(
        vector, _CANDIDATES, ids, restriction=restriction
    )
    pairs = zip([*ids, *near.tolist()], [*others.tolist(), *cosines.tolist()], strict=True)
    return {id: None if isnan(cosine) else cosine for id, cosine in pairs}  # nan: pending


def _words(title: str, body: str) -> Query:
    terms = parse_query(f"{title} {body}").all_words
    first_terms = tuple(dict.fromkeys(terms))[:_WORDS]
    return Query(first_terms, all_words=first_terms)
