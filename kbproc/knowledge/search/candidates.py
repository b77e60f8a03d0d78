"""Collects the candidates of a search in a pool, with a cosine and a BM25 for each.

The pool holds the best chunks of each channel. A chunk that only one channel has found also gets
the other channel's number: its cosine from the pack, its BM25 from a query for these ids. So no
score depends on limit, filter or the size of the pool.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from kbproc.base.text.query import Query
from kbproc.engine.projections.catalog.filters import DocumentFilter, labels, superseded_labels
from kbproc.engine.projections.catalog.reader import NOTES, PUBLISHED
from kbproc.engine.projections.catalog.rows import Ids
from kbproc.engine.projections.restriction import Restriction
from kbproc.engine.store.snapshot import Snapshot
from kbproc.knowledge.search.fusion import Contenders, Weights
from kbproc.knowledge.search.probability import LEAST_SCORE

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from kbproc.engine.projections.fulltext.search import FullTextHits, FullTextSnapshot
    from kbproc.engine.projections.vectors.search import VectorSnapshot

POOL = 100


class Candidate(Struct, frozen=True, kw_only=True):
    """A chunk of the pool.

    `bm25` is None if no word matches; `cosine` is None if the vector is pending or the vector
    channel is off; a rank is None if that channel has not found the chunk, or if Mixed.pool
    computes no ranks.
    """

    chunk_id: int
    bm25: float | None
    cosine: float | None
    fts_rank: int | None
    vector_rank: int | None


class CandidatePool(Struct, kw_only=True):
    """The candidates of a search.

    `bound`: the greatest BM25 that any text could reach for the query. `total`: the number of
    matching chunks, or of candidates if `exact` is False. `whole`: True if a larger pool would hold
    no more candidates.
    """

    candidates: list[Candidate]
    bound: float
    total: int
    exact: bool
    whole: bool = True


def pool_size(hit_count: int) -> int:
    """Returns how many chunks to request from each channel for the first `hit_count` hits.

    Pages of the same size of pool share one ranking, so the size grows by doubling.
    """
    size = POOL
    while size < hit_count:
        size *= 2
    return size


def by_words(
    fulltext: FullTextSnapshot, query: Query, restriction: Restriction, limit: int
) -> CandidatePool:
    """Returns the pool of a search by words alone; its total is exact."""
    if query.reason:
        return CandidatePool(candidates=[], bound=0.0, total=0, exact=True)
    hits = fulltext.search(query, limit, restriction=restriction)
    candidates = [
        Candidate(chunk_id=id, bm25=score, cosine=None, fts_rank=rank, vector_rank=None)
        for rank, (id, score) in enumerate(zip(hits.chunk_ids, hits.raw_scores, strict=True), 1)
    ]
    return CandidatePool(
        candidates=candidates,
        bound=fulltext.bound(query),
        total=hits.total,
        exact=True,
        whole=len(candidates) == hits.total,
    )


class Mixed:
    """A query in both channels; in mode `vector` in the vector channel only."""

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
        self, hits: FullTextHits | None, size: int, ef_search: int, depth: int | None
    ) -> CandidatePool:
        """Returns the pool of `size` chunks from each channel.

        `hits`: the hits of the word channel; None in mode `vector`. `depth`: the pool leaves out
        candidates that can't be among so many best by blended score, and ranks; None keeps all
        candidates and computes ranks. `total` counts the candidates that were left out, too, and
        in hybrid mode every chunk that a word matches.
        """
        words = dict(zip(hits.chunk_ids, hits.raw_scores, strict=True)) if hits else {}
        bound = self._fulltext.bound(self._query) if hits else 0.0
        contenders = None
        if depth is not None and bound:
            # A chunk that the word channel did not return has at most the BM25 of its last hit.
            most = min(words.values()) if len(words) == size else 0.0
            contenders = Contenders(
                words, most=most, bound=bound, depth=depth, weights=self._weights
            )
        # `total` is the number of candidates if words match fewer chunks than that, so none may be
        # missing then. With exclusions the vector channel may find more than `size` chunks.
        needs_all = hits is None or hits.total < len(words) + size or bool(self._query.excluded)
        near, others = self._near(size, ef_search, list(words), None if needs_all else contenders)
        least = LEAST_SCORE / (self._weights.vector if hits else 1)
        near = {id: cosine for id, cosine in near.items() if cosine >= least or id in words}
        scores, cosines, chunk_ids = words, near, list({**words, **near})
        total = max(hits.total if hits else 0, len(chunk_ids))
        if hits:
            cosines = near | others
            if contenders:
                chunk_ids = contenders.within(cosines)
            if len(words) == size:
                scores = words | self._missing_words([id for id in chunk_ids if id not in words])
        by_word, by_meaning = (_ranks(words), _ranks(near)) if depth is None else ({}, {})
        candidates = [
            Candidate(
                chunk_id=id,
                bm25=scores.get(id),
                cosine=cosines.get(id),
                fts_rank=by_word.get(id),
                vector_rank=by_meaning.get(id),
            )
            for id in chunk_ids
        ]
        is_complete = len(words) < size and len(near) < size
        return CandidatePool(
            candidates=candidates,
            bound=bound,
            total=total,
            exact=False,
            whole=is_complete,
        )

    def _by_word(self, size: int) -> FullTextHits:
        return self._fulltext.search(self._query, size, restriction=self._restriction)

    def _near(
        self, size: int, ef_search: int, others: list[int], contenders: Contenders | None
    ) -> tuple[dict[int, float], dict[int, float]]:
        """Returns chunk id → cosine, of the nearest chunks, nearest first, and of `others`.

        Phrases and excluded words filter the nearest chunks, too. Chunks without a vector are
        missing, and so may be chunks that can't be among the contenders.
        """
        if self._query.phrases:
            return self._near_among(self._by_word(size).chunk_ids), self._cosines(others)
        while True:
            ids, cosines, other_cosines = self._vectors.search_with_cosines(
                self._vector,
                size,
                others,
                restriction=self._restriction,
                ef_search=ef_search,
                shortlist=contenders.narrow if contenders else None,
            )
            nearest = dict(zip(ids.tolist(), cosines.tolist(), strict=True))
            if not self._query.excluded:
                return nearest, _by_id(others, other_cosines)
            allowed = self._fulltext.permitted(self._query, list(nearest))
            if len(allowed) >= POOL or len(nearest) < size:
                near = {id: cosine for id, cosine in nearest.items() if id in allowed}
                return near, _by_id(others, other_cosines)
            size *= 4

    def _near_among(self, ids: list[int]) -> dict[int, float]:
        cosines = self._cosines(ids)
        return dict(sorted(cosines.items(), key=lambda item: (-item[1], item[0])))

    def _cosines(self, ids: list[int]) -> dict[int, float]:
        return _by_id(ids, self._vectors.cosines(self._vector, ids))

    def _missing_words(self, ids: list[int]) -> dict[int, float]:
        if not ids or self._query.reason:
            return {}
        return self._fulltext.scores(self._query, ids)


def _by_id(ids: list[int], cosines: NDArray[np.float64]) -> dict[int, float]:
    """Returns chunk id → cosine, for the chunks that have a vector."""
    pairs = zip(ids, cosines.tolist(), strict=True)
    return {id: cosine for id, cosine in pairs if not math.isnan(cosine)}


def _ranks(chunk_ids: Iterable[int]) -> dict[int, int]:
    return {id: rank for rank, id in enumerate(chunk_ids, 1)}


def everything(snapshot: Snapshot) -> Restriction:
    """Returns a restriction to all documents and entries that the caller may see."""
    return restriction_of(snapshot, DocumentFilter())


def restriction_of(
    snapshot: Snapshot, filter: DocumentFilter, *, indexed: bool = True, by_meaning: bool = True
) -> Restriction:
    """Translates a filter for the indexes.

    Knowledge bases, entries and superseded entries become labels, which cost nothing, nor do tags
    without other conditions unless vectors are searched, too (`by_meaning`). Every other
    condition becomes a list of document ids: of those that meet it, or of the others that have the
    labels, whichever are fewer. Expired entries are listed by id, and so are documents that the
    full-text index lacks, unless `indexed` is False.
    """
    if filter.tags is not None and (rest := replace(filter, tags=None)) == rest.by_label:
        restriction = restriction_of(snapshot, rest, indexed=indexed)
        documents = snapshot.document_ids(replace(filter, valid_at=None)) if by_meaning else None
        any_tag, tags = filter.tags_mode == "any", tuple(filter.tags)
        return replace(restriction, documents=documents, tags=tags, any_tag=any_tag)
    roster = snapshot.published.roster
    excluded = [
        None if filter.valid_at is None else roster.expired(filter.valid_at),
        _ids(snapshot.unindexed) if indexed else None,
    ]
    if filter != filter.by_label:
        documents = snapshot.document_ids(replace(filter, valid_at=None))
        others = _others(snapshot, filter, documents)
        if others is None:
            return Restriction(documents=documents, exclude=_union(excluded))
        excluded.append(others)
        filter = filter.by_label
    exclude = _union(excluded)
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


def _others(snapshot: Snapshot, filter: DocumentFilter, documents: Ids) -> Ids | None:
    """Returns the documents that only the filter's labels admit, sorted; None where it admits
    fewer.
    """
    labelled = replace(filter.by_label, valid_at=None)
    if 2 * len(documents) < snapshot.queries.count(replace(labelled, hide_superseded=False)):
        return None
    import numpy as np  # not above: most searches need none

    others = np.setdiff1d(snapshot.document_ids(labelled), documents, assume_unique=True)
    return others if len(others) < len(documents) else None


def _ids(documents: Iterable[int]) -> Ids | None:
    """Returns the ids as an array; None without any."""
    if not (ids := [*documents]):
        return None
    import numpy as np

    return np.array(ids, dtype=np.int64)


def _union(lists: Iterable[Ids | None]) -> Ids | None:
    """Returns all ids of the lists, sorted; None without any."""
    present = [ids for ids in lists if ids is not None and len(ids)]
    if len(present) < 2:
        return present[0] if present else None
    import numpy as np

    return np.unique(np.concatenate(present))


def _kbs_of(snapshot: Snapshot, filter: DocumentFilter) -> list[str]:
    """Returns the visible knowledge bases that the filter names; without names, all visible ones
    and the knowledge bases of notes.
    """
    sight, roster = snapshot.sight or PUBLISHED, snapshot.published.roster
    if filter.kbs is not None:
        return [kb for kb in filter.kbs if sight.sees(kb)]
    agents = roster.agents if sight.notes is None else sight.notes
    return [*roster.kbs_for(sight), *(NOTES + agent for agent in agents)]
