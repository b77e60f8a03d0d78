"""Which chunks a search considers, reckoned in both channels.

Owns: the pool of either channel's best, and for each of them the number that
only the other channel can give: a missing cosine comes from the pack, a missing
BM25 from a query restricted to those ids. So no score depends on limit, filter
or the size of the pool.
Refuses to know: how numbers become scores, rows, snippets.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from msgspec import Struct

from kbproc.fusion import FULLTEXT_WEIGHT, VECTOR_WEIGHT
from kbproc.text import Query

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from kbproc.snapshot import Snapshot
    from kbproc.views.base import Restriction
    from kbproc.views.fulltext_search import FullTextSnapshot
    from kbproc.views.queries import DocumentFilter
    from kbproc.views.vectorsearch import VectorSnapshot

POOL = 100
# Scores that round to the same number may differ by this much before.
_SLACK = 2e-6


class Candidate(Struct, frozen=True, kw_only=True):
    """`bm25` None: no word matches; `cosine` None: pending, or the channel is off."""

    chunk_id: int
    bm25: float | None
    cosine: float | None
    fts_rank: int | None
    vector_rank: int | None


class Pool(Struct, kw_only=True):
    """`bound`: the greatest BM25 any text could reach; `total`: matches, or candidates."""

    candidates: list[Candidate]
    bound: float
    total: int
    exact: bool


def pool_size(wanted: int) -> int:
    """The same for every page up to the pool, so that paging sees one ranking."""
    size = POOL
    while size < wanted:
        size *= 2
    return size


def by_words(
    fulltext: FullTextSnapshot, query: Query, restriction: Restriction, limit: int
) -> Pool:
    """Keyword search alone; the total is exact."""
    if query.reason:
        return Pool(candidates=[], bound=0.0, total=0, exact=True)
    hits = fulltext.search(query, limit, restriction=restriction)
    candidates = [
        Candidate(chunk_id=id, bm25=score, cosine=None, fts_rank=rank, vector_rank=None)
        for rank, (id, score) in enumerate(zip(hits.chunk_ids, hits.raw_scores, strict=True), 1)
    ]
    return Pool(candidates=candidates, bound=fulltext.bound(query), total=hits.total, exact=True)


class Mixed:
    """Both channels over one query; in mode vector only the nearest."""

    def __init__(
        self,
        *,
        fulltext: FullTextSnapshot,
        vectors: VectorSnapshot,
        query: Query,
        vector: NDArray[np.float32],
        restriction: Restriction,
    ) -> None:
        self._fulltext = fulltext
        self._vectors = vectors
        self._query = query
        self._vector = vector
        self._restriction = restriction

    def pool(self, mode: str, size: int, ef_search: int) -> Pool:
        words = self._by_word(size) if mode == "hybrid" else {}
        near = self._near(size, ef_search)
        word_ranks = {id: rank for rank, id in enumerate(words, 1)}
        near_ranks = {id: rank for rank, id in enumerate(near, 1)}
        if mode == "hybrid":
            scores = words | self._missing_words([id for id in near if id not in words])
            cosines = near | self._missing_cosines([id for id in words if id not in near])
        else:
            scores, cosines = words, near
        candidates = [
            Candidate(
                chunk_id=id,
                bm25=scores.get(id),
                cosine=cosines.get(id),
                fts_rank=word_ranks.get(id),
                vector_rank=near_ranks.get(id),
            )
            for id in {**words, **near}
        ]
        bound = self._fulltext.bound(self._query) if mode == "hybrid" else 0.0
        return Pool(candidates=candidates, bound=bound, total=len(candidates), exact=False)

    def _by_word(self, size: int) -> dict[int, float]:
        """chunk id → BM25, best first."""
        if self._query.reason:
            return {}
        hits = self._fulltext.search(self._query, size, restriction=self._restriction)
        return dict(zip(hits.chunk_ids, hits.raw_scores, strict=True))

    def _near(self, size: int, ef_search: int) -> dict[int, float]:
        """chunk id → cosine, nearest first; phrases and excluded words bind here, too."""
        ids, cosines = self._vectors.search(
            self._vector, size, restriction=self._restriction, ef_search=ef_search
        )
        found = dict(zip(ids.tolist(), cosines.tolist(), strict=True))
        if self._query.phrases or self._query.excluded:
            allowed = self._fulltext.permitted(self._query, list(found))
            found = {id: cosine for id, cosine in found.items() if id in allowed}
        return found

    def _missing_words(self, ids: list[int]) -> dict[int, float]:
        if not ids or self._query.reason:
            return {}
        return self._fulltext.scores(self._query, ids)

    def _missing_cosines(self, ids: list[int]) -> dict[int, float]:
        if not ids:
            return {}
        found = self._vectors.cosines(self._vector, ids).tolist()
        return {id: cosine for id, cosine in zip(ids, found, strict=True) if not math.isnan(cosine)}


def leaders(candidates: list[Candidate], bound: float, mode: str, count: int) -> list[Candidate]:
    """Those that can be among the first `count` once scores are rounded, in no order."""
    if len(candidates) <= count:
        return candidates
    words = {"hybrid": FULLTEXT_WEIGHT, "fts": 1.0, "vector": 0.0}[mode] / (bound or 1.0)
    nearness = {"hybrid": VECTOR_WEIGHT, "fts": 0.0, "vector": 1.0}[mode]
    scores = [words * (c.bm25 or 0.0) + nearness * max(0.0, c.cosine or 0.0) for c in candidates]
    least = sorted(scores, reverse=True)[count - 1] - _SLACK
    return [c for c, score in zip(candidates, scores, strict=True) if score >= least]


def restriction_of(snapshot: Snapshot, filter: DocumentFilter) -> Restriction:
    """What the indexes need to know of a filter; anything but a kb becomes document ids."""
    from kbproc.views.base import Restriction

    if filter.only_kbs:
        return Restriction(kbs=None if filter.kbs is None else tuple(filter.kbs))
    return Restriction(documents=snapshot.queries.document_ids(filter))
