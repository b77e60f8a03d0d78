"""Which chunks a search considers, with their numbers from both channels.

Owns: the pool, which holds each channel's best chunks. A chunk that only one channel has found gets
the other channel's number, too: its cosine from the pack, its BM25 from a query for these ids. So
no score depends on limit, filter or the size of the pool.
Refuses to know: how numbers become scores, rows, snippets.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

from msgspec import Struct

from kbproc.search.confidence import LEAST_SCORE
from kbproc.search.fusion import Weights
from kbproc.store.snapshot import Snapshot
from kbproc.text.query import Query
from kbproc.views.catalog.filters import DocumentFilter, labels, superseded_labels
from kbproc.views.catalog.reader import EVERYTHING, NOTES
from kbproc.views.restriction import Restriction

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from kbproc.views.fulltext.search import FullTextHits, FullTextSnapshot, Places
    from kbproc.views.vectors.search import VectorSnapshot

POOL = 100
# Two scores that are equal once rounded differed by less than this before.
_ROUNDING = 1e-5


class Candidate(Struct, frozen=True, kw_only=True):
    """A chunk of the pool. `bm25` is None if no word matches, `cosine` if the vector is pending or
    the vector channel is off; a rank is None if that channel has not found the chunk, or where
    nobody asks for ranks: see Mixed.pool.
    """

    chunk_id: int
    bm25: float | None
    cosine: float | None
    fts_rank: int | None
    vector_rank: int | None


class Pool(Struct, kw_only=True):
    """What a search considers.

    `bound`: the greatest BM25 that any text could reach for the query. `total`: how many chunks
    match; where `exact` is False, how many candidates there are. `whole`: a larger pool would hold
    no more candidates. `places`: where the full-text index keeps those that words have found.
    """

    candidates: list[Candidate]
    bound: float
    total: int
    exact: bool
    whole: bool = True
    places: Places = {}


def pool_size(wanted: int) -> int:
    """How many chunks each channel is asked for, if `wanted` are to be shown.

    Pages share one ranking as long as they share this size: it doubles when it has to grow.
    """
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
    return Pool(
        candidates=candidates,
        bound=fulltext.bound(query),
        total=hits.total,
        exact=True,
        whole=len(candidates) == hits.total,
        places=hits.places,
    )


class Mixed:
    """One query in both channels; in mode `vector` in the vector channel only."""

    def __init__(
        self,
        *,
        fulltext: FullTextSnapshot,
        vectors: VectorSnapshot,
        query: Query,
        vector: NDArray[np.float32],
        weights: Weights,
        restriction: Restriction,
    ) -> None:
        self._fulltext = fulltext
        self._vectors = vectors
        self._query = query
        self._vector = vector
        self._weights = weights
        self._restriction = restriction

    def pool(
        self, hits: FullTextHits | None, size: int, ef_search: int, wanted: int | None
    ) -> Pool:
        """The candidates; each channel is asked for `size` chunks.

        `hits`: those of the words; None in mode `vector`.
        `wanted`: candidates that can't be among so many best by blended score are left out, and
        those that stay have no ranks; None keeps all of them. `total` counts those that are left
        out, too, and in hybrid mode every chunk that a word matches.
        """
        words = dict(zip(hits.chunk_ids, hits.raw_scores, strict=True)) if hits else {}
        bound = self._fulltext.bound(self._query) if hits else 0.0
        reach = None
        if wanted is not None and bound:
            # A chunk outside the word channel's best has at most the last one's BM25.
            most = min(words.values()) if len(words) == size else 0.0
            reach = _Reach(words, most=most, bound=bound, wanted=wanted, weights=self._weights)
        # Candidates count where words have found fewer than there may be of them; more than `size`
        # are near where some are excluded.
        few = hits is None or hits.total < len(words) + size or bool(self._query.excluded)
        near, others = self._near(size, ef_search, list(words), None if few else reach)
        least = LEAST_SCORE / (self._weights.vector if hits else 1)
        near = {id: cosine for id, cosine in near.items() if cosine >= least or id in words}
        scores, cosines, kept = words, near, list({**words, **near})
        total = max(hits.total if hits else 0, len(kept))
        if hits:
            cosines = near | others
            if reach:
                kept = reach.within(cosines)
            if len(words) == size:
                scores = words | self._missing_words([id for id in kept if id not in words])
        by_word, by_meaning = (_ranks(words), _ranks(near)) if wanted is None else ({}, {})
        candidates = [
            Candidate(
                chunk_id=id,
                bm25=scores.get(id),
                cosine=cosines.get(id),
                fts_rank=by_word.get(id),
                vector_rank=by_meaning.get(id),
            )
            for id in kept
        ]
        whole = len(words) < size and len(near) < size
        return Pool(
            candidates=candidates,
            bound=bound,
            total=total,
            exact=False,
            whole=whole,
            places=hits.places if hits else {},
        )

    def _by_word(self, size: int) -> FullTextHits:
        return self._fulltext.search(self._query, size, restriction=self._restriction)

    def _near(
        self, size: int, ef_search: int, others: list[int], reach: _Reach | None
    ) -> tuple[dict[int, float], dict[int, float]]:
        """chunk id → cosine, nearest first, and of the others that have a vector. Phrases and
        excluded words filter the nearest, too. Of those out of `reach` some may be missing.
        """
        if self._query.phrases:
            return self._near_among(self._by_word(size).chunk_ids), self._cosines(others)
        while True:
            ids, cosines, told = self._vectors.compared(
                self._vector,
                size,
                others,
                restriction=self._restriction,
                ef_search=ef_search,
                reach=reach.narrow if reach else None,
            )
            found = dict(zip(ids.tolist(), cosines.tolist(), strict=True))
            if not self._query.excluded:
                return found, _known(others, told)
            allowed = self._fulltext.permitted(self._query, list(found))
            if len(allowed) >= POOL or len(found) < size:
                near = {id: cosine for id, cosine in found.items() if id in allowed}
                return near, _known(others, told)
            size *= 4

    def _near_among(self, ids: list[int]) -> dict[int, float]:
        found = self._cosines(ids)
        return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))

    def _cosines(self, ids: list[int]) -> dict[int, float]:
        return _known(ids, self._vectors.cosines(self._vector, ids))

    def _missing_words(self, ids: list[int]) -> dict[int, float]:
        if not ids or self._query.reason:
            return {}
        return self._fulltext.scores(self._query, ids)


def _known(ids: list[int], cosines: NDArray[np.float64]) -> dict[int, float]:
    """Those that have a vector."""
    told = zip(ids, cosines.tolist(), strict=True)
    return {id: cosine for id, cosine in told if not math.isnan(cosine)}


def _ranks(found: Iterable[int]) -> dict[int, int]:
    return {id: rank for rank, id in enumerate(found, 1)}


class _Reach:
    """Which candidates may be among the `wanted` best once every BM25 is known.

    A missing BM25 lies between 0 and `most`. To ask for it is the most expensive part of a search,
    so it is asked for these only.
    """

    def __init__(
        self, words: dict[int, float], *, most: float, bound: float, wanted: int, weights: Weights
    ) -> None:
        """`words`: what words have found, with its BM25."""
        by_word, self._by_meaning = weights.fts / bound, weights.vector
        self._shares = {id: by_word * bm25 for id, bm25 in words.items()}
        self._near_enough = self._shares  # those of them that may be among the best
        self._most = by_word * most
        self._wanted = wanted

    def narrow(
        self, low: NDArray[np.float64], high: NDArray[np.float64]
    ) -> tuple[NDArray[np.bool_], float]:
        """See Reach of the vectors; the others are what words have found."""
        import numpy as np  # its import takes longer than most searches

        shares = np.fromiter(self._shares.values(), np.float64)
        last = self._last((shares + self._by_meaning * np.fmax(low, 0)).tolist())
        needed = shares + self._by_meaning * np.fmax(high, 0) >= last
        self._near_enough = dict(itertools.compress(self._shares.items(), needed.tolist()))
        return needed, (last - self._most) / self._by_meaning

    def within(self, cosines: dict[int, float]) -> list[int]:
        known = {
            id: share + self._by_meaning * max(0.0, cosines.get(id, 0.0))
            for id, share in self._near_enough.items()
        }
        low = {id: self._by_meaning * c for id, c in cosines.items() if id not in known}
        last = self._last([*known.values(), *low.values()])
        room = last - self._most
        return [
            *[id for id, score in known.items() if score >= last],
            *[id for id, score in low.items() if score >= room],
        ]

    def _last(self, scores: list[float]) -> float:
        """The least score that may be among the wanted."""
        if len(scores) < self._wanted:
            return 0.0
        return sorted(scores, reverse=True)[self._wanted - 1] - _ROUNDING


def everything(snapshot: Snapshot) -> Restriction:
    """A restriction to all documents and entries that the caller may see."""
    return restriction_of(snapshot, DocumentFilter())


def restriction_of(snapshot: Snapshot, filter: DocumentFilter) -> Restriction:
    """A filter as the indexes understand it.

    A filter that names knowledge bases, or entries alone, becomes labels; every other filter
    becomes a list of document ids. Superseded entries have a label of their own, which costs
    nothing; expired entries are listed by id.
    """

    if not filter.only_kbs:
        return Restriction(documents=snapshot.queries.document_ids(filter))
    roster = snapshot.published.roster
    exclude = None if filter.valid_at is None else roster.expired(filter.valid_at)
    if filter.kbs is None and snapshot.sight is None and not filter.types:
        hidden = roster.superseded if filter.hide_superseded else ()
        return Restriction(without=superseded_labels(hidden), exclude=exclude)
    allowed = labels(
        _kbs_of(snapshot, filter),
        documents=not filter.types,
        entries=snapshot.sight is None or snapshot.sight.entries,
        superseded=not filter.hide_superseded,
    )
    return Restriction(kbs=allowed, exclude=exclude)


def _kbs_of(snapshot: Snapshot, filter: DocumentFilter) -> list[str]:
    """The knowledge bases that the filter names and the caller may see; without names, all of them
    and the knowledge bases of notes.
    """
    sight, roster = snapshot.sight or EVERYTHING, snapshot.published.roster
    if filter.kbs is not None:
        return [kb for kb in filter.kbs if sight.sees(kb)]
    agents = roster.agents if sight.notes is None else sight.notes
    return [*roster.kbs_for(sight), *(NOTES + agent for agent in agents)]
