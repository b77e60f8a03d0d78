"""The pool of a search: what each channel brings, and the numbers that it lacks."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kbproc.base.text.query import parse_query
from kbproc.engine.log.record import Position
from kbproc.engine.models.pack import VectorPack
from kbproc.engine.projections.catalog.rows import IndexRow
from kbproc.engine.projections.fulltext.index import FullText
from kbproc.engine.projections.restriction import Restriction
from kbproc.engine.projections.vectors.view import Vectors
from kbproc.knowledge.search import fusion
from kbproc.knowledge.search.candidates import CandidatePool, Mixed, by_words, pool_size
from kbproc.knowledge.search.fusion import Weights

DIM = 8
AT = Position(1, "one")
TEXTS = {
    1: "A heron stands in the reeds.",
    2: "A heron flies over the lake, a grey heron.",
    3: "The lake freezes in winter.",
    4: "Bread needs flour, water and salt.",
    5: "Reeds grow beside the water.",
}
PENDING = 5  # this chunk has no vector
EF_SEARCH = 64
ALL = Restriction()


class Indexes(NamedTuple):
    """Both indexes over the same chunks."""

    fulltext: FullText
    vectors: Vectors

    def by_words(
        self, query: str, limit: int = 10, restriction: Restriction = ALL
    ) -> CandidatePool:
        return by_words(self.fulltext.snapshot(), parse_query(query), restriction, limit)

    def mixed(
        self,
        query: str,
        *,
        near: int,
        size: int = 10,
        depth: int | None = None,
        words: bool = True,
        restriction: Restriction = ALL,
    ) -> CandidatePool:
        """Returns the pool of a query whose vector is that of chunk `near`."""
        parsed, fulltext = parse_query(query), self.fulltext.snapshot()
        mixed = Mixed(
            fulltext=fulltext,
            vectors=self.vectors.snapshot(),
            query=parsed,
            vector=vector_of(near),
            weights=Weights(),
            restriction=restriction,
        )
        hits = fulltext.search(parsed, size, restriction=restriction) if words else None
        return mixed.pool(hits, size, EF_SEARCH, depth)


def vector_of(chunk: int) -> np.ndarray:
    seed = int.from_bytes(hashlib.sha256(str(chunk).encode()).digest()[:4], "big")
    vector = np.random.default_rng(seed).random(DIM) + 0.05  # all cosines are above 0
    return (vector / np.linalg.norm(vector)).astype(np.float32)


def made(folder: Path, texts: dict[int, str]) -> Indexes:
    rows = [IndexRow(id, id, "default", "", None, text) for id, text in texts.items()]
    fulltext = FullText.open(folder / "fulltext")
    fulltext.apply([], rows, AT)
    fulltext.commit()
    pack = VectorPack.open(folder / "m.pack", dim=DIM, fingerprint=bytes(32))
    vectors = Vectors.open(folder / "vectors", pack, lambda row: str(row.chunk_id), flat_limit=1000)
    embedded = [id for id in texts if id != PENDING]
    pack.append([pack.key(str(id)) for id in embedded], np.stack([vector_of(i) for i in embedded]))
    vectors.apply([], rows, AT)
    vectors.commit()
    return Indexes(fulltext, vectors)


@pytest.fixture(scope="module")
def indexes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Indexes]:
    made_indexes = made(tmp_path_factory.mktemp("indexes"), TEXTS)
    yield made_indexes
    made_indexes.fulltext.close()
    made_indexes.vectors.pack.close()


def test_a_pool_grows_by_doubling(subtests: pytest.Subtests) -> None:
    cases: list[tuple[int, int]] = [(1, 100), (100, 100), (101, 200), (201, 400), (999, 1600)]
    for hits, size in cases:
        with subtests.test(hits=hits, size=size):
            assert pool_size(hits) == size


def test_words_alone_have_ranks_scores_and_an_exact_total(indexes: Indexes) -> None:
    pool = indexes.by_words("heron lake")
    assert pool.candidates[0].chunk_id == 2
    assert {one.chunk_id for one in pool.candidates} == {1, 2, 3}
    assert [one.fts_rank for one in pool.candidates] == [1, 2, 3]
    scores = [one.bm25 for one in pool.candidates]
    assert scores == sorted(scores, reverse=True) and max(scores) <= pool.bound
    assert all(one.cosine is None and one.vector_rank is None for one in pool.candidates)
    assert (pool.total, pool.exact, pool.whole) == (3, True, True)


def test_a_smaller_pool_counts_all_matches_but_is_not_whole(indexes: Indexes) -> None:
    pool = indexes.by_words("heron lake", limit=1)
    assert ([one.chunk_id for one in pool.candidates], pool.total, pool.whole) == ([2], 3, False)
    assert pool.bound == indexes.by_words("heron lake").bound


def test_a_query_without_words_has_an_empty_pool(indexes: Indexes) -> None:
    pool = indexes.by_words("!?")
    assert (pool.candidates, pool.bound, pool.total, pool.exact) == ([], 0.0, 0, True)


def test_each_candidate_has_both_numbers_whichever_channel_found_it(indexes: Indexes) -> None:
    pool = indexes.mixed("heron", near=4)
    by_id = {one.chunk_id: one for one in pool.candidates}
    assert set(by_id) == {1, 2, 3, 4}
    for id, one in by_id.items():
        expected = float(vector_of(4) @ vector_of(id))
        assert one.cosine == pytest.approx(expected, abs=0.01)
        assert (one.bm25 is not None) == ("heron" in TEXTS[id])
    assert by_id[4].vector_rank == 1 and by_id[4].fts_rank is None
    assert by_id[2].fts_rank in {1, 2} and by_id[2].vector_rank is not None


def test_a_chunk_that_only_meaning_found_gets_the_score_of_its_words(indexes: Indexes) -> None:
    """Words find chunk 2 alone in a pool of one; meaning brings chunk 1, which has a word."""
    alone = {one.chunk_id: one.bm25 for one in indexes.by_words("heron").candidates}
    pool = indexes.mixed("heron", near=1, size=1)
    by_id = {one.chunk_id: one for one in pool.candidates}
    assert 1 in by_id and by_id[1].bm25 == pytest.approx(alone[1])


def test_a_pending_chunk_is_found_by_words_without_a_cosine(indexes: Indexes) -> None:
    pool = indexes.mixed("reeds water", near=4)
    [pending] = [one for one in pool.candidates if one.chunk_id == PENDING]
    assert pending.cosine is None and pending.vector_rank is None and pending.bm25 is not None


def test_meaning_alone_ignores_words(indexes: Indexes) -> None:
    pool = indexes.mixed("heron", near=3, words=False)
    assert pool.candidates[0].chunk_id == 3
    assert {one.chunk_id for one in pool.candidates} == {1, 2, 3, 4}
    assert all(one.bm25 is None and one.fts_rank is None for one in pool.candidates)
    assert (pool.bound, pool.total, pool.exact) == (0.0, 4, False)


def test_an_excluded_word_excludes_what_is_near(indexes: Indexes) -> None:
    pool = indexes.mixed("lake -heron", near=2)
    assert {one.chunk_id for one in pool.candidates} == {3, 4}


def test_a_phrase_filters_what_is_near(indexes: Indexes) -> None:
    pool = indexes.mixed('"grey heron"', near=4)
    assert [one.chunk_id for one in pool.candidates] == [2]


def test_a_restriction_holds_in_both_channels(indexes: Indexes) -> None:
    restriction = Restriction(documents=np.array([1, 4]))
    pool = indexes.mixed("heron", near=2, restriction=restriction)
    assert {one.chunk_id for one in pool.candidates} == {1, 4}
    only = indexes.by_words("heron", restriction=restriction)
    assert [one.chunk_id for one in only.candidates] == [1]


VOCABULARY = "heron lake reeds water salt bread winter grey flour stone"
WORDS = st.sampled_from(VOCABULARY.split(" "))
SENTENCES = st.lists(WORDS, min_size=1, max_size=8).map(" ".join)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    sentences=st.lists(SENTENCES, min_size=1, max_size=30),
    query=st.lists(WORDS, min_size=1, max_size=3, unique=True).map(" ".join),
    near=st.integers(1, 30),
    depth=st.integers(1, 5),
    size=st.integers(2, 12),
)
def test_what_depth_leaves_out_is_not_among_the_best(
    tmp_path_factory: pytest.TempPathFactory,
    sentences: list[str],
    query: str,
    near: int,
    depth: int,
    size: int,
) -> None:
    """A pool for the first `depth` hits must hold the first `depth` hits of the whole pool."""
    texts = dict(enumerate(sentences, 10))
    indexes = made(tmp_path_factory.mktemp("depth"), texts)
    try:
        shallow = best(indexes.mixed(query, near=near, size=size, depth=depth), depth)
        assert shallow == best(indexes.mixed(query, near=near, size=size), depth)
    finally:
        indexes.fulltext.close()
        indexes.vectors.pack.close()


def best(pool: CandidatePool, depth: int) -> list[tuple[int, fusion.Fused]]:
    scores = {
        one.chunk_id: fusion.blend(one.cosine, one.bm25, pool.bound) for one in pool.candidates
    }
    return fusion.ordered(scores)[:depth]
