"""Runs a search: finds and ranks the chunks that fit, and returns a page of hits with totals."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from kbproc.base.errors import KbprocError
from kbproc.base.text.snippet import BEST_CHARS, Centre, Snippet, extract, snippet
from kbproc.base.wording import pending_in_words
from kbproc.engine.events.document import CONVERSATION
from kbproc.engine.events.origin import FOREIGN
from kbproc.engine.models.calibration import UNSCALED
from kbproc.engine.projections.catalog.rows import HitRow
from kbproc.engine.store.snapshot import Snapshot
from kbproc.engine.store.state import Freshness, State
from kbproc.knowledge.documents import lookup, selection
from kbproc.knowledge.documents.document import SourceChange
from kbproc.knowledge.search import fusion
from kbproc.knowledge.search.candidates import Candidate
from kbproc.knowledge.search.conflicts import ENTRY, DatedHit, conflicts
from kbproc.knowledge.search.fusion import Ranked
from kbproc.knowledge.search.hints import SearchHints
from kbproc.knowledge.search.hits import Hit, Results, StandingInstruction, explanation, hit_of
from kbproc.knowledge.search.params import Search
from kbproc.knowledge.search.probability import LIKELY, NOTHING, RELATED, Evidence, QueryWords
from kbproc.knowledge.search.ranking import (
    EmbeddedQuery,
    Question,
    Ranking,
    Request,
    RowReader,
    at_least,
    lowered,
    question_of,
    rank,
    ranking_of,
    ranking_without_exclusions,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from kbproc.engine.projections.catalog.queries import Queries
    from kbproc.engine.projections.fulltext.search import FullTextHits
    from kbproc.knowledge.documents.anchors import Sources
    from kbproc.knowledge.search.rereading import Judgement
    from kbproc.knowledge.search.subject import Subject

_LOOKED_AT = 50  # hits of which some may be what the query is about
# The least share of passages without vectors that an answer mentions.
_NOTICEABLE = 0.01
_NO_SNIPPET = Snippet("", [])
_UNRANKED = Candidate(chunk_id=0, bm25=None, cosine=None, fts_rank=None, vector_rank=None)


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
    sources: Callable[[Queries], Sources] | None = None,
    **other_conditions: Any,
) -> SearchAnswer:
    """Runs a search over the current snapshot.

    `now`: the moment at which entries must be valid. `sources`: returns what entries were
    derived from, to compare; None: nothing is compared. `other_conditions`: further conditions of
    the DocumentFilter.

    Raises resource.not_found for an unknown knowledge base.
    """
    conditions = {
        "ids": params.document_ids,
        "hide_superseded": not params.include_superseded,
        "valid_at": None if params.include_expired else now,
        **other_conditions,
    }
    filter = selection.filter_of(params, **conditions)
    needs_vectors = params.mode != "fts" or params.explain
    if needs_vectors:  # a search by words alone never opens the vectors
        state.open_vectors()
    model = state.model
    with model.searching():
        # Before the snapshot, because a model may work for long and a pinned catalog grows.
        embedded = model, None if params.mode == "fts" else model.query_vector(params.query)
        with state.searching() as snapshot:
            request = Request(
                state=state,
                snapshot=snapshot,
                params=params,
                filter=filter,
                now=now,
                depth=_depth(state, params),
                vectors=snapshot.vectors if needs_vectors else None,
                rows=RowReader(snapshot),
                sources=sources,
            )
            return _answer(request, embedded, centre)


def _depth(state: State, params: Search) -> int:
    """Returns the number of ranked hits to find.

    A cross-encoder reads the same number for every page.
    """
    if params.fusion == "rerank":
        return state.reranker.candidates
    page_end = params.offset + params.limit
    if _rereads_doubtful(state, params):
        page_end = max(page_end, state.reranker.candidates)
    return max(page_end, _LOOKED_AT) if params.about else page_end


def _rereads_doubtful(state: State, params: Search) -> bool:
    """Returns whether the cross-encoder reads hits unasked: a setting of the store.

    It must be ready, because such a search waits for no export.
    """
    reranker = state.reranker
    may_be = params.fusion == "blend" and reranker.budget_s is not None
    return may_be and reranker.problem is None and reranker.is_ready


def _answer(request: Request, embedded: EmbeddedQuery, centre: Centre) -> SearchAnswer:
    params, snapshot, notice = request.params, request.snapshot, list[str]()
    _require(request)
    question = question_of(request, embedded, notice)
    ranking = _with_successors(request, _ranking(request, question, notice), notice)
    # This precedes the endpoint's answer, because other processes may write until it comes.
    freshness = request.state.freshness(snapshot)
    is_complete = question.mode == "fts" or _is_embedded(
        snapshot, freshness.pending_embeddings, notice
    )
    ranking, judgements = _reread(request, ranking, notice)
    ranked_count = len(ranking.ranked)
    ranking, names = _about(request, ranking)
    page_end = params.offset + params.limit
    whole_page = request.valid(ranking.ranked[params.offset : page_end])
    changed = request.changed(whole_page)
    whole_page = lowered(whole_page, changed)
    passages = Passages(ranking.question, centre)
    judge = Judge(request, ranking, passages, is_reread=bool(judgements))
    page = _probable(params, whole_page, names, judge)
    builder = _HitBuilder(request, ranking, passages, judge, judgements, names, changed)
    rows = request.rows([id for id, _ in page])
    hits = [builder.hit(rows[id], fused) for id, fused in page]
    hits = _with_conflicts(hits, rows, passages)
    best = judge.best()
    results = Results(
        query=params.query,
        results=_shortened(request, ranking.question, hits, passages),
        total_matches=len(ranking.ranked) if params.narrows else ranking.pool.total,
        total_is_exact=ranking.pool.exact,
        returned=len(hits),
        confidence=best.level,
    )
    search = snapshot, params, ranking.question.query, question.mode, request.filter
    hints = SearchHints(*search, is_complete=is_complete)
    return SearchAnswer(
        results=results,
        standing=_standing(request, hits if best.level != "none" else []),
        evidence=best,
        vector=question.vector if question.has_telling_cosines else None,
        has_more=len(ranking.ranked) > page_end,
        hint=hints.why_nothing(ranking.pool, ranked_count)
        if not whole_page
        else hints.remark(results, best),
        notice=notice,
        freshness=freshness,
    )


def _require(request: Request) -> None:
    """Raises what a param requests in vain: a cross-encoder, or a knowledge base."""
    if request.params.fusion == "rerank":
        from kbproc.knowledge.search.rereading import require

        require(request.state.reranker)
    if request.params.kb is not None:
        lookup.require_kbs(request.snapshot.kbs, request.params.kb)


def _ranking(request: Request, question: Question, notice: list[str]) -> Ranking:
    """Returns the ranked candidates; without the query's exclusions if these exclude all of them
    and nothing else seems to answer.
    """
    ranking = ranking_of(request, question)
    if not question.query.excluded:
        return ranking
    if Judge(request, ranking, Passages(question)).best().level == "likely":
        return ranking
    return ranking_without_exclusions(request, question, notice) or ranking


def _is_embedded(snapshot: Snapshot, pending: int, notice: list[str]) -> bool:
    """Returns True if nearly all passages have vectors; else the notice says how many lack."""
    total = snapshot.queries.chunk_total() if pending else 0
    if pending <= total * _NOTICEABLE:
        return True
    notice.append(pending_in_words(pending, total))
    return False


def _standing(request: Request, hits: list[Hit]) -> list[StandingInstruction]:
    """Returns the standing instructions that bear on the query, with the first page only."""
    types, snapshot = request.filter.types, request.snapshot
    may_be_some = not request.params.offset and (types is None or CONVERSATION in types)
    if not (may_be_some and snapshot.fact("standing", lambda queries: queries.has_standing())):
        return []
    from kbproc.knowledge.search import instruction  # imported late: few stores need it

    return instruction.bearing(snapshot.queries, request.params, request.filter, hits)


# ---------------------------------------------------------------------- successors


def _with_successors(request: Request, ranking: Ranking, notice: list[str]) -> Ranking:
    """Returns the hits with the entries that answer for superseded ones before them."""
    question, snapshot = ranking.question, request.snapshot
    query, mode = question.query, question.mode
    if mode == "vector" or request.params.fusion != "blend" or query.reason:
        return ranking
    if not (snapshot.published.roster.superseded and request.filter.hide_superseded):
        return ranking
    from kbproc.knowledge.search import successors  # imported late: few stores need it

    within = successors.superseded_only(snapshot, request.filter)
    if within is None:
        return ranking
    hits = snapshot.fulltext.search(query, successors.MOST, restriction=within)
    old = {c.chunk_id: c for c in _candidates_of(request, question, hits)}
    pool = replace(ranking.pool, candidates=[*old.values()], total=0, exact=True)
    scores = dict(rank(request, question, ranking.weights, pool))
    answers = successors.answering(snapshot, query, ranking.ranked, scores, request.rows)
    rows = request.rows(answers.values())
    answers = {
        id: answer
        for id, answer in answers.items()
        if answer in rows and request.is_valid(rows[answer])
    }
    if not answers:
        return ranking
    return _replaced(request, ranking, old, scores, answers, notice)


def _replaced(
    request: Request,
    ranking: Ranking,
    old: dict[int, Candidate],
    scores: dict[int, fusion.Fused],
    answers: dict[int, int],
    notice: list[str],
) -> Ranking:
    """Returns the hits in which the answers stand first, each with the score of the superseded
    chunk for which it answers.
    """
    matches = request.snapshot.fulltext.scores(ranking.question.query, list(answers.values()))
    rows, replaced = request.rows(answers), dict[int, HitRow]()
    candidates, total = ranking.pool.candidates, ranking.pool.total
    for id, answer in answers.items():
        replaced[answer] = row = rows[id]
        others = [c for c in candidates if c.chunk_id != answer]
        total += len(others) == len(candidates) and answer not in matches
        ranks = next((c for c in candidates if c.chunk_id == answer), _UNRANKED)
        answering = replace(
            old[id], chunk_id=answer, fts_rank=ranks.fts_rank, vector_rank=ranks.vector_rank
        )
        candidates = [*others, answering]
        notice.append(
            f"What fits best stands in entry {row.document_id}, which entry {row.head} has "
            "superseded."
        )
    first = [(answer, scores[id]) for id, answer in answers.items()]
    return replace(
        ranking,
        ranked=[*first, *(entry for entry in ranking.ranked if entry[0] not in replaced)],
        pool=replace(ranking.pool, candidates=candidates, total=total),
        replaced=replaced,
    )


def _candidates_of(request: Request, question: Question, hits: FullTextHits) -> Iterable[Candidate]:
    """Yields candidates for hits by words, in mode hybrid with their cosines."""
    cosines: list[float | None] = [None] * len(hits.chunk_ids)
    vector, vectors = question.vector, request.vectors
    if question.mode == "hybrid" and vector is not None and vectors is not None:
        numbers = vectors.cosines(vector, hits.chunk_ids).tolist()
        cosines = [None if math.isnan(number) else number for number in numbers]
    ranks = range(1, len(cosines) + 1)
    for id, bm25, cosine, place in zip(
        hits.chunk_ids, hits.raw_scores, cosines, ranks, strict=True
    ):
        yield Candidate(chunk_id=id, bm25=bm25, cosine=cosine, fts_rank=place, vector_rank=None)


# ---------------------------------------------------------------------- choice


def _reread(
    request: Request, ranking: Ranking, notice: list[str]
) -> tuple[Ranking, dict[int, Judgement]]:
    """Returns the best hits in the cross-encoder's order, where the params request one; if it
    fails, in their old order.
    """
    if request.params.fusion != "rerank":
        return _reread_doubtful(request, ranking, notice)
    if not ranking.ranked:
        return ranking, {}
    from kbproc.knowledge.search.rereading import reread  # imported late: few searches need it

    ranked = request.valid(ranking.ranked[: request.depth])
    judgements: dict[int, Judgement] = {}
    rows, times = request.rows([id for id, _ in ranked]), ranking.question.times
    factor = times.factor if times else lambda id: 1.0
    try:
        ranked, judgements = reread(
            request.state.reranker, request.params.query, ranked, rows, factor
        )
    except KbprocError as error:
        notice.append(
            f"The cross-encoder did not read the hits: {error.message} Scores and "
            "order are those of fusion blend."
        )
    pool = replace(ranking.pool, total=len(ranked), exact=True)
    return replace(ranking, ranked=at_least(request, ranked), pool=pool), judgements


def _reread_doubtful(
    request: Request, ranking: Ranking, notice: list[str]
) -> tuple[Ranking, dict[int, Judgement]]:
    """Returns the hits in the order of a cross-encoder that the store's settings let read unasked.

    It reads them where the best one does not seem to answer, as many as its time allows. Entries
    that answer for superseded ones stay first.
    """
    state, question = request.state, ranking.question
    if not ranking.ranked or ranking.replaced or not _rereads_doubtful(state, request.params):
        return ranking, {}
    if Judge(request, ranking, Passages(question)).best().level == "likely":
        return ranking, {}
    from kbproc.knowledge.search.rereading import reorder

    ranked = request.valid(ranking.ranked[: state.reranker.candidates])
    rows, times = request.rows([id for id, _ in ranked]), question.times
    factor = times.factor if times else lambda id: 1.0
    try:
        first, judgements = reorder(state.reranker, request.params.query, ranked, rows, factor)
    except KbprocError as error:
        notice.append(f"The cross-encoder did not read the hits: {error.message}")
        return ranking, {}
    moved = {id for id, _ in first}
    rest = [entry for entry in ranking.ranked if entry[0] not in moved]
    return replace(ranking, ranked=[*first, *rest]), judgements


def _about(request: Request, ranking: Ranking) -> tuple[Ranking, dict[int, list[str]]]:
    """Returns the hits that the query is about, where the params request these, and the names of
    each that stand in the query; see `subject.about`. Counts them in the pool.
    """
    params, ranked = request.params, ranking.ranked
    if not params.about:
        return ranking, {}
    from kbproc.knowledge.search import subject  # imported late: few searches need it

    exact = len(ranked) <= _LOOKED_AT
    rows = request.rows([id for id, _ in ranked[:_LOOKED_AT]])
    ranked = [entry for entry in ranked[:_LOOKED_AT] if entry[0] in rows]
    subjects = [_subject(rows[id], ranking.replaced.get(id)) for id, _ in ranked]
    places = subject.about(params.query, subjects, dict(ranking.question.query.instead))
    names = {ranked[place][0]: names for place, names in places.items()}
    pool = replace(ranking.pool, total=len(places), exact=exact)
    return replace(ranking, ranked=[ranked[place] for place in places], pool=pool), names


def _subject(row: HitRow, old: HitRow | None) -> Subject:
    """Returns what a hit is about, and the superseded entry for which it stands."""
    from kbproc.knowledge.search.subject import Subject

    return Subject(
        row.title,
        row.aliases if old is None else [*row.aliases, old.title, *old.aliases],
        row.section,
        row.text if old is None else f"{row.text}\n{old.text}",
        row.type,
        row.origin in FOREIGN and row.verified_at is None,
    )


def _probable(params: Search, page: Ranked, names: dict[int, list[str]], judge: Judge) -> Ranked:
    """Returns the hits that are as probable as `only` requests, or that the query names."""
    if params.only is None:
        return page
    least = LIKELY if params.only == "answers" else RELATED
    return [
        (id, fused) for id, fused in page if names.get(id) or judge.evidence(id).chance >= least
    ]


# ---------------------------------------------------------------------- evidence


class Passages:
    """The parts of texts that hold most of a query's words, each found once."""

    def __init__(self, question: Question, centre: Centre = "densest") -> None:
        self._marked, self._in_parts = question.query.marked, question.query.in_parts
        self._centre = centre
        self._snippets: dict[str, tuple[int, Snippet]] = {}  # text → the latest, and its length

    def snippet(self, text: str, chars: int) -> Snippet:
        length, excerpt = self._snippets.get(text, (0, _NO_SNIPPET))
        if length != chars:
            excerpt = snippet(
                text, self._marked, chars, centre=self._centre, in_parts=self._in_parts
            )
            self._snippets[text] = chars, excerpt
        return excerpt

    def place(self, text: str) -> tuple[int, int] | None:
        """Returns start and end of the passage; None for a text without a word of the query."""
        length, excerpt = self._snippets.get(text, (0, _NO_SNIPPET))
        return excerpt.best if length else self.snippet(text, BEST_CHARS).best

    def passage(self, text: str) -> str:
        """Returns the passage, or ""."""
        place = self.place(text)
        return text[slice(*place)] if place else ""


