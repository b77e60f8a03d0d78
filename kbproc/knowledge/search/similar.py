"""Finds entries that say nearly the same as a new one."""

from __future__ import annotations

from collections.abc import Sequence
from math import isnan
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from kbproc.base.text.likeness import forms, likeness
from kbproc.base.text.query import Query, parse_query
from kbproc.engine.projections.catalog.filters import DocumentFilter
from kbproc.engine.projections.catalog.rows import HitRow, IndexRow
from kbproc.engine.projections.restriction import Restriction
from kbproc.engine.sources.chunk import embed_text
from kbproc.engine.store.model import Model
from kbproc.engine.store.snapshot import Snapshot
from kbproc.engine.store.state import State
from kbproc.knowledge.search.candidates import restriction_of
from kbproc.knowledge.search.fusion import PLACES
from kbproc.knowledge.search.params import Share

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_MOST = 3
# Entries on one topic have about .4, the same in other words .6 and more.
_NEAR = 0.6
_CANDIDATES = 10
_MOST_RECENT = 50  # chunks of entries without an index, which are compared one by one
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
    filter = DocumentFilter(types=["knowledge"], hide_superseded=True, valid_at=now)
    words = _words(title, body)
    model, vector = _embedded(state, title, body)
    with state.searching(waits=False) as snapshot:
        recent_ids = _recent(snapshot, filter)
        if recent_ids is not None:
            vector = vector if snapshot.model is model else None
            cosines, rows = _nearest(snapshot, filter, words, vector, recent_ids)
    if recent_ids is None:  # comparing them one by one would take longer than to index them
        with state.searching() as snapshot:
            vector = vector if snapshot.model is model else None
            cosines, rows = _nearest(snapshot, filter, words, vector, [])
    best_by_document: dict[int, Similar] = {}
    own_forms = forms(f"{title}\n{body}")
    for row in rows:
        share = likeness(own_forms, forms(f"{row.title}\n{row.text}"))
        cosine = cosines.get(row.chunk_id)
        score = share if cosine is None else (share + min(1.0, max(0.0, cosine))) / 2
        previous = best_by_document.get(row.document_id)
        if score >= _NEAR and (previous is None or previous.score < score):
            best_by_document[row.document_id] = Similar(
                id=row.document_id, title=row.title, score=round(score, PLACES)
            )
    return sorted(best_by_document.values(), key=lambda entry: (-entry.score, entry.id))[:_MOST]


def _embedded(state: State, title: str, body: str) -> tuple[Model, NDArray[np.float32] | None]:
    """Returns the model and its vector of an entry; None if no chunk has a vector to compare."""
    state.open_vectors()
    with state.reading() as snapshot:
        model, vectors = snapshot.model, snapshot.vectors
    if vectors is None or not vectors.live:
        return model, None
    return model, model.query_vector(embed_text(title, None, body))[0]


def _recent(snapshot: Snapshot, filter: DocumentFilter) -> list[int] | None:
    """Returns the entries that the full-text index lacks; None if they have many chunks."""
    if not snapshot.unindexed:
        return []
    among_unindexed = replace(filter, ids=list(snapshot.unindexed))
    entries = snapshot.queries.entries(among_unindexed, limit=_MOST_RECENT + 1)
    chunks = sum(entry.chunk_count for entry in entries)
    return None if chunks > _MOST_RECENT else [entry.id for entry in entries]


def _nearest(
    snapshot: Snapshot,
    filter: DocumentFilter,
    words: Query,
    vector: NDArray[np.float32] | None,
    recent_ids: Sequence[int],
) -> tuple[dict[int, float | None], list[HitRow | IndexRow]]:
    """Returns the cosines of both channels' hits, and the rows of these and of recent entries."""
    restriction = restriction_of(snapshot, filter, indexed=False)
    cosines = _near(snapshot, restriction, words, vector)
    hits = snapshot.queries.hit_rows(list(cosines)).values()
    indexed = [row for row in hits if row.document_id not in snapshot.unindexed]
    return cosines, [*indexed, *snapshot.queries.index_rows(recent_ids)]


def _near(
    snapshot: Snapshot,
    restriction: Restriction,
    words: Query,
    vector: NDArray[np.float32] | None,
) -> dict[int, float | None]:
    """Returns chunk id → cosine, None for a chunk without a vector, for both channels' hits."""
    hits = snapshot.fulltext.search(words, _CANDIDATES, restriction=restriction)
    ids: Sequence[int] = hits.chunk_ids
    vectors = snapshot.vectors
    if vector is None or vectors is None:
        return dict.fromkeys(ids)
    near, cosines, others = vectors.search_with_cosines(
        vector, _CANDIDATES, ids, restriction=restriction
    )
    pairs = zip([*ids, *near.tolist()], [*others.tolist(), *cosines.tolist()], strict=True)
    return {id: None if isnan(cosine) else cosine for id, cosine in pairs}  # nan: pending


def _words(title: str, body: str) -> Query:
    terms = parse_query(f"{title} {body}").all_words
    first_terms = tuple(dict.fromkeys(terms))[:_WORDS]
    return Query(first_terms, all_words=first_terms)
