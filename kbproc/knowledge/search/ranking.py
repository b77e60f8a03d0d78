"""Finds and ranks the chunks that fit a query.

Each value is decided once, from those before it: the question from the query and the store, the
weights from the question and what words find, the pool from the weights, the order from the pool.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from kbproc.base.errors import KbprocError
from kbproc.base.text.query import Query, parse_query
from kbproc.engine.events.document import CONVERSATION
from kbproc.engine.models.fluency import FLUENT, Fluency
from kbproc.engine.projections.catalog.filters import DocumentFilter
from kbproc.engine.projections.catalog.rows import HitRow
from kbproc.engine.projections.restriction import Restriction
from kbproc.engine.store.model import Model
from kbproc.engine.store.snapshot import Snapshot
from kbproc.engine.store.state import State
from kbproc.knowledge.documents.document import SourceChange
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
from kbproc.knowledge.search.fusion import Ranked
from kbproc.knowledge.search.params import Search
from kbproc.knowledge.search.probability import LEAST_SCORE
from kbproc.knowledge.search.reading import (
    LONG,
    Vocabulary,
    language,
    read,
    without_exclusions,
)
from kbproc.knowledge.search.times import TIMED_TYPES, Times

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from kbproc.engine.projections.catalog.queries import Queries
    from kbproc.engine.projections.fulltext.search import FullTextHits
    from kbproc.engine.projections.vectors.search import VectorSnapshot
    from kbproc.knowledge.documents.anchors import Sources
    from kbproc.knowledge.search.conversations import Conversations
    from kbproc.knowledge.search.stress import Stress

    Vector = NDArray[np.float32]

# A model, and what it has returned for the query.
EmbeddedQuery = tuple[Model, "tuple[Vector | None, str | None] | None"]
_STEP = 0.9  # the factor of an entry whose source has changed since
_MOST_FETCHED = 10_000
_MOST_POOLED = 100_000
_HARDLY = 0.5
_RARE = {
    "other": "The embedding model hardly knows this language",
    "unknown": "These words are rare in the embedding model",
}
_OF_CONVERSATIONS = DocumentFilter(types=[CONVERSATION])
_OTHER_MODEL = "model.use changes to a model that knows more languages."
# The least fluency at which a cosine counts; nearly all English questions reach it, and few in
# other languages.
_TELLING = 0.75


class RowReader:
    """Reads the rows of chunks, each once."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._queries = snapshot.queries
        self._rows: dict[int, HitRow] = {}

    def __call__(self, ids: Iterable[int]) -> dict[int, HitRow]:
        """Returns the rows of chunks; those that the caller may not see are left out."""
        rows = self._rows
        if unread := [id for id in ids if id not in rows]:
            rows |= self._queries.hit_rows(unread)
        return {id: rows[id] for id in ids if id in rows}


class Request(Struct, frozen=True, kw_only=True):
    """A search over one snapshot.

    `now`: the moment at which entries must be valid. `vectors`: None where the search needs none.
    `depth`: the number of ranked hits to find. `sources`: returns what entries were
    derived from; None where that is not compared.
    """

    state: State
    snapshot: Snapshot
    params: Search
    filter: DocumentFilter
    now: str
    depth: int
    vectors: VectorSnapshot | None
    rows: RowReader
    sources: Callable[[Queries], Sources] | None

    def is_valid(self, row: HitRow) -> bool:
        """Returns whether an entry holds at the moment of the search; other documents always do."""
        filter = self.filter
        if filter.hide_superseded and row.superseded_by is not None:
            return False
        expires = filter.valid_at is not None and row.expires_at is not None
        return not (expires and str(row.expires_at) <= str(filter.valid_at))

    def valid(self, ranked: Ranked) -> Ranked:
        """Returns the hits that the caller may see and that are valid. Reads their rows."""
        rows = self.rows([id for id, _ in ranked])
        return [entry for entry in ranked if entry[0] in rows and self.is_valid(rows[entry[0]])]

    def changed(self, ranked: Ranked) -> dict[int, list[SourceChange]]:
        """Returns hit → what it was derived from and is no longer as it was then."""
        rows = self.rows([id for id, _ in ranked])
        derived = {id: row for id, row in rows.items() if row.anchors is not None}
        if self.sources is None or not derived:
            return {}
        return self.sources(self.snapshot.queries).changes(derived)


# ---------------------------------------------------------------------- question