class Judge:
    """Says how probably hits answer; computes the evidence of each once."""

    def __init__(
        self, request: Request, ranking: Ranking, passages: Passages, *, is_reread: bool = False
    ) -> None:
        """`is_reread`: a cross-encoder made the order; the first hit may not be the best."""
        self._is_reread = is_reread
        self._request = request
        self._ranking = ranking
        self._passages = passages
        query = ranking.question.query
        self._words = QueryWords(request.snapshot.fulltext, query, request.params.query)
        self._evidence: dict[int, Evidence] = {}

    def best(self) -> Evidence:
        """Returns the evidence for the best hit by absolute score, for every kind of ranking.

        A hit without its vector, whose score lacks the part of the cosine, counts by its words if
        these say more.
        """
        ranking = self._ranking
        if not ranking.ranked:
            return NOTHING
        is_blend = self._request.params.fusion == "blend" and not self._is_reread
        id = ranking.ranked[0][0] if is_blend else _best(ranking)
        best = self.evidence(id)
        pending_id = _best_pending(ranking) if ranking.question.mode == "hybrid" else None
        if pending_id in (None, id) or best.level == "likely":
            return best
        return max(best, self.evidence(pending_id), key=lambda one: one.chance)

    def evidence(self, id: int) -> Evidence:
        if id not in self._evidence:
            self._evidence[id] = self._evidence_of(id)
        return self._evidence[id]

    def _evidence_of(self, id: int) -> Evidence:
        ranking, question = self._ranking, self._ranking.question
        row = ranking.replaced.get(id) or self._request.rows([id]).get(id)
        if row is None:
            return NOTHING
        tells = question.mode != "fts" and question.has_telling_cosines
        candidate, bound = ranking.candidate(id), ranking.pool.bound
        result = self._words.evidence(
            "\n".join([row.title, row.section or "", *row.aliases]),
            row.text,
            self._passages.passage(row.text),
            reach=candidate.bm25 / bound if candidate.bm25 is not None and bound else None,
            cosine=candidate.cosine if tells else None,
        )
        if question.query.phrases:  # the hit holds every one
            result = result.at_least_related()
        if question.conversations is not None:
            chance = question.conversations.chance(id, result.chance)
            result = replace(result, chance=chance)
        return result


