"""Search: from a query to a page of hits.

Owns: the mode that can be served, scores, totals and paging.
Refuses to know: the wire, how candidates are found, how each channel ranks inside.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property, partial
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from kbproc.base.errors import KbprocError
from kbproc.documents import lookup, selection
from kbproc.models.calibration import AS_IT_IS
from kbproc.models.fluency import FLUENT
from kbproc.search import fusion
from kbproc.search.candidates import (
    Candidate,
    Mixed,
    Pool,
    by_words,
    everything,
    pool_size,
    restriction_of,
)
from kbproc.search.confidence import LEAST_SCORE, RELATED, Evidence, evidence
from kbproc.search.hints import Asked
from kbproc.search.hits import Hit, Results, explanation, hit_of
from kbproc.search.language import Language, language
from kbproc.search.params import Search
from kbproc.search.reading import LONG, read, without_exclusions
from kbproc.search.rereading import Judged, Ranked, require, reread
from kbproc.search.stress import Parts, between, stressed
from kbproc.search.support import Support, support, together
from kbproc.search.times import Times
from kbproc.store.snapshot import Moved, Snapshot
from kbproc.store.state import Freshness, Model, State
from kbproc.text.likeness import unlike
from kbproc.text.query import parse_query
from kbproc.text.snippet import BEST_CHARS, Centre, extract, snippet
from kbproc.views.catalog.filters import DocumentFilter
from kbproc.views.catalog.rows import IndexRow
from kbproc.views.restriction import Restriction

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from kbproc.views.fulltext.search import FullTextHits
    from kbproc.views.vectors.view import Vectors

_MOST_FETCHED = 10_000
_MOST_POOLED = 100_000
_HARDLY = 0.5
_RARE = {
    "other": "The embedding model hardly knows this language",
    "unknown": "These words are rare in the embedding model",
}
_OTHER_MODEL = "model.use changes to a model that knows more languages."
# From this `lean` on, words tell nothing of whether a passage answers.
_LEANING = 0.5
_TELLING = 0.75  # nearly all English questions, and few of other languages


class Answer(Struct, frozen=True, kw_only=True):
    """`evidence`: of the best hit. `support`: of the same, where it was asked for; None too where
    the model has no vector of the query that means much.
    """

    results: Results
    evidence: Evidence
    support: Support | None
    has_more: bool
    hint: str | None
    notice: list[str]
    freshness: Freshness


def run(
    state: State,
    params: Search,
    *,
    now: str,
    centre: Centre = "densest",
    supported: bool = False,
    **only: Any,
) -> Answer:
    """`now`: the moment at which entries must hold; `only`: more of a DocumentFilter.

    `supported`: whether to tell how well the best hit seems to answer.

    Raises resource.not_found for an unknown knowledge base.
    """
    given = {
        "ids": params.document_ids,
        "hide_superseded": not params.include_superseded,
        "valid_at": None if params.include_expired else now,
        **only,
    }
    filter = selection.filter_of(params, **given)
    with state.model.searching():
        try:
            with state.reading() as snapshot:
                return _Searching(state, snapshot, params, filter, now, centre).answer(supported)
        except Moved:
            with state.reading() as snapshot:
                snapshot.pin()
                return _Searching(state, snapshot, params, filter, now, centre).answer(supported)


def _model_of(state: State) -> tuple[Model, Vectors | None]:
    """The model and the vectors made by it: another may be swapped in this very moment."""
    while True:
        embedding, vectors = state.model, state.vectors
        if vectors is None or vectors.pack is embedding.pack:
            return embedding, vectors


class _Searching:
    """One search over one snapshot."""

    def __init__(
        self,
        state: State,
        snapshot: Snapshot,
        params: Search,
        filter: DocumentFilter,
        now: str,
        centre: Centre,
    ) -> None:
        self.state = state
        self.snapshot = snapshot
        self.params = params
        self.filter = filter
        self.centre: Centre = centre
        self.query = parse_query(params.query)
        self.times = Times.of(params.query, now) if params.fusion != "rrf" else None
        self.repeated: dict[int, list[int]] = {}
        self.judged: dict[int, Judged] = {}
        self.best_passages: dict[str, tuple[int, int] | None] = {}
        self.notice: list[str] = []
        self.wanted = params.offset + params.limit
        # How many of the ranking are needed: a cross-encoder reads so many whatever is shown.
        self.depth = state.reranker.candidates if params.fusion == "rerank" else self.wanted
        # Words alone are searched without ever opening the vectors.
        needs_vectors = params.mode != "fts" or params.explain
        self.embedding, self.vectors = _model_of(state) if needs_vectors else (state.model, None)

    def answer(self, supported: bool) -> Answer:
        if self.params.fusion == "rerank":
            require(self.state.reranker)
        if self.params.kb is not None:
            lookup.require_kbs(self.snapshot.kbs, self.params.kb)
        self.mode = mode = self._mode_and_vector()
        restriction = restriction_of(self.snapshot, self.filter)
        self.query, said = read(self.snapshot, self.query, restriction)
        self.notice += said
        self._stress(mode, restriction)
        pool, ranked = self._enough(mode, restriction)
        if self.query.excluded and self._evidence(pool, ranked, mode).level != "likely":
            pool, ranked = self._including(pool, ranked, mode, restriction)
        if self.params.fusion == "rerank" and ranked:
            ranked = self._reread(ranked, pool)
            pool.total, pool.exact = len(ranked), True
            ranked = self._at_least(ranked)
        page, rows = self._page(ranked, pool)
        heads = self._heads(rows)
        hits = [self._hit(id, fused, rows[id], pool, heads) for id, fused in page]
        support = self._support_of_best(pool, hits) if supported else None
        best = self._evidence(pool, ranked, mode)
        results = Results(
            query=self.params.query,
            results=self._extracts(hits),
            total_matches=len(ranked) if self.params.narrows else pool.total,
            total_is_exact=pool.exact,
            returned=len(hits),
            confidence=best.level,
        )
        asked = Asked(self.snapshot, self.params, self.query, mode, self.filter)
        hint = asked.remark(results, best) if hits else asked.why_nothing(pool)
        return Answer(
            results=results,
            evidence=best,
            support=support,
            has_more=len(ranked) > self.wanted,
            hint=hint,
            notice=self.notice,
            freshness=self.state.freshness(self.snapshot),
        )

    def _including(
        self,
        pool: Pool,
        ranked: Ranked,
        mode: fusion.Mode,
        restriction: Restriction,
    ) -> tuple[Pool, Ranked]:
        """The hits without the query's exclusions, if these exclude every match by words."""
        replacement = without_exclusions(self.snapshot, self.query, restriction)
        if replacement is None:
            return pool, ranked
        self.query, notice = replacement
        self.notice.append(notice)
        return self._enough(mode, restriction)

    def _evidence(self, pool: Pool, ranked: Ranked, mode: fusion.Mode) -> Evidence:
        """The evidence for the best hit, whatever the hits are ranked by."""
        if not ranked:
            return evidence(0.0, None, self._chunks)
        is_blend = self.params.fusion == "blend"
        id = ranked[0][0] if is_blend else self._best(pool, ranked, mode)
        return self._evidence_of(id, pool, mode)

    def _best(self, pool: Pool, ranked: Ranked, mode: fusion.Mode) -> int:
        """The hit with the highest score that is absolute."""
        kept = {id for id, _ in ranked}
        scores = {
            c.chunk_id: fusion.blend(c.cosine, c.bm25, pool.bound, mode, self.weights).score
            for c in pool.candidates
            if c.chunk_id in kept
        }
        return max(scores, key=lambda id: (scores[id], -id))

    def _evidence_of(
        self, id: int, pool: Pool, mode: fusion.Mode, text: str | None = None
    ) -> Evidence:
        """The evidence for a hit; reads its text where the text may raise the chance."""
        candidate = _candidate(pool, id)
        words = fusion.blend(None, candidate.bm25, pool.bound, "fts").score
        knows = self.fluency.factor >= _TELLING
        cosine = candidate.cosine if knows and mode != "fts" else None
        judge = partial(
            evidence,
            None if mode == "vector" else words,
            None if cosine is None else round(max(0.0, cosine), fusion.PLACES),
            self._chunks,
        )
        evident = judge()
        # The language changes no level that is the highest without it.
        matters = evident.level != "likely" or self.params.explain
        if cosine is None and matters and self._is_foreign:
            evident = judge(is_foreign=True)
        if evident.level != "likely" and mode != "vector":
            if text is None:
                row = self.snapshot.hits([id], pool.places).get(id)
                text = row.text if row else ""
            share = together(self.snapshot.fulltext, self.query, self._passage(text))
            evident = evident.with_passage(share)
        if self.query.phrases and evident.level == "none":  # the hit holds the phrase
            return msgspec.structs.replace(evident, chance=RELATED)
        return evident

    @cached_property
    def _language(self) -> Language:
        return language(self.query, self.snapshot.fulltext)

    @property
    def _is_foreign(self) -> bool:
        return self.fluency.factor < _TELLING or self._language == "other"

    @property
    def _chunks(self) -> int:
        return self.snapshot.fulltext.clauses.counted

    def _enough(self, mode: fusion.Mode, restriction: Restriction) -> tuple[Pool, Ranked]:
        """A pool, and its candidates, best first, of each document as many as are wanted.

        One document may hold the best thousand, or all say the same: then a larger pool is needed.
        """
        size = pool_size(self.depth + 1)
        while True:
            pool = self._pool(mode, restriction, size)
            ranked = self._ranked(pool, mode)
            if not self.params.thins:
                return pool, ranked
            spread = self._thinned(ranked)
            if len(spread) > self.depth or pool.whole or size > _MOST_POOLED:
                return pool, spread
            size *= 4

    def _thinned(self, ranked: Ranked) -> Ranked:
        """Of each document as many as are wanted, and none that repeats a better one."""
        rows = self.snapshot.fulltext.rows([id for id, _ in ranked])
        if self.params.per_document is not None:
            owners = {id: row.document_id for id, row in rows.items()}
            ranked = list(_at_most_each(ranked, owners, self.params.per_document))
        if not self.params.distinct:
            return ranked
        self.repeated = {}
        texts = ((id, rows[id].text) for id, _ in ranked if id in rows)
        kept = set(islice(unlike(texts, self.repeated), self.depth + 1))
        return [entry for entry in ranked if entry[0] in kept]

    def _mode_and_vector(self) -> fusion.Mode:
        """The mode that can be served; hybrid without a model is fts, and says so.

        Raises model.unavailable where meaning alone is asked for.
        """
        self.vector: NDArray[np.float32] | None = None
        self.fluency = FLUENT
        self.weights = fusion.Weights()
        self.lean = 0.0
        if self.params.mode == "fts":
            return "fts"
        self.vector, why = self.embedding.query_vector(self.params.query)
        if self.vector is None or self.vectors is None:
            why = why or "No vector is there yet."
            if self.params.mode == "vector":
                message = f"Mode vector can't be served. {why}"
                hint = "Use mode hybrid or fts, which search words; doctor tells of the model."
                raise KbprocError("model.unavailable", message, field="$.params.mode", hint=hint)
            self.notice.append(f"Only words are searched. {why}")
            return "fts"
        self._weigh()
        return self.params.mode

    def _weigh(self) -> None:
        """Lets meaning count for less where the model lacks the query's language."""
        words = self._language
        if words != "english":
            is_foreign = words == "other"
            self.fluency = self.embedding.fluency(self.params.query, is_foreign=is_foreign)
        self.weights = fusion.Weights.of(self.fluency.factor)
        if self.fluency.factor < _HARDLY:
            share = f"{self.weights.vector:.0%}" if self.params.mode == "hybrid" else "all"
            counts = f"meaning counts for {share} of a score"
            self.notice.append(f"{_RARE[words]}: {counts}. {_OTHER_MODEL}")

    def _stress(self, mode: fusion.Mode, restriction: Restriction) -> None:
        """Of a mail, the sentence that asks counts half."""
        self.stress = None
        if len(self.query.said) <= LONG:
            return
        parts = Parts(
            fulltext=self.snapshot.fulltext,
            vectors=None if mode == "fts" or self.vectors is None else self.vectors.snapshot(),
            embed=lambda text: self.embedding.query_vector(text)[0],
            weights=self.weights if mode == "hybrid" else fusion.ALONE[mode],
            restriction=restriction,
        )
        self.stress = found = parts.best(self.params.query)
        if found is None:
            return
        self.query = stressed(self.snapshot.fulltext, self.query, found)
        if self.vector is not None:
            self.vector = between(self.vector, self.embedding.query_vector(found.sentence)[0])
        self.notice.append(f"Of this long text the sentence “{found.sentence}” counts half.")

    def _pool(self, mode: fusion.Mode, restriction: Restriction, size: int) -> Pool:
        params, snapshot = self.params, self.snapshot
        if mode == "fts" or self.vector is None or self.vectors is None:
            limit = _MOST_FETCHED if params.narrows else self.depth + 1
            limit = max(limit, size) if params.thins or self.times else limit
            return by_words(snapshot.fulltext, self.query, restriction, limit)
        hits = None
        if mode == "hybrid":
            hits = snapshot.fulltext.search(self.query, size, restriction=restriction)
            self._lean(hits, restriction)
        mixed = Mixed(
            fulltext=snapshot.fulltext,
            vectors=self.vectors.snapshot(),
            query=self.query,
            vector=self.vector,
            weights=self.weights,
            restriction=restriction,
        )
        every = params.narrows or params.thins or params.explain
        every = every or params.fusion == "rrf" or self.times is not None
        return mixed.pool(hits, size, params.ef_search, None if every else self.depth + 1)

    def _lean(self, hits: FullTextHits, restriction: Restriction) -> None:
        """Lets meaning count for more where no text that may be seen holds much of the query.

        No filter changes that, so that a chunk's score does not depend on filters.
        """
        fulltext = self.snapshot.fulltext
        bound = fulltext.bound(self.query)
        if self.fluency.factor < _TELLING or not bound or fulltext.clauses.is_foreign(self.query):
            return
        if self.query.excluded or not self._sees_all(restriction):
            query = msgspec.structs.replace(self.query, excluded=())
            hits = fulltext.search(query, 1, restriction=everything(self.snapshot))
        best = hits.raw_scores[0] if hits.raw_scores else 0.0
        self.lean = fusion.lean(best / bound, best / fulltext.clauses.word_worth)
        self.weights = fusion.Weights.of(self.fluency.factor, self.lean)

    def _sees_all(self, restriction: Restriction) -> bool:
        return self.snapshot.sight is None and self.snapshot.fulltext.is_whole(restriction)

    # -------------------------------------------------------------------- scores

    def _ranked(self, pool: Pool, mode: fusion.Mode) -> Ranked:
        """Best first."""
        candidates = self._near_enough(pool)
        fused = {c.chunk_id: self._fused(c, pool.bound, mode) for c in candidates}
        if self.times is not None:
            fused = self.times.weighed(self.snapshot, fused)
        ranked = [entry for entry in fusion.ordered(fused) if entry[1].score >= LEAST_SCORE]
        return ranked if self.params.fusion == "rerank" else self._at_least(ranked)

    def _at_least(self, ranked: Ranked) -> Ranked:
        least = self.params.min_score or 0.0
        return [entry for entry in ranked if entry[1].score >= least]

    def _reread(self, ranked: Ranked, pool: Pool) -> Ranked:
        """The best in the cross-encoder's order, or as they are where it can't be asked."""
        best = ranked[: self.depth]
        rows = self.snapshot.hits([id for id, _ in best], pool.places)
        best = [entry for entry in best if entry[0] in rows and self._holds(rows[entry[0]])]
        factor = self.times.factor if self.times else lambda id: 1.0
        try:
            ranked, self.judged = reread(self.state.reranker, self.params.query, best, rows, factor)
        except KbprocError as error:
            self.notice.append(
                f"No cross-encoder has read the hits: {error.message} Scores and "
                "order are those of fusion blend."
            )
            return best
        return ranked

    def _near_enough(self, pool: Pool) -> list[Candidate]:
        least = self.params.min_similarity
        if least is None:
            return pool.candidates
        return [c for c in pool.candidates if c.cosine is not None and c.cosine >= least]

    def _fused(self, candidate: Candidate, bound: float, mode: fusion.Mode) -> fusion.Fused:
        if self.params.fusion == "rrf":
            return fusion.rrf(
                fts_rank=candidate.fts_rank,
                vector_rank=candidate.vector_rank,
                mode=mode,
                pending=candidate.cosine is None,
            )
        return fusion.blend(candidate.cosine, candidate.bm25, bound, mode, self.weights)

    # ---------------------------------------------------------------------- page

    def _page(self, ranked: Ranked, pool: Pool) -> tuple[Ranked, dict[int, IndexRow]]:
        """The page and its rows."""
        page = ranked[self.params.offset : self.wanted]
        rows = self.snapshot.hits([id for id, _ in page], pool.places) if page else {}
        # A vector may be a step ahead of the rows of this snapshot, or behind.
        return [e for e in page if e[0] in rows and self._holds(rows[e[0]])], rows

    def _heads(self, rows: dict[int, IndexRow]) -> dict[int, int]:
        """Of entries that are superseded: a chain may have grown without touching them."""
        old = [row.document_id for row in rows.values() if row.superseded_by is not None]
        if not old:
            return {}
        return {id: row.head for id, row in self.snapshot.queries.entries_by_id(old).items()}

    def _holds(self, row: IndexRow) -> bool:
        wanted = self.filter
        if wanted.hide_superseded and row.superseded_by is not None:
            return False
        over = wanted.valid_at is not None and row.expires_at is not None
        return not (over and str(row.expires_at) <= str(wanted.valid_at))

    def _hit(
        self, id: int, fused: fusion.Fused, row: IndexRow, pool: Pool, heads: dict[int, int]
    ) -> Hit:
        chars = self.params.snippet_chars
        marked, in_parts = self.query.marked, self.query.in_parts
        short = snippet(row.text, marked, chars, centre=self.centre, in_parts=in_parts)
        self.best_passages[row.text] = short.best
        return hit_of(
            id,
            fused,
            row,
            short if self.params.highlight else short._replace(highlights=[]),
            judged=id in self.judged,
            head=heads.get(row.document_id),
            repeated=self.repeated.get(id),
            explain=self._explanation(id, fused.score, row.text, pool)
            if self.params.explain
            else msgspec.UNSET,
        )

    def _extracts(self, hits: list[Hit]) -> list[Hit]:
        """The hits with texts that have `text_chars` characters on average, or fewer."""
        chars = self.params.text_chars
        if chars is None:
            return hits
        most = _fair_share([len(hit.text) for hit in hits], chars * len(hits))
        return [
            msgspec.structs.replace(hit, text=self._extract(hit, most))
            if len(hit.text) > most
            else hit
            for hit in hits
        ]

    def _extract(self, hit: Hit, chars: int) -> str:
        return extract(hit.text, self.best_passages[hit.text], chars)

    def _support_of_best(self, pool: Pool, hits: list[Hit]) -> Support | None:
        if not hits or self.params.offset:
            return None
        cosine = _candidate(pool, hits[0].chunk_id).cosine
        return self._support(hits[0].text, hits[0].score, cosine)

    def _support(self, text: str, score: float, cosine: float | None) -> Support | None:
        """The support of one hit; None where no cosine or no word tells much, or for fusion rrf."""
        telling = self.fluency.factor >= _TELLING and self.params.fusion == "blend"
        if cosine is None or not telling or self.lean > _LEANING or self.params.mode != "hybrid":
            return None
        passage = self._passage(text)
        fulltext = self.snapshot.fulltext
        return support(fulltext, self.query, score=score, cosine=cosine, passage=passage)

    def _passage(self, text: str) -> str:
        """The passage of a text that holds most of the query's words, or ""."""
        if text not in self.best_passages:
            short = snippet(text, self.query.marked, BEST_CHARS, in_parts=self.query.in_parts)
            self.best_passages[text] = short.best
        best = self.best_passages[text]
        return text[slice(*best)] if best else ""

    def _explanation(self, id: int, score: float, text: str, pool: Pool) -> dict[str, Any]:
        candidate = _candidate(pool, id)
        terms = self.snapshot.fulltext.explain(self.query, [id])[id] if pool.bound else []
        return explanation(
            candidate,
            terms,
            bound=pool.bound,
            weights=self.weights,
            fluency=self.fluency,
            scale=self.vectors.pack.scale if self.vectors is not None else AS_IT_IS,
            stress=self.stress,
            time=self.times.told(id) if self.times else None,
            evidence=self._evidence_of(id, pool, self.mode, text),
            support=self._support(text, score, candidate.cosine),
            by_rank=self.params.fusion == "rrf",
            judged=self.judged.get(id),
            sees_all=self.snapshot.sight is None,
        )


def _candidate(pool: Pool, id: int) -> Candidate:
    return next(c for c in pool.candidates if c.chunk_id == id)


def _at_most_each(
    ranked: Iterable[tuple[int, fusion.Fused]], owners: dict[int, int], most: int
) -> Iterable[tuple[int, fusion.Fused]]:
    seen: dict[int, int] = {}
    for id, fused in ranked:
        owner = owners.get(id, 0)
        seen[owner] = seen.get(owner, 0) + 1
        if seen[owner] <= most:
            yield id, fused


def _fair_share(lengths: list[int], total: int) -> int:
    """The greatest length to which all can be cut so that they have `total` together."""
    remaining = total
    for place, length in enumerate(sorted(lengths)):
        share = remaining // (len(lengths) - place)
        if length > share:
            return share
        remaining -= length
    return max(lengths, default=0)