class Question(Struct, frozen=True, kw_only=True):
    """A query as the store understands it.

    `mode`: the mode that can be served. `weights`: those of the channels, by the query's language.
    `reach`: the number of candidates that may be among the hits.
    """

    query: Query
    mode: fusion.Mode
    vector: Vector | None
    fluency: Fluency
    weights: fusion.Weights
    restriction: Restriction
    times: Times | None
    conversations: Conversations | None
    stress: Stress | None
    reach: int

    @property
    def has_telling_cosines(self) -> bool:
        """True if the model knows the query's language well enough for a cosine to count."""
        return self.fluency.factor >= _TELLING


class _Meaning(NamedTuple):
    mode: fusion.Mode
    vector: Vector | None = None
    fluency: Fluency = FLUENT
    weights: fusion.Weights = fusion.Weights()


def question_of(request: Request, embedded: EmbeddedQuery, notice: list[str]) -> Question:
    """Returns the question of a request; adds to the notice how it differs from the typed one.

    Raises model.unavailable for mode vector without a model.
    """
    params, snapshot = request.params, request.snapshot
    times = Times.of(params.query, request.now) if params.fusion != "rrf" else None
    typed = parse_query(_timeless(request, times))
    meaning = _meaning(request, typed, embedded, notice)
    by_meaning = meaning.vector is not None
    restriction = restriction_of(snapshot, request.filter, by_meaning=by_meaning)
    query, notices = read(snapshot, typed, restriction)
    notice += notices
    conversations = _conversations(request, query)
    stress, vector = _stress(request, query, meaning, restriction), meaning.vector
    if stress is not None:
        from kbproc.knowledge.search.stress import between, stressed

        query = stressed(snapshot.fulltext, query, stress)
        if vector is not None:
            vector = between(vector, snapshot.model.query_vector(stress.sentence)[0])
        notice.append(f"The query is long: half of its weight is on “{stress.sentence}”.")
    return Question(
        query=query,
        mode=meaning.mode,
        vector=vector,
        fluency=meaning.fluency,
        weights=meaning.weights,
        restriction=restriction,
        times=times,
        conversations=conversations,
        stress=stress,
        reach=max(request.depth, conversations.first_page if conversations else 0),
    )


def _timeless(request: Request, times: Times | None) -> str:
    """Returns the text to search: without the words for a time where hits may have one."""
    query, types = request.params.query, request.filter.types
    if times is None or not (types is None or TIMED_TYPES & {*types}):
        return query
    has_some = request.snapshot.queries.count(DocumentFilter(types=[*TIMED_TYPES]))
    return times.period.timeless(query) if has_some else query


def _meaning(
    request: Request, query: Query, embedded: EmbeddedQuery, notice: list[str]
) -> _Meaning:
    """Returns the mode that can be served, with the query's vector and the model's fluency.

    Without a model, hybrid becomes fts with a notice.
    """
    params = request.params
    if params.mode == "fts":
        return _Meaning("fts")
    embedding = request.snapshot.model
    model, result = embedded
    if model is not embedding or result is None:  # another model has taken its place
        result = embedding.query_vector(params.query)
    vector, reason = result
    if vector is None or request.vectors is None:
        reason = reason or "No chunk is embedded yet."
        if params.mode == "vector":
            message = f"Mode vector is not available. {reason}"
            hint = "Use mode hybrid or fts, which search by words; doctor checks the model."
            raise KbprocError("model.unavailable", message, field="$.params.mode", hint=hint)
        notice.append(f"The search used words only. {reason}")
        return _Meaning("fts", vector)
    fluency, words = FLUENT, language(query, request.snapshot.fulltext)
    if words != "english":
        fluency = embedding.fluency(params.query, is_foreign=words == "other")
    weights = fusion.Weights.of(fluency.factor)
    if fluency.factor < _HARDLY:
        share = f"{weights.vector:.0%}" if params.mode == "hybrid" else "all"
        counts = f"meaning counts for {share} of a score"
        notice.append(f"{_RARE[words]}: {counts}. {_OTHER_MODEL}")
    return _Meaning(params.mode, vector, fluency, weights)


def _conversations(request: Request, query: Query) -> Conversations | None:
    """Returns the factors of conversations; None if there are surely none among the hits."""
    types = request.filter.types
    may_be_hits = request.params.fusion == "blend" and (types is None or CONVERSATION in types)
    if not (may_be_hits and request.snapshot.fact("conversations", _count_conversations)):
        return None
    from kbproc.knowledge.search.conversations import Conversations, people_in  # few stores need it

    names = people_in(request.params.query) - dict(query.instead).keys()
    names_stranger = bool(names) and _has_stranger(request.snapshot, query, names)
    return Conversations(query, request.params.limit, request.rows, names_stranger=names_stranger)