def _best(ranking: Ranking) -> int:
    """Returns the hit with the highest absolute score."""
    ranked_ids = {id for id, _ in ranking.ranked}
    bound, mode, weights = ranking.pool.bound, ranking.question.mode, ranking.weights
    scores = {
        c.chunk_id: fusion.blend(c.cosine, c.bm25, bound, mode, weights).score
        for c in ranking.pool.candidates
        if c.chunk_id in ranked_ids
    }
    return max(scores, key=lambda id: (scores[id], -id))


def _best_pending(ranking: Ranking) -> int | None:
    """Returns the hit without a vector that holds most of the query; None without any."""
    ranked_ids = {id for id, _ in ranking.ranked}
    words = {
        c.chunk_id: c.bm25
        for c in ranking.pool.candidates
        if c.cosine is None and c.bm25 is not None and c.chunk_id in ranked_ids
    }
    return max(words, key=lambda id: (words[id], -id), default=None)


# ---------------------------------------------------------------------- page


class _HitBuilder(Struct, frozen=True):
    """All that a hit shows of its search."""

    request: Request
    ranking: Ranking
    passages: Passages
    judge: Judge
    judgements: dict[int, Judgement]
    names: dict[int, list[str]]
    changed: dict[int, list[SourceChange]]
    described: set[str] = set()  # knowledge bases that hits have described

    def hit(self, row: HitRow, fused: fusion.Fused) -> Hit:
        params, ranking, id = self.request.params, self.ranking, row.chunk_id
        excerpt = self.passages.snippet(row.text, params.snippet_chars)
        explain = self._explanation(id) if params.explain else msgspec.UNSET
        return hit_of(
            fused,
            row,
            excerpt if params.highlight else replace(excerpt, highlights=[]),
            now=self.request.now,
            kb_description=self._description(row.kb),
            rerank=self._judgement(id, fused),
            repeated=ranking.repeated.get(id),
            replaces=ranking.replaced[id].document_id if id in ranking.replaced else None,
            names=self.names.get(id),
            source_changed=self.changed.get(id),
            explain=explain,
        )

    def _judgement(self, id: int, fused: fusion.Fused) -> float | None:
        """Returns the cross-encoder's judgement, with fusion rerank that which the score is."""
        if id not in self.judgements:
            return None
        is_score = self.request.params.fusion == "rerank"
        return fused.score if is_score else self.judgements[id].value

    def _description(self, slug: str) -> str | None:
        """Returns a knowledge base's description once, if it has one."""
        if slug in self.described:
            return None
        self.described.add(slug)
        row = self.request.snapshot.fact(("kb", slug), lambda queries: queries.kb(slug))
        return (row.description or None) if row is not None else None

    def _explanation(self, id: int) -> dict[str, Any]:
        request, ranking, question = self.request, self.ranking, self.ranking.question
        fulltext, vectors = request.snapshot.fulltext, request.vectors
        times, conversations = question.times, question.conversations
        return explanation(
            ranking.candidate(id),
            fulltext.explain(question.query, [id])[id] if ranking.pool.bound else [],
            bound=ranking.pool.bound,
            weights=ranking.weights,
            fluency=question.fluency,
            scale=vectors.pack.scale if vectors is not None else UNSCALED,
            stress=question.stress,
            time=times.explanation(id) if times else None,
            speech=conversations.factors.get(id) if conversations else None,
            evidence=self.judge.evidence(id),
            by_rank=request.params.fusion == "rrf",
            judgement=self.judgements.get(id),
            sees_all=request.snapshot.sight is None,
        )


