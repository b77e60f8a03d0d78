"""Runs a search: chooses the mode, scores candidates, and returns a page of hits with totals."""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from kbproc.base.errors import KbprocError
from kbproc.base.settings.config import DEFAULT_KB
from kbproc.base.text.likeness import unlike
from kbproc.base.text.query import parse_query
from kbproc.base.text.snippet import BEST_CHARS, Centre, extract, snippet
from kbproc.base.wording import pending_in_words
from kbproc.engine.events.document import CONVERSATION
from kbproc.engine.events.origin import FOREIGN
from kbproc.engine.models.calibration import UNSCALED
from kbproc.engine.models.fluency import FLUENT
from kbproc.engine.projections.catalog.filters import DocumentFilter
from kbproc.engine.projections.catalog.rows import HitRow
from kbproc.engine.projections.restriction import Restriction
from kbproc.engine.store.model import Model
from kbproc.engine.store.snapshot import Snapshot
from kbproc.engine.store.state import Freshness, State
from kbproc.knowledge.documents import lookup, selection
from kbproc.knowledge.search import fusion
from kbproc.knowledge.search.candidates import (
    Candidate,
    CandidatePool,
    Mixed,
    by_words,
    everything,
    pool_size,
    restriction_of,
)
from kbproc.knowledge.search.hints import SearchHints
from kbproc.knowledge.search.hits import Hit, Results, StandingInstruction, explanation, hit_of
from kbproc.knowledge.search.params import Search
from kbproc.knowledge.search.probability import (
    LEAST_SCORE,
    LIKELY,
    NOTHING,
    RELATED,
    Evidence,
    QueryWords,
)
from kbproc.knowledge.search.reading import LONG, Language, language, read, without_exclusions
from kbproc.knowledge.search.rereading import Judgement, Ranked, require, reread
from kbproc.knowledge.search.stress import Parts, between, stressed
from kbproc.knowledge.search.times import Times

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from kbproc.engine.projections.catalog.queries import Queries
    from kbproc.engine.projections.fulltext.search import FullTextHits
    from kbproc.knowledge.search.conversations import Conversations
    from kbproc.knowledge.search.naming import Subject

# A model, and what it has returned for the query.
EmbeddedQuery = tuple[Model, "tuple[NDArray[np.float32] | None, str | None] | None"]
_MOST_FETCHED = 10_000
_MOST_POOLED = 100_000
_LOOKED_AT = 50  # hits of which some may be what the query is about
_HARDLY = 0.5
_RARE = {
    "other": "The embedding model hardly knows this language",
    "unknown": "These words are rare in the embedding model",
}
_OF_CONVERSATIONS = DocumentFilter(types=[CONVERSATION])
_OTHER_MODEL = "model.use changes to a model that knows more languages."
# The least share of passages without vectors that an answer mentions.
_NOTICEABLE = 0.01
_UNRANKED = Candidate(chunk_id=0, bm25=None, cosine=None, fts_rank=None, vector_rank=None)
# The least fluency at which a cosine counts; nearly all English questions reach it, and few in
# other languages.
_TELLING = 0.75


class SearchAnswer(Struct, frozen=True, kw_only=True):
    """The answer to a search.

    `evidence`: that of the best hit. `vector`: the query's; None if the model lacks its language.
    `standing`: the instructions that bear on the query.
    """

    results: Results
    standing: list[StandingInstruction]
    evidence: Evidence
    vector: NDArray[np.float32] | None
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
    **other_conditions: Any,
) -> SearchAnswer:
    """Runs a search over the current snapshot.

    `now`: the moment at which entries must be valid. `other_conditions`: further conditions of the
    DocumentFilter.

    Raises resource.not_found for an unknown knowledge base.
    """
    conditions = {
        "ids": params.document_ids,
        "hide_superseded": not params.include_superseded,
        "valid_at": None if params.include_expired else now,
        **other_conditions,
    }
    filter = selection.filter_of(params, **conditions)
    if params.mode != "fts" or params.explain:  # a search by words alone never opens the vectors
        state.open_vectors()
    model = state.model
    with model.searching():
        # Before the snapshot, because a model may work for long and a pinned catalog grows.
        embedded = model, None if params.mode == "fts" else model.query_vector(params.query)
        with state.searching() as snapshot:
            run = _SearchRun(state, snapshot, params, filter, now, centre, embedded)
            return run.answer()