def _count_conversations(queries: Queries) -> int:
    return queries.count(_OF_CONVERSATIONS)


def _has_stranger(snapshot: Snapshot, query: Query, names: Iterable[str]) -> bool:
    """Returns whether a query in English names a person whom no visible text names.

    Hidden texts do not count, because a level would show that one of them holds the name.
    """
    vocabulary = Vocabulary(snapshot.fulltext, everything(snapshot))
    is_english = language(query, snapshot.fulltext) == "english"
    return is_english and not all(map(vocabulary.knows, names))


def _stress(
    request: Request, query: Query, meaning: _Meaning, restriction: Restriction
) -> Stress | None:
    """Returns the sentence of a long query that asks, as in a mail; it gets half of the weight."""
    if len(query.all_words) <= LONG:
        return None
    from kbproc.knowledge.search.stress import Parts  # imported late: few queries are so long

    mode, snapshot = meaning.mode, request.snapshot
    parts = Parts(
        fulltext=snapshot.fulltext,
        vectors=None if mode == "fts" else request.vectors,
        embed=lambda text: snapshot.model.query_vector(text)[0],
        weights=meaning.weights if mode == "hybrid" else fusion.ALONE[mode],
        restriction=restriction,
    )
    return parts.best(request.params.query)


# ---------------------------------------------------------------------- candidates


class Ranking(Struct, frozen=True, kw_only=True):
    """The candidates for a question, best first.

    `lean`: see fusion.lean. `repeated`: hit → chunks that were left out, because they say nearly
    the same. `replaced`: hit → the row of the superseded entry for which it stands.
    """

    question: Question
    weights: fusion.Weights
    lean: float
    pool: CandidatePool
    ranked: Ranked
    repeated: dict[int, list[int]]
    replaced: dict[int, HitRow]

    def candidate(self, id: int) -> Candidate:
        return next(c for c in self.pool.candidates if c.chunk_id == id)


def ranking_of(request: Request, question: Question) -> Ranking:
    """Returns the ranked candidates, thinned as the params request.

    The pool grows while too few hits are left, because one document may hold the best thousand
    chunks, or all may say the same.
    """
    size = pool_size(question.reach + 1)
    words = _words(request, question, size)
    weights, lean = _weighed(request, question, words)
    while True:
        pool = _pool(request, question, weights, words, size)
        ranked, repeated = rank(request, question, weights, pool), dict[int, list[int]]()
        if request.params.thins:
            ranked, repeated = _thin(request, ranked)
        is_enough = len(ranked) > request.depth or pool.whole or size > _MOST_POOLED
        if is_enough or not request.params.thins:
            return Ranking(
                question=question,
                weights=weights,
                lean=lean,
                pool=pool,
                ranked=ranked,
                repeated=repeated,
                replaced={},
            )
        size *= 4
        words = _words(request, question, size)


def ranking_without_exclusions(
    request: Request, question: Question, notice: list[str]
) -> Ranking | None:
    """Returns the candidates without the query's exclusions if these exclude every match by words;
    else None.
    """
    replacement = without_exclusions(request.snapshot, question.query, question.restriction)
    if replacement is None:
        return None
    query, reason = replacement
    notice.append(reason)
    return ranking_of(request, replace(question, query=query))


def _words(request: Request, question: Question, size: int) -> FullTextHits | None:
    """Returns the word channel's hits for a mixed pool; None in other modes than hybrid."""
    if question.mode != "hybrid":
        return None
    restriction = question.restriction
    return request.snapshot.fulltext.search(question.query, size, restriction=restriction)


def _weighed(
    request: Request, question: Question, hits: FullTextHits | None
) -> tuple[fusion.Weights, float]:
    """Returns the weights and how far they lean to the vector, as no visible text holds much of
    the query.

    Filters are ignored, so that a chunk's score does not depend on them.
    """
    fulltext, query = request.snapshot.fulltext, question.query
    bound = fulltext.bound(query) if hits and question.has_telling_cosines else 0.0
    if hits is None or not bound or fulltext.clauses.is_foreign(query):
        return question.weights, 0.0
    sees_all = request.snapshot.sight is None and fulltext.is_whole(question.restriction)
    if query.excluded or not sees_all:
        included = replace(query, excluded=())
        hits = fulltext.search(included, 1, restriction=everything(request.snapshot))
    best = hits.raw_scores[0] if hits.raw_scores else 0.0
    lean = fusion.lean(best / bound, best / fulltext.clauses.word_worth)
    return fusion.Weights.of(question.fluency.factor, lean), lean