def _with_conflicts(hits: list[Hit], rows: Mapping[int, HitRow], passages: Passages) -> list[Hit]:
    """Returns the hits, of which some say that another gives another value."""
    by_chunk = conflicts(
        [
            DatedHit(
                row := rows[hit.chunk_id],
                passages.place(row.text),
                hit.source.section,
                hit.source.cite,
                _moment(row, hit),
            )
            for hit in hits
        ]
    )
    if not by_chunk:
        return hits
    return [
        replace(hit, conflicts=by_chunk[hit.chunk_id]) if hit.chunk_id in by_chunk else hit
        for hit in hits
    ]


def _moment(row: HitRow, hit: Hit) -> str | None:
    """Returns when a hit was said or made; None for a file without a date of its own."""
    source = hit.source
    if row.type == ENTRY:
        return row.valid_from or row.created_at
    is_own = row.type == "note" or source.path is None
    return source.said_at or source.modified_at or (row.updated_at if is_own else None)


def _shortened(
    request: Request, question: Question, hits: list[Hit], passages: Passages
) -> list[Hit]:
    """Returns the hits with texts of `text_chars` characters on average, or fewer."""
    chars = request.params.text_chars
    if chars is None:
        return hits
    most = _fair_share([len(hit.text) for hit in hits], chars * len(hits))
    shortened = [
        replace(hit, text=extract(hit.text, passages.place(hit.text), most))
        if len(hit.text) > most
        else hit
        for hit in hits
    ]
    room = chars * len(hits) - sum(len(hit.text) for hit in shortened)
    if room <= 0 or question.conversations is None:
        return shortened
    from kbproc.knowledge.search.neighbours import neighbour_ids, with_neighbours

    return with_neighbours(shortened, request.rows(neighbour_ids(hits)), room)


def _fair_share(lengths: list[int], total: int) -> int:
    """Returns the length at which to cut texts so that they have at most `total` characters."""
    remaining = total
    for place, length in enumerate(sorted(lengths)):
        share = remaining // (len(lengths) - place)
        if length > share:
            return share
        remaining -= length
    return max(lengths, default=0)