class _SearchRun:
    """A search over one snapshot."""

    def __init__(
        self,
        state: State,
        snapshot: Snapshot,
        params: Search,
        filter: DocumentFilter,
        now: str,
        centre: Centre,
        embedded: EmbeddedQuery,
    ) -> None:
        self.state = state
        self._embedded = embedded
        self.snapshot = snapshot
        self.params = params
        self.filter = filter
        self.centre: Centre = centre
        self.query = parse_query(params.query)
        self.times = Times.of(params.query, now) if params.fusion != "rrf" else None
        self.rows: dict[int, HitRow] = {}  # each is read once
        self.repeated: dict[int, list[int]] = {}
        self.replaced: dict[int, HitRow] = {}  # hit → the superseded entry's row it stands for
        self.now = now
        self.described: set[str] = set()  # knowledge bases that hits have described
        self.names: dict[int, list[str]] = {}  # hit → its names that stand in the query
        self.judgements: dict[int, Judgement] = {}
        self.best_passages: dict[str, tuple[int, int] | None] = {}
        self.notice: list[str] = []
        self.page_end = params.offset + params.limit
        # The number of ranked hits to find; a cross-encoder reads the same number for every page.
        self.depth = state.reranker.candidates if params.fusion == "rerank" else self.page_end
        if params.about and params.fusion != "rerank":
            self.depth = max(self.depth, _LOOKED_AT)
        # The number of candidates that may be among these.
        self.reach = self.depth
        self.conversations: Conversations | None = None
        needs_vectors = params.mode != "fts" or params.explain
        self.embedding, self.vectors = snapshot.model, snapshot.vectors if needs_vectors else None

    def answer(self) -> SearchAnswer:
        self._require()
        self.mode = mode = self._mode_and_vector()
        restriction = restriction_of(self.snapshot, self.filter)
        self.query, notices = read(self.snapshot, self.query, restriction)
        self.notice += notices
        self._weigh_conversations()
        self._stress_sentence(mode, restriction)
        pool, ranked = self._pool_and_ranking(mode, restriction)
        if self.query.excluded and self._evidence(pool, ranked, mode).level != "likely":
            pool, ranked = self._without_exclusions(pool, ranked, mode, restriction)
        ranked = self._with_successors(pool, ranked, mode)
        # This precedes the endpoint's answer, because other processes may write until it comes.
        freshness = self.state.freshness(self.snapshot)
        is_complete = mode == "fts" or self._is_embedded(freshness.pending_embeddings)
        if self.params.fusion == "rerank" and ranked:
            ranked = self._reread(ranked)
            pool.total, pool.exact = len(ranked), True
            ranked = self._at_least(ranked)
        ranked_count = len(ranked)
        if self.params.about:
            ranked = self._about(pool, ranked)
        whole_page = self._page(ranked)
        page = self._probable(whole_page, pool, mode)
        hits = [self._hit(id, fused, self.rows[id], pool) for id, fused in page]
        best = self._evidence(pool, ranked, mode)
        results = Results(
            query=self.params.query,
            results=self._shortened(hits),
            total_matches=len(ranked) if self.params.narrows else pool.total,
            total_is_exact=pool.exact,
            returned=len(hits),
            confidence=best.level,
        )
        search = self.snapshot, self.params, self.query, mode, self.filter
        hints = SearchHints(*search, is_complete=is_complete)
        hint = hints.remark(results, best) if whole_page else hints.why_nothing(pool, ranked_count)
        return SearchAnswer(
            results=results,
            standing=self._standing(hits if best.level != "none" else []),
            evidence=best,
            vector=self.vector if self.fluency.factor >= _TELLING else None,
            has_more=len(ranked) > self.page_end,
            hint=hint,
            notice=self.notice,
            freshness=freshness,
        )

    def _require(self) -> None:
        """Raises what a param requests in vain: a cross-encoder, or a knowledge base."""
        if self.params.fusion == "rerank":
            require(self.state.reranker)
        if self.params.kb is not None:
            lookup.require_kbs(self.snapshot.kbs, self.params.kb)

    def _standing(self, hits: list[Hit]) -> list[StandingInstruction]:
        """Returns the standing instructions that bear on the query, with the first page only."""
        types, queries = self.filter.types, self.snapshot.queries
        may_be_some = not self.params.offset and (types is None or CONVERSATION in types)
        if not (may_be_some and queries.has_standing()):
            return []
        from kbproc.knowledge.search import standing  # imported late: few stores need it

        return standing.bearing(queries, self.params, self.filter, hits)

    def _weigh_conversations(self) -> None:
        """Prepares the factors of conversations if there may be some among the hits."""
        types = self.filter.types
        may_be_hits = self.params.fusion == "blend" and (types is None or CONVERSATION in types)
        if may_be_hits and self.snapshot.queries.count(_OF_CONVERSATIONS):
            from kbproc.knowledge.search.conversations import Conversations  # few stores need it

            self.conversations = Conversations(self.query, self.params.limit, self._rows)
            self.reach = max(self.depth, self.conversations.first_page)

    def _with_successors(self, pool: CandidatePool, ranked: Ranked, mode: fusion.Mode) -> Ranked:
        """Returns the hits with the entries that answer for superseded ones before them."""
        if mode == "vector" or self.params.fusion != "blend" or self.query.reason:
            return ranked
        if not (self.snapshot.published.roster.superseded and self.filter.hide_superseded):
            return ranked
        from kbproc.knowledge.search import successors  # imported late: few stores need it

        within = successors.superseded_only(self.snapshot, self.filter)
        if within is None:
            return ranked
        fulltext = self.snapshot.fulltext
        hits = fulltext.search(self.query, successors.MOST, restriction=within)
        old = {c.chunk_id: c for c in self._candidates_of(hits, mode)}
        candidates = CandidatePool(
            candidates=[*old.values()], bound=pool.bound, total=0, exact=True
        )
        scores = dict(self._ranked(candidates, mode))
        answers = successors.answering(self.snapshot, self.query, ranked, scores, self._rows)
        rows = self._rows(answers.values())
        answers = {
            id: answer
            for id, answer in answers.items()
            if answer in rows and self._is_valid(rows[answer])
        }
        matches = fulltext.scores(self.query, list(answers.values())) if answers else {}
        for id, answer in answers.items():
            self.replaced[answer] = row = self.rows[id]
            self.evidence.pop(answer, None)  # the new evidence follows from the predecessor's text
            others = [c for c in pool.candidates if c.chunk_id != answer]
            is_new = len(others) == len(pool.candidates) and answer not in matches
            pool.total += is_new
            ranks = next((c for c in pool.candidates if c.chunk_id == answer), _UNRANKED)
            pool.candidates = [
                *others,
                msgspec.structs.replace(
                    old[id],
                    chunk_id=answer,
                    fts_rank=ranks.fts_rank,
                    vector_rank=ranks.vector_rank,
                ),
            ]
            self.notice.append(
                f"What fits best stands in entry {row.document_id}, which entry {row.head} has "
                "superseded."
            )
        first = [(answer, scores[id]) for id, answer in answers.items()]
        return [*first, *(entry for entry in ranked if entry[0] not in self.replaced)]

    def _candidates_of(self, hits: FullTextHits, mode: fusion.Mode) -> Iterable[Candidate]:
        """Yields candidates for hits by words, in mode hybrid with their cosines."""
        cosines: list[float | None] = [None] * len(hits.chunk_ids)
        if mode == "hybrid" and self.vector is not None and self.vectors is not None:
            numbers = self.vectors.cosines(self.vector, hits.chunk_ids).tolist()
            cosines = [None if math.isnan(number) else number for number in numbers]
        ranks = range(1, len(cosines) + 1)
        for id, bm25, cosine, rank in zip(
            hits.chunk_ids, hits.raw_scores, cosines, ranks, strict=True
        ):
            yield Candidate(chunk_id=id, bm25=bm25, cosine=cosine, fts_rank=rank, vector_rank=None)

    def _about(self, pool: CandidatePool, ranked: Ranked) -> Ranked:
        """Returns the hits that the query is about; see `naming.about`. Counts them in the pool."""
        from kbproc.knowledge.search import naming  # imported late: few searches need it

        pool.exact = len(ranked) <= _LOOKED_AT
        rows = self._rows([id for id, _ in ranked[:_LOOKED_AT]])
        ranked = [entry for entry in ranked[:_LOOKED_AT] if entry[0] in rows]
        subjects = [self._subject(rows[id]) for id, _ in ranked]
        places = naming.about(self.params.query, subjects, dict(self.query.instead))
        self.names = {ranked[place][0]: names for place, names in places.items()}
        pool.total = len(places)
        return [ranked[place] for place in places]

    def _subject(self, row: HitRow) -> Subject:
        """Returns what a hit is about, and that for which it stands."""
        old = self.replaced.get(row.chunk_id)
        from kbproc.knowledge.search.naming import Subject

        return Subject(
            row.title,
            row.aliases if old is None else [*row.aliases, old.title, *old.aliases],
            row.section,
            row.text if old is None else f"{row.text}\n{old.text}",
            row.type,
            row.origin in FOREIGN and row.verified_at is None,
        )

    def _probable(self, page: Ranked, pool: CandidatePool, mode: fusion.Mode) -> Ranked:
        """Returns the hits that are as probable as `only` requests, or that the query names."""
        if self.params.only is None:
            return page
        least = LIKELY if self.params.only == "answers" else RELATED
        return [
            (id, fused)
            for id, fused in page
            if self.names.get(id) or self._evidence_of(id, pool, mode).chance >= least
        ]

    def _is_embedded(self, pending: int) -> bool:
        """Returns True if nearly all passages have vectors; else the notice says how many lack."""
        total = self.snapshot.queries.chunk_total() if pending else 0
        if pending <= total * _NOTICEABLE:
            return True
        self.notice.append(pending_in_words(pending, total))
        return False

    def _without_exclusions(
        self,
        pool: CandidatePool,
        ranked: Ranked,
        mode: fusion.Mode,
        restriction: Restriction,
    ) -> tuple[CandidatePool, Ranked]:
        """Searches without the query's exclusions if these exclude every match by words."""
        replacement = without_exclusions(self.snapshot, self.query, restriction)
        if replacement is None:
            return pool, ranked
        self.query, notice = replacement
        self.notice.append(notice)
        return self._pool_and_ranking(mode, restriction)

    def _evidence(self, pool: CandidatePool, ranked: Ranked, mode: fusion.Mode) -> Evidence:
        """Returns the evidence for the best hit by absolute score, for every kind of ranking.

        A hit without its vector, whose score lacks the part of the cosine, counts by its words if
        these say more.
        """
        if not ranked:
            return NOTHING
        is_blend = self.params.fusion == "blend"
        id = ranked[0][0] if is_blend else self._best(pool, ranked, mode)
        best = self._evidence_of(id, pool, mode)
        pending_id = self._best_pending(pool, ranked) if mode == "hybrid" else None
        if pending_id in (None, id) or best.level == "likely":
            return best
        return max(best, self._evidence_of(pending_id, pool, mode), key=lambda one: one.chance)

    def _best_pending(self, pool: CandidatePool, ranked: Ranked) -> int | None:
        """Returns the hit without a vector that holds most of the query; None without any."""
        ranked_ids = {id for id, _ in ranked}
        words = {
            c.chunk_id: c.bm25
            for c in pool.candidates
            if c.cosine is None and c.bm25 is not None and c.chunk_id in ranked_ids
        }
        return max(words, key=lambda id: (words[id], -id), default=None)

    def _best(self, pool: CandidatePool, ranked: Ranked, mode: fusion.Mode) -> int:
        """Returns the hit with the highest absolute score."""
        ranked_ids = {id for id, _ in ranked}
        scores = {
            c.chunk_id: fusion.blend(c.cosine, c.bm25, pool.bound, mode, self.weights).score
            for c in pool.candidates
            if c.chunk_id in ranked_ids
        }
        return max(scores, key=lambda id: (scores[id], -id))

    def _evidence_of(self, id: int, pool: CandidatePool, mode: fusion.Mode) -> Evidence:
        """Returns the evidence for a hit, which is computed once."""
        if id not in self.evidence:
            self.evidence[id] = self._evidence_from(id, _candidate(pool, id), pool.bound, mode)
        return self.evidence[id]

    def _evidence_from(
        self, id: int, candidate: Candidate, bound: float, mode: fusion.Mode
    ) -> Evidence:
        row = self.replaced.get(id) or self._rows([id]).get(id)
        if row is None:
            return NOTHING
        tells = mode != "fts" and self.fluency.factor >= _TELLING
        result = self.query_words.evidence(
            "\n".join([row.title, row.section or "", *row.aliases]),
            row.text,
            self._passage(row.text),
            reach=candidate.bm25 / bound if candidate.bm25 is not None and bound else None,
            cosine=candidate.cosine if tells else None,
            spread=self._spread if tells else None,
        )
        if self.query.phrases:  # the hit holds every one
            result = result.at_least_related()
        if self.conversations is not None:
            chance = self.conversations.chance(id, result.chance)
            result = msgspec.structs.replace(result, chance=chance)
        return result

    @cached_property
    def _spread(self) -> float | None:
        if self.vector is None or self.vectors is None:
            return None
        return self.vectors.spread(self.vector)

    @cached_property
    def _language(self) -> Language:
        return language(self.query, self.snapshot.fulltext)

    def _pool_and_ranking(
        self, mode: fusion.Mode, restriction: Restriction
    ) -> tuple[CandidatePool, Ranked]:
        """Returns a pool and its ranking, thinned as the params request.

        The pool grows while too few hits are left, because one document may hold the best thousand
        chunks, or all may say the same.
        """
        self.evidence: dict[int, Evidence] = {}
        self.query_words = QueryWords(self.snapshot.fulltext, self.query)
        size = pool_size(self.reach + 1)
        while True:
            pool = self._pool(mode, restriction, size)
            ranked = self._ranked(pool, mode)
            if not self.params.thins:
                return pool, ranked
            spread = self._thin(ranked)
            if len(spread) > self.depth or pool.whole or size > _MOST_POOLED:
                return pool, spread
            size *= 4

    def _thin(self, ranked: Ranked) -> Ranked:
        """Drops hits beyond `per_document`, and with `distinct` those that repeat a better one."""
        rows = self._rows([id for id, _ in ranked])
        if self.params.per_document is not None:
            owners = {id: row.document_id for id, row in rows.items()}
            ranked = list(_at_most_each(ranked, owners, self.params.per_document))
        if not self.params.distinct:
            return ranked
        self.repeated = {}
        texts = ((id, rows[id].text) for id, _ in ranked if id in rows)
        distinct_ids = set(islice(unlike(texts, self.repeated), self.depth + 1))
        return [entry for entry in ranked if entry[0] in distinct_ids]

    def _mode_and_vector(self) -> fusion.Mode:
        """Returns the mode that can be served: without a model, hybrid becomes fts with a notice.

        Raises model.unavailable for mode vector without a model.
        """
        self.vector: NDArray[np.float32] | None = None
        self.fluency = FLUENT
        self.weights = fusion.Weights()
        self.lean = 0.0
        if self.params.mode == "fts":
            return "fts"
        model, result = self._embedded
        if model is not self.embedding or result is None:  # another model has taken its place
            result = self.embedding.query_vector(self.params.query)
        self.vector, reason = result
        if self.vector is None or self.vectors is None:
            reason = reason or "No chunk is embedded yet."
            if self.params.mode == "vector":
                message = f"Mode vector is not available. {reason}"
                hint = "Use mode hybrid or fts, which search by words; doctor checks the model."
                raise KbprocError("model.unavailable", message, field="$.params.mode", hint=hint)
            self.notice.append(f"The search used words only. {reason}")
            return "fts"
        self._weigh_by_language()
        return self.params.mode

    def _weigh_by_language(self) -> None:
        """Lowers the vector's weight if the model lacks the query's language."""
        words = self._language
        if words != "english":
            is_foreign = words == "other"
            self.fluency = self.embedding.fluency(self.params.query, is_foreign=is_foreign)
        self.weights = fusion.Weights.of(self.fluency.factor)
        if self.fluency.factor < _HARDLY:
            share = f"{self.weights.vector:.0%}" if self.params.mode == "hybrid" else "all"
            counts = f"meaning counts for {share} of a score"
            self.notice.append(f"{_RARE[words]}: {counts}. {_OTHER_MODEL}")

    def _stress_sentence(self, mode: fusion.Mode, restriction: Restriction) -> None:
        """Gives half of a long query's weight to the sentence that asks, as in a mail."""
        self.stress = None
        if len(self.query.all_words) <= LONG:
            return
        parts = Parts(
            fulltext=self.snapshot.fulltext,
            vectors=None if mode == "fts" else self.vectors,
            embed=lambda text: self.embedding.query_vector(text)[0],
            weights=self.weights if mode == "hybrid" else fusion.ALONE[mode],
            restriction=restriction,
        )
        self.stress = stress = parts.best(self.params.query)
        if stress is None:
            return
        self.query = stressed(self.snapshot.fulltext, self.query, stress)
        if self.vector is not None:
            self.vector = between(self.vector, self.embedding.query_vector(stress.sentence)[0])
        self.notice.append(f"The query is long: half of its weight is on “{stress.sentence}”.")

    def _pool(self, mode: fusion.Mode, restriction: Restriction, size: int) -> CandidatePool:
        params, snapshot = self.params, self.snapshot
        if mode == "fts" or self.vector is None or self.vectors is None:
            limit = _MOST_FETCHED if params.narrows else self.reach + 1
            limit = max(limit, size) if params.thins or self.times else limit
            return by_words(snapshot.fulltext, self.query, restriction, limit)
        hits = None
        if mode == "hybrid":
            hits = snapshot.fulltext.search(self.query, size, restriction=restriction)
            self._weigh_by_words(hits, restriction)
        mixed = Mixed(
            fulltext=snapshot.fulltext,
            vectors=self.vectors,
            query=self.query,
            vector=self.vector,
            weights=self.weights,
            restriction=restriction,
        )
        keeps_all = params.narrows or params.thins or params.explain
        keeps_all = keeps_all or params.fusion == "rrf" or self.times is not None
        return mixed.pool(hits, size, params.ef_search, None if keeps_all else self.reach + 1)

    def _weigh_by_words(self, hits: FullTextHits, restriction: Restriction) -> None:
        """Raises the vector's weight if no visible text holds much of the query.

        Filters are ignored, so that a chunk's score does not depend on them.
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

    def _ranked(self, pool: CandidatePool, mode: fusion.Mode) -> Ranked:
        """Returns the pool's candidates with their scores, best first."""
        candidates = self._near_enough(pool)
        fused = {c.chunk_id: self._fused(c, pool.bound, mode) for c in candidates}
        if self.times is not None:
            fused = self.times.weighed(self._rows(list(fused)), fused)
        ranked = [entry for entry in fusion.ordered(fused) if entry[1].score >= LEAST_SCORE]
        if self.conversations is not None:
            # The same hits for every page, so that none shows a hit twice or not at all.
            first_page = self.conversations.first_page + 1
            count = len(ranked) if self.params.thins else first_page  # thinning reads all rows
            rows = self._rows([id for id, _ in ranked[:count]])
            ranked = self.conversations.weighed(ranked, rows)
        return ranked if self.params.fusion == "rerank" else self._at_least(ranked)

    def _at_least(self, ranked: Ranked) -> Ranked:
        least = self.params.min_score or 0.0
        return [entry for entry in ranked if entry[1].score >= least]

    def _reread(self, ranked: Ranked) -> Ranked:
        """Returns the best hits in the cross-encoder's order; if it fails, in their old order."""
        best = ranked[: self.depth]
        rows = self._rows([id for id, _ in best])
        best = [entry for entry in best if entry[0] in rows and self._is_valid(rows[entry[0]])]
        factor = self.times.factor if self.times else lambda id: 1.0
        try:
            ranked, self.judgements = reread(
                self.state.reranker, self.params.query, best, rows, factor
            )
        except KbprocError as error:
            self.notice.append(
                f"The cross-encoder did not read the hits: {error.message} Scores and "
                "order are those of fusion blend."
            )
            return best
        return ranked

    def _near_enough(self, pool: CandidatePool) -> list[Candidate]:
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

    def _rows(self, ids: Iterable[int]) -> dict[int, HitRow]:
        """Returns the rows of chunks; those that the caller may not see are left out."""
        if unread := [id for id in ids if id not in self.rows]:
            self.rows |= self.snapshot.queries.hit_rows(unread)
        return {id: self.rows[id] for id in ids if id in self.rows}

    def _page(self, ranked: Ranked) -> Ranked:
        page = ranked[self.params.offset : self.page_end]
        rows = self._rows([id for id, _ in page])
        return [entry for entry in page if entry[0] in rows and self._is_valid(rows[entry[0]])]

    def _is_valid(self, row: HitRow) -> bool:
        filter = self.filter
        if filter.hide_superseded and row.superseded_by is not None:
            return False
        expires = filter.valid_at is not None and row.expires_at is not None
        return not (expires and str(row.expires_at) <= str(filter.valid_at))

    def _hit(
        self,
        id: int,
        fused: fusion.Fused,
        row: HitRow,
        pool: CandidatePool,
    ) -> Hit:
        chars = self.params.snippet_chars
        marked, in_parts = self.query.marked, self.query.in_parts
        excerpt = snippet(row.text, marked, chars, centre=self.centre, in_parts=in_parts)
        self.best_passages[row.text] = excerpt.best
        return hit_of(
            fused,
            row,
            excerpt if self.params.highlight else msgspec.structs.replace(excerpt, highlights=[]),
            now=self.now,
            kb_description=self._description(row.kb),
            is_judged=id in self.judgements,
            repeated=self.repeated.get(id),
            replaces=self.replaced[id].document_id if id in self.replaced else None,
            names=self.names.get(id),
            explain=self._explanation(id, pool) if self.params.explain else msgspec.UNSET,
        )

    def _description(self, slug: str) -> str | None:
        """Returns a knowledge base's description once, if a person has written one."""
        if slug in self.described:
            return None
        self.described.add(slug)
        return _written_description(self.snapshot.queries, slug)

    def _shortened(self, hits: list[Hit]) -> list[Hit]:
        """Returns the hits with texts of `text_chars` characters on average, or fewer."""
        chars = self.params.text_chars
        if chars is None:
            return hits
        most = _fair_share([len(hit.text) for hit in hits], chars * len(hits))
        shortened = [
            msgspec.structs.replace(hit, text=self._extract(hit, most))
            if len(hit.text) > most
            else hit
            for hit in hits
        ]
        room = chars * len(hits) - sum(len(hit.text) for hit in shortened)
        if room <= 0 or self.conversations is None:
            return shortened
        from kbproc.knowledge.search.neighbours import neighbour_ids, with_neighbours

        return with_neighbours(shortened, self._rows(neighbour_ids(hits)), room)

    def _extract(self, hit: Hit, chars: int) -> str:
        return extract(hit.text, self.best_passages[hit.text], chars)

    def _passage(self, text: str) -> str:
        """Returns the passage of a text that holds most of the query's words, or ""."""
        if text not in self.best_passages:
            excerpt = snippet(text, self.query.marked, BEST_CHARS, in_parts=self.query.in_parts)
            self.best_passages[text] = excerpt.best
        best = self.best_passages[text]
        return text[slice(*best)] if best else ""

    def _explanation(self, id: int, pool: CandidatePool) -> dict[str, Any]:
        candidate = _candidate(pool, id)
        terms = self.snapshot.fulltext.explain(self.query, [id])[id] if pool.bound else []
        return explanation(
            candidate,
            terms,
            bound=pool.bound,
            weights=self.weights,
            fluency=self.fluency,
            scale=self.vectors.pack.scale if self.vectors is not None else UNSCALED,
            stress=self.stress,
            time=self.times.explanation(id) if self.times else None,
            speech=self.conversations.factors.get(id) if self.conversations else None,
            evidence=self._evidence_of(id, pool, self.mode),
            by_rank=self.params.fusion == "rrf",
            judgement=self.judgements.get(id),
            sees_all=self.snapshot.sight is None,
        )


def _candidate(pool: CandidatePool, id: int) -> Candidate:
    return next(c for c in pool.candidates if c.chunk_id == id)


def _at_most_each(
    ranked: Iterable[tuple[int, fusion.Fused]], owners: dict[int, int], most: int
) -> Iterable[tuple[int, fusion.Fused]]:
    counts: dict[int, int] = {}
    for id, fused in ranked:
        owner = owners.get(id, 0)
        counts[owner] = counts.get(owner, 0) + 1
        if counts[owner] <= most:
            yield id, fused


def _fair_share(lengths: list[int], total: int) -> int:
    """Returns the length at which to cut texts so that they have at most `total` characters."""
    remaining = total
    for place, length in enumerate(sorted(lengths)):
        share = remaining // (len(lengths) - place)
        if length > share:
            return share
        remaining -= length
    return max(lengths, default=0)


def _written_description(queries: Queries, slug: str) -> str | None:
    """Returns the description that somebody wrote; None for that with which `default` began."""
    row = queries.kb(slug)
    is_written = row is not None and (slug != DEFAULT_KB or row.revision > 1)
    return (row.description or None) if row is not None and is_written else None