def _pool(
    request: Request,
    question: Question,
    weights: fusion.Weights,
    words: FullTextHits | None,
    size: int,
) -> CandidatePool:
    params, fulltext, reach = request.params, request.snapshot.fulltext, question.reach
    if question.mode == "fts" or question.vector is None or request.vectors is None:
        limit = _MOST_FETCHED if params.narrows else reach + 1
        limit = max(limit, size) if params.thins or question.times else limit
        return by_words(fulltext, question.query, question.restriction, limit)
    mixed = Mixed(
        fulltext=fulltext,
        vectors=request.vectors,
        query=question.query,
        vector=question.vector,
        weights=weights,
        restriction=question.restriction,
    )
    keeps_all = params.narrows or params.thins or params.explain
    keeps_all = keeps_all or params.fusion == "rrf" or question.times is not None
    return mixed.pool(words, size, params.ef_search, None if keeps_all else reach + 1)


# ---------------------------------------------------------------------- order


def rank(
    request: Request, question: Question, weights: fusion.Weights, pool: CandidatePool
) -> Ranked:
    """Returns the pool's candidates with their scores, best first."""
    params, mode = request.params, question.mode
    candidates, least = pool.candidates, params.min_similarity
    if least is not None:
        candidates = [c for c in candidates if c.cosine is not None and c.cosine >= least]
    if params.fusion == "rrf":
        fused = {c.chunk_id: _by_rank(c, mode) for c in candidates}
    else:
        fused = {
            c.chunk_id: fusion.blend(c.cosine, c.bm25, pool.bound, mode, weights)
            for c in candidates
        }
    if question.times is not None:
        fused = question.times.weighed(request.rows(list(fused)), fused)
    ranked = [entry for entry in fusion.ordered(fused) if entry[1].score >= LEAST_SCORE]
    if (conversations := question.conversations) is not None:
        # The same hits for every page, so that none shows a hit twice or not at all.
        first_page = conversations.first_page + 1
        count = len(ranked) if params.thins else first_page  # thinning reads all rows
        ranked = conversations.weighed(ranked, request.rows([id for id, _ in ranked[:count]]))
    return ranked if params.fusion == "rerank" else at_least(request, ranked)


def _by_rank(candidate: Candidate, mode: fusion.Mode) -> fusion.Fused:
    return fusion.rrf(
        fts_rank=candidate.fts_rank,
        vector_rank=candidate.vector_rank,
        mode=mode,
        pending=candidate.cosine is None,
    )


def at_least(request: Request, ranked: Ranked) -> Ranked:
    """Returns the hits that have the score that the params request."""
    least = request.params.min_score or 0.0
    return [entry for entry in ranked if entry[1].score >= least]


def lowered(page: Ranked, ids: Collection[int]) -> Ranked:
    """Returns a page on which these hits have a lower score, behind those that have a better one.

    Only a page is sorted anew, so that every hit stays on the page where it was.
    """
    lower: list[tuple[int, fusion.Fused]] = []
    for id, before in reversed(page):
        place, fused = 0, _lower(before) if id in ids else before
        while id in ids and place < len(lower) and lower[place][1].score > fused.score:
            place += 1
        lower.insert(place, (id, fused))
    return lower


def _lower(fused: fusion.Fused) -> fusion.Fused:
    if fused.fts is None and fused.vector is None:  # a cross-encoder's score has no parts
        return replace(fused, score=round(fused.score * _STEP, fusion.PLACES))
    return fused.times(_STEP)


def _thin(request: Request, ranked: Ranked) -> tuple[Ranked, dict[int, list[int]]]:
    """Drops hits beyond `per_document`, and with `distinct` those that repeat a better one.

    Returns the others, and hit → those that repeat it.
    """
    params, repeated = request.params, dict[int, list[int]]()
    rows = request.rows([id for id, _ in ranked])
    if params.per_document is not None:
        owners = {id: row.document_id for id, row in rows.items()}
        ranked = list(_at_most_each(ranked, owners, params.per_document))
    if not params.distinct:
        return ranked, repeated
    from kbproc.base.text.likeness import unlike  # imported late: few searches need it

    texts = ((id, rows[id].text) for id, _ in ranked if id in rows)
    distinct_ids = set(islice(unlike(texts, repeated), request.depth + 1))
    return [entry for entry in ranked if entry[0] in distinct_ids], repeated


def _at_most_each(
    ranked: Ranked, owners: dict[int, int], most: int
) -> Iterator[tuple[int, fusion.Fused]]:
    counts: dict[int, int] = {}
    for id, fused in ranked:
        owner = owners.get(id, 0)
        counts[owner] = counts.get(owner, 0) + 1
        if counts[owner] <= most:
            yield id, fused
