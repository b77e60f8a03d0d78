"""Search: from a query to ranked, fused hits.

Owns: candidates of both channels, filters, scores, totals, paging, explain, and
the sentence that says why there is no hit.
Refuses to know: the wire, and how each channel ranks inside.

Every candidate is reckoned in both channels (a missing cosine comes from the
pack, a missing BM25 from a query restricted to those ids), so that no score
depends on limit, filter or the size of the pool.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from kbproc import documents as docs
from kbproc import fusion
from kbproc.documents import Kbs
from kbproc.model import DocType, DocumentId, Instant, Metadata, ReadParams, Tags
from kbproc.snippets import snippet
from kbproc.text import parse_query

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from kbproc.snapshot import Snapshot
    from kbproc.store import Store
    from kbproc.views.base import Restriction
    from kbproc.views.queries import ChunkRow, DocumentFilter, DocumentRow

POOL = 200
_MOST_FETCHED = 10_000


Share = Annotated[float, Meta(ge=0, le=1)]


class Search(ReadParams, kw_only=True, frozen=True):
    """What every kind of search can be asked."""

    query: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=2000,
            description='plain words, "a phrase", -word to leave out; never a syntax error',
        ),
    ]
    limit: Annotated[int, Meta(ge=1, le=100, description="most hits to return")] = 10
    offset: Annotated[int, Meta(ge=0, le=10_000, description="hits to pass over")] = 0
    mode: Annotated[
        Literal["hybrid", "fts", "vector"],
        Meta(description="words and meaning, words only, or meaning only"),
    ] = "hybrid"
    kb: Annotated[Kbs, Meta(description="knowledge base, or several; all if left out")] | None = (
        None
    )
    types: Annotated[list[DocType], Meta(min_length=1, max_length=16)] | None = None
    tags: Tags | None = None
    tags_mode: Annotated[
        Literal["all", "any"], Meta(description="all tags must be there, or any of them")
    ] = "all"
    metadata: Annotated[Metadata, Meta(description="members that must be equal")] | None = None
    path_prefix: Annotated[str, Meta(min_length=1, max_length=4096)] | None = None
    created_after: Instant | None = None
    created_before: Instant | None = None
    document_ids: Annotated[list[DocumentId], Meta(min_length=1, max_length=1000)] | None = None
    per_document: (
        Annotated[int, Meta(ge=1, le=100, description="most hits of one document")] | None
    ) = None
    include_superseded: Annotated[
        bool, Meta(description="knowledge entries that others have replaced, too")
    ] = False
    include_expired: Annotated[
        bool, Meta(description="knowledge entries whose time is over, too")
    ] = False
    min_score: Annotated[Share, Meta(description="leave out hits with a lower score")] | None = None
    min_similarity: (
        Annotated[Share, Meta(description="leave out hits with a lower cosine")] | None
    ) = None
    min_confidence: (
        Annotated[
            int, Meta(ge=0, le=100, description="only knowledge entries of this confidence or more")
        ]
        | None
    ) = None
    ef_search: Annotated[
        int, Meta(ge=1, le=200, description="breadth of the vector search: slower and surer")
    ] = 64
    fusion: Annotated[
        Literal["blend", "rrf"],
        Meta(description="blend: absolute scores in [0, 1]; rrf: by rank only"),
    ] = "blend"
    snippet_chars: Annotated[int, Meta(ge=20, le=2000)] = 240
    explain: Annotated[bool, Meta(description="say how each score came about")] = False
    highlight: Annotated[bool, Meta(description="where the snippet matches")] = True


class HitSource(Struct, kw_only=True, frozen=True):
    """Where a hit stands. `chunk_index` counts from 0."""

    document_id: int
    title: str
    path: str | None
    type: str
    page: int | None
    section: str | None
    chunk_index: int
    total_chunks: int
    tags: list[str]
    kb: str


class Breakdown(Struct, kw_only=True, frozen=True):
    """What each channel gave to the score; null where it takes no part."""

    fts: float | None
    vector: float | None


class Hit(Struct, kw_only=True, frozen=True, omit_defaults=True):
    """`highlights`: character offsets into `snippet`. `explain` only on request."""

    chunk_id: int
    score: float
    score_breakdown: Breakdown
    text: str
    snippet: str
    highlights: list[tuple[int, int]]
    source: HitSource
    confidence: int | None
    expires_at: str | None
    superseded_by: int | None
    explain: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET


class Results(Struct, kw_only=True, frozen=True):
    query: str
    results: list[Hit]
    total_matches: int
    total_is_exact: bool
    returned: int


class Found(Struct, frozen=True, kw_only=True):
    results: Results
    has_more: bool
    hint: str | None
    notice: list[str]


class Candidate(Struct, frozen=True, kw_only=True):
    """`bm25` None: no word matches; `cosine` None: pending, or the channel is off."""

    chunk_id: int
    bm25: float | None
    cosine: float | None
    fts_rank: int | None
    vector_rank: int | None


class _Pool(Struct, kw_only=True):
    candidates: list[Candidate]
    bound: float
    total: int
    exact: bool


def run(store: Store, params: Search) -> Found:
    """Raises resource.not_found for an unknown knowledge base."""
    with store.embedding.searching(), store.reading() as snapshot:
        return _Searching(store, snapshot, params).found()


class _Searching:
    """One search over one snapshot."""

    def __init__(self, store: Store, snapshot: Snapshot, params: Search) -> None:
        self.store = store
        self.snapshot = snapshot
        self.params = params
        self.query = parse_query(params.query)
        self.notice: list[str] = []
        self.wanted = params.offset + params.limit

    def found(self) -> Found:
        docs.require_kbs(self.snapshot.queries, self.params.kb)
        mode = self._mode_and_vector()
        filter = document_filter(self.params)
        restriction = restriction_of(self.snapshot, filter)
        pool = self._pool(mode, restriction)
        ranked = self._ranked(pool, mode)
        page, rows, more = self._page(ranked)
        hits = [self._hit(id, fused, rows[id], pool) for id, fused in page]
        results = Results(
            query=self.params.query,
            results=hits,
            total_matches=len(ranked) if self._narrowed else pool.total,
            total_is_exact=pool.exact,
            returned=len(hits),
        )
        hint = None if hits else self._why_nothing(mode, filter, pool)
        return Found(results=results, has_more=more, hint=hint, notice=self.notice)

    def _mode_and_vector(self) -> str:
        """The mode that can be served; hybrid without a model is fts, and says so."""
        self.vector: NDArray[np.float32] | None = None
        if self.params.mode == "fts":
            return "fts"
        self.vector, why = self.store.embedding.query_vector(self.params.query)
        if self.vector is None or self.store.vectors is None:
            self.notice.append(why or "No vector is there yet: only words are searched.")
            return "fts" if self.params.mode == "hybrid" else "none"
        return self.params.mode

    @property
    def _narrowed(self) -> bool:
        """Conditions that only a scored candidate can meet or fail."""
        p = self.params
        return p.min_score is not None or p.min_similarity is not None or bool(p.min_confidence)

    # --------------------------------------------------------------- candidates

    def _pool(self, mode: str, restriction: Restriction) -> _Pool:
        if mode == "none" or (mode == "fts" and self.query.reason):
            return _Pool(candidates=[], bound=0.0, total=0, exact=mode == "fts")
        if mode == "fts":
            return self._fts_pool(restriction)
        return self._mixed_pool(mode, restriction)

    def _size(self) -> int:
        """The same for all pages up to the pool, so that paging sees one ranking."""
        size = POOL
        while size < self.wanted + 1:
            size *= 2
        return size if self.params.per_document is None else size * 4

    def _fts_pool(self, restriction: Restriction) -> _Pool:
        fulltext, bound = self.snapshot.fulltext, self.snapshot.fulltext.bound(self.query)
        limit = _MOST_FETCHED if self._narrowed else self.wanted + 1
        if self.params.per_document is not None:
            limit = max(limit, self._size())
        hits = fulltext.search(self.query, limit, restriction=restriction)
        candidates = [
            Candidate(chunk_id=id, bm25=score, cosine=None, fts_rank=rank, vector_rank=None)
            for rank, (id, score) in enumerate(zip(hits.chunk_ids, hits.raw_scores, strict=True), 1)
        ]
        return _Pool(candidates=candidates, bound=bound, total=hits.total, exact=True)

    def _mixed_pool(self, mode: str, restriction: Restriction) -> _Pool:
        """Both channels' best, each reckoned in both; in mode vector only the nearest."""
        size, fulltext = self._size(), self.snapshot.fulltext
        by_word: dict[int, float] = {}
        word_ranks: dict[int, int] = {}
        if mode == "hybrid" and not self.query.reason:
            hits = fulltext.search(self.query, size, restriction=restriction)
            by_word = dict(zip(hits.chunk_ids, hits.raw_scores, strict=True))
            word_ranks = {id: rank for rank, id in enumerate(hits.chunk_ids, 1)}
        near, near_scores = self._vectors.search(
            self.vector, size, restriction=restriction, ef_search=self.params.ef_search
        )
        nearest: list[int] = self._permitted(near.tolist())
        ranks = {id: rank for rank, id in enumerate(nearest, 1)}
        by_meaning = dict(zip(near.tolist(), near_scores.tolist(), strict=True))
        if mode == "hybrid":
            by_word |= self._missing_words([id for id in nearest if id not in by_word])
            by_meaning |= self._missing_cosines([id for id in by_word if id not in by_meaning])
        ids = list(dict.fromkeys([*word_ranks, *nearest]))
        candidates = [
            Candidate(
                chunk_id=id,
                bm25=by_word.get(id),
                cosine=by_meaning.get(id),
                fts_rank=word_ranks.get(id),
                vector_rank=ranks.get(id),
            )
            for id in ids
        ]
        bound = fulltext.bound(self.query) if mode == "hybrid" else 0.0
        return _Pool(candidates=candidates, bound=bound, total=len(candidates), exact=False)

    @functools.cached_property
    def _vectors(self) -> Any:
        vectors = self.store.vectors
        return vectors.snapshot() if vectors is not None else None

    def _permitted(self, ids: list[int]) -> list[int]:
        """Phrases and excluded words bind the vector channel, too."""
        if not (self.query.phrases or self.query.excluded):
            return ids
        allowed = self.snapshot.fulltext.permitted(self.query, ids)
        return [id for id in ids if id in allowed]

    def _missing_words(self, ids: list[int]) -> dict[int, float]:
        if not ids or self.query.reason:
            return {}
        return self.snapshot.fulltext.scores(self.query, ids)

    def _missing_cosines(self, ids: list[int]) -> dict[int, float]:
        if not ids:
            return {}
        found = self._vectors.cosines(self.vector, ids).tolist()
        return {id: cosine for id, cosine in zip(ids, found, strict=True) if not math.isnan(cosine)}

    # -------------------------------------------------------------------- scores

    def _ranked(self, pool: _Pool, mode: str) -> list[tuple[int, fusion.Fused]]:
        channels: Any = "hybrid" if mode == "none" else mode
        fused = {c.chunk_id: self._fused(c, pool.bound, channels) for c in pool.candidates}
        ranked = fusion.ordered(fused)
        if self.params.min_score is not None:
            ranked = [entry for entry in ranked if entry[1].score >= self.params.min_score]
        if self.params.min_similarity is not None:
            near = {c.chunk_id for c in pool.candidates if self._similar(c)}
            ranked = [entry for entry in ranked if entry[0] in near]
        return [] if self.params.min_confidence else ranked

    def _similar(self, candidate: Candidate) -> bool:
        least = self.params.min_similarity or 0.0
        return candidate.cosine is not None and candidate.cosine >= least

    def _fused(self, candidate: Candidate, bound: float, mode: Any) -> fusion.Fused:
        if self.params.fusion == "rrf":
            return fusion.rrf(
                fts_rank=candidate.fts_rank,
                vector_rank=candidate.vector_rank,
                mode=mode,
                pending=candidate.cosine is None,
            )
        return fusion.blend(bm25=candidate.bm25, cosine=candidate.cosine, bound=bound, mode=mode)

    # ---------------------------------------------------------------------- page

    def _page(
        self, ranked: list[tuple[int, fusion.Fused]]
    ) -> tuple[list[tuple[int, fusion.Fused]], dict[int, tuple[ChunkRow, DocumentRow]], bool]:
        """The page, its rows, and whether there is more."""
        queries, start = self.snapshot.queries, self.params.offset
        if self.params.per_document is not None:
            owners = queries.document_of_chunks([id for id, _ in ranked])
            ranked = list(_at_most_each(ranked, owners, self.params.per_document))
        page = ranked[start : self.wanted]
        rows = queries.hits([id for id, _ in page]) if page else {}
        # A vector may be a step ahead of the rows of this snapshot.
        return [e for e in page if e[0] in rows], rows, len(ranked) > self.wanted

    def _hit(
        self, id: int, fused: fusion.Fused, row: tuple[ChunkRow, DocumentRow], pool: _Pool
    ) -> Hit:
        chunk, document = row
        short = snippet(chunk.text, self.query.terms, self.params.snippet_chars)
        return Hit(
            chunk_id=id,
            score=fused.score,
            score_breakdown=Breakdown(fts=fused.fts, vector=fused.vector),
            text=chunk.text,
            snippet=short.text,
            highlights=short.highlights if self.params.highlight else [],
            source=HitSource(
                document_id=document.id,
                title=document.title,
                path=document.path or document.url,
                type=document.type,
                page=chunk.page,
                section=chunk.section,
                chunk_index=chunk.idx,
                total_chunks=document.chunk_count,
                tags=list(document.tags),
                kb=document.kb,
            ),
            confidence=None,
            expires_at=None,
            superseded_by=None,
            explain=self._explained(id, pool) if self.params.explain else msgspec.UNSET,
        )

    def _explained(self, id: int, pool: _Pool) -> dict[str, Any]:
        candidate = next(c for c in pool.candidates if c.chunk_id == id)
        terms = self.snapshot.fulltext.explain(self.query, [id])[id] if pool.bound else []
        formula = (
            {"fusion": "rrf", "k": fusion.RRF_K}
            if self.params.fusion == "rrf"
            else {
                "fusion": "blend",
                "fts_weight": fusion.FULLTEXT_WEIGHT,
                "vector_weight": fusion.VECTOR_WEIGHT,
            }
        )
        return {
            "fts": {
                "rank": candidate.fts_rank,
                "bm25": candidate.bm25,
                "bound": pool.bound,
                "terms": [
                    {"word": t.word, "form": t.form, "idf": t.idf, "boost": t.boost,
                     "weight": t.weight}
                    for t in terms
                ],
            },
            "vector": {"rank": candidate.vector_rank, "cosine": candidate.cosine},
            "formula": formula,
        }  # fmt: skip

    # ------------------------------------------------------------------- no hits

    def _why_nothing(self, mode: str, filter: DocumentFilter, pool: _Pool) -> str:
        if not self.snapshot.published.chunks:
            return "The store is empty: add documents with doc.ingest or doc.create."
        if self.params.min_score is not None and self.params.min_score > self._greatest_score(mode):
            return (
                f"min_score {self.params.min_score:g} is above {self._greatest_score(mode):.6g}, "
                f"the greatest score of {self.params.fusion}."
            )
        if pool.total and self._narrowed:
            return f"{pool.total} candidates did not reach min_score or min_similarity."
        if pool.total:
            return f"offset {self.params.offset} is beyond the last of {pool.total} matches."
        if self.query.reason and mode == "fts":
            return self.query.reason
        if mode == "none":
            return f"Mode vector can't be served. {self.notice[0]}"
        return self._why_no_candidate(filter)

    def _greatest_score(self, mode: str) -> float:
        if self.params.fusion == "blend":
            return 1.0
        channels = 2 if mode == "hybrid" else 1
        return round(channels / (fusion.RRF_K + 1), fusion.PLACES)

    def _why_no_candidate(self, filter: DocumentFilter) -> str:
        from kbproc.views.base import Restriction
        from kbproc.views.queries import DocumentFilter

        if filter != DocumentFilter(tags_mode=filter.tags_mode):
            if not self.snapshot.queries.count(filter):
                return "No document matches the filters; leave some out."
            hits = self.snapshot.fulltext.search(self.query, 1, restriction=Restriction())
            if hits.total:
                return f"The filters removed all {hits.total} matches; leave some out."
        unknown = self.snapshot.fulltext.unknown_words(self.query)
        if unknown:
            return f"No chunk holds {', '.join(unknown)}; try other words."
        return "No chunk matches; try fewer phrases and excluded words."


def document_filter(params: Search) -> DocumentFilter:
    return docs.filter_of(params, ids=params.document_ids)


def restriction_of(snapshot: Snapshot, filter: DocumentFilter) -> Restriction:
    """What the indexes need to know of a filter; anything but a kb becomes document ids."""
    from kbproc.views.base import Restriction

    if filter.only_kbs:
        return Restriction(kbs=None if filter.kbs is None else tuple(filter.kbs))
    return Restriction(documents=snapshot.queries.document_ids(filter))


def _at_most_each(
    ranked: Iterable[tuple[int, fusion.Fused]], owners: dict[int, int], most: int
) -> Iterable[tuple[int, fusion.Fused]]:
    seen: dict[int, int] = {}
    for id, fused in ranked:
        owner = owners.get(id, 0)
        seen[owner] = seen.get(owner, 0) + 1
        if seen[owner] <= most:
            yield id, fused
