"""Entries that say nearly what a new one says.

Owns: how near is near, and how many are told.
Refuses to know: who stores what.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isnan
from typing import TYPE_CHECKING

from msgspec import Struct

from kbproc.search.candidates import restriction_of
from kbproc.search.fusion import PLACES
from kbproc.search.params import Share
from kbproc.sources.chunk import embed_text
from kbproc.store.snapshot import Recent, Snapshot
from kbproc.store.state import State
from kbproc.text.likeness import likeness
from kbproc.text.query import Query, parse_query
from kbproc.views.catalog.filters import DocumentFilter
from kbproc.views.catalog.rows import IndexRow
from kbproc.views.restriction import Restriction

if TYPE_CHECKING:
    from kbproc.views.fulltext.search import FullTextSnapshot

_MOST = 3
# Entries on one topic have about .4, the same in other words .6 and more.
_NEAR = 0.6
_CANDIDATES = 10
_MOST_RECENT = 50  # entries that are looked through
_WORDS = 100  # of a long entry the first ones find those that say the same


class Similar(Struct, frozen=True, kw_only=True):
    """`score`: 1 is the same text."""

    id: int
    title: str
    score: Share


def similar(state: State, title: str, body: str, *, now: str) -> list[Similar]:
    """The entries nearest to one that is not stored yet, best first, as far as they hold `now`.

    The score is the mean of the cosine and of the share of words in common; without a vector it is
    the latter.
    """
    with state.reading() as snapshot:
        wanted = DocumentFilter(types=["knowledge"], hide_superseded=True, valid_at=now)
        restriction = restriction_of(snapshot, wanted)
        fulltext, recent = _as_indexed(snapshot)
        cosines = _near(state, fulltext, restriction, title, body)
        indexed = fulltext.rows(list(cosines)).values()
    rows = [row for row in indexed if row.document_id not in recent.removed]
    rows += [row for row in recent.rows if _allows(restriction, row)]
    told: dict[int, Similar] = {}
    for row in rows:
        share = likeness(f"{title}\n{body}", f"{row.title}\n{row.text}")
        cosine = cosines.get(row.chunk_id)
        score = share if cosine is None else (share + min(1.0, max(0.0, cosine))) / 2
        had = told.get(row.document_id)
        if score >= _NEAR and (had is None or had.score < score):
            told[row.document_id] = Similar(
                id=row.document_id, title=row.title, score=round(score, PLACES)
            )
    return sorted(told.values(), key=lambda one: (-one.score, one.id))[:_MOST]


def _as_indexed(snapshot: Snapshot) -> tuple[FullTextSnapshot, Recent]:
    """Waiting until what was stored last is indexed would cost more than looking through it."""
    fulltext, recent = snapshot.as_indexed
    if sum(row.type == "knowledge" for row in recent.rows) > _MOST_RECENT:
        return snapshot.fulltext, Recent()
    return fulltext, recent


def _allows(restriction: Restriction, row: IndexRow) -> bool:
    """As the indexes understand it."""
    if row.label in restriction.without:
        return False
    if restriction.kbs is not None and row.label not in restriction.kbs:
        return False
    if restriction.documents is not None and row.document_id not in restriction.documents:
        return False
    return restriction.exclude is None or row.document_id not in restriction.exclude


def _near(
    state: State, fulltext: FullTextSnapshot, restriction: Restriction, title: str, body: str
) -> dict[int, float | None]:
    """Chunk id → cosine, None without a vector, of those that either channel finds."""
    found = fulltext.search(_words(title, body), _CANDIDATES, restriction=restriction)
    ids: Sequence[int] = found.chunk_ids
    vectors = state.vectors
    vector = None
    if vectors is not None and vectors.snapshot().live:
        vector, _ = state.model.query_vector(embed_text(title, None, body))
    if vector is None or vectors is None:
        return dict.fromkeys(ids)
    shown = vectors.snapshot()
    near, cosines, others = shown.compared(vector, _CANDIDATES, ids, restriction=restriction)
    told = zip([*ids, *near.tolist()], [*others.tolist(), *cosines.tolist()], strict=True)
    return {id: None if isnan(cosine) else cosine for id, cosine in told}  # pending


def _words(title: str, body: str) -> Query:
    terms = parse_query(f"{title} {body}").said
    kept = tuple(dict.fromkeys(terms))[:_WORDS]
    return Query(kept, said=kept)
