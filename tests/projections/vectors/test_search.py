"""A search in vectors equals a plain sort of all cosines, under any restriction."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbproc.engine.log.record import Position
from kbproc.engine.models.pack import VectorPack
from kbproc.engine.projections.catalog.rows import IndexRow
from kbproc.engine.projections.restriction import Restriction
from kbproc.engine.projections.vectors.search import VectorSnapshot
from kbproc.engine.projections.vectors.view import Vectors

DIM = 6
LABELS = ("default", "default#entry", "other", "notes/ann")


class Chunks(NamedTuple):
    snapshot: VectorSnapshot
    rows: list[IndexRow]


@pytest.fixture(scope="module")
def chunks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chunks]:
    """Thirty chunks of ten documents, of which one has been removed and two have no vector."""
    folder = tmp_path_factory.mktemp("vectors")
    pack = VectorPack.open(folder / "m.pack", dim=DIM, fingerprint=bytes(32))
    view = Vectors.open(folder / "vectors", pack, lambda row: row.text, flat_limit=1000)
    rows = [
        IndexRow(200 - n, n // 3 + 1, LABELS[n // 3 % 4], "", None, str(n // 2)) for n in range(30)
    ]
    embedded = sorted({row.text for row in rows if row.text != "9"})
    vectors = np.random.default_rng(3).normal(size=(len(embedded), DIM)).astype(np.float32)
    pack.append([pack.key(text) for text in embedded], vectors)
    view.apply([], rows, Position(1, "one"))
    view.apply([4], [], Position(2, "two"))
    view.commit()
    yield Chunks(view.snapshot(), [row for row in rows if row.document_id != 4])
    pack.close()


def allows(restriction: Restriction, row: IndexRow) -> bool:
    documents, exclude = restriction.documents, restriction.exclude
    return (
        (restriction.kbs is None or row.label in restriction.kbs)
        and row.label not in restriction.without
        and (documents is None or row.document_id in documents.tolist())
        and (exclude is None or row.document_id not in exclude.tolist())
    )


IDS = st.none() | st.sets(st.integers(0, 12), max_size=6).map(
    lambda ids: np.array(sorted(ids), np.int64)
)
RESTRICTIONS = st.builds(
    Restriction,
    kbs=st.none() | st.lists(st.sampled_from([*LABELS, "nowhere"]), max_size=3).map(tuple),
    without=st.lists(st.sampled_from([*LABELS, "nowhere"]), max_size=2).map(tuple),
    documents=IDS,
    exclude=IDS,
)


@given(
    seed=st.integers(0, 99),
    k=st.integers(0, 35),
    restriction=RESTRICTIONS,
    others=st.lists(st.integers(165, 205), max_size=6),
)
def test_the_nearest_are_those_of_a_plain_sort(
    chunks: Chunks, seed: int, k: int, restriction: Restriction, others: list[int]
) -> None:
    snapshot, rows = chunks
    query = np.random.default_rng(seed).normal(size=DIM).astype(np.float32)
    every = [row.chunk_id for row in rows]
    cosines = dict(zip(every, snapshot.cosines(query, every).tolist(), strict=True))
    allowed = [
        (-cosines[row.chunk_id], row.chunk_id)
        for row in rows
        if allows(restriction, row) and not np.isnan(cosines[row.chunk_id])
    ]
    ids, scores, beside = snapshot.search_with_cosines(query, k, others, restriction=restriction)
    assert ids.tolist() == [id for _, id in sorted(allowed)[:k]]
    assert scores.tolist() == [cosines[id] for id in ids.tolist()]
    expected = [cosines.get(id, np.nan) if k else np.nan for id in others]
    assert np.array_equal(beside, expected, equal_nan=True)


def test_a_query_without_a_direction_finds_nothing(
    chunks: Chunks, subtests: pytest.Subtests
) -> None:
    cases: list[np.ndarray] = [np.zeros(DIM), np.full(DIM, np.inf), np.full(DIM, np.nan)]
    for query in cases:
        with subtests.test(f"{query!r:.80}"):
            ids, scores, beside = chunks.snapshot.search_with_cosines(
                query.astype(np.float32), 5, [200]
            )
            assert (len(ids), len(scores)) == (0, 0)
            assert np.isnan(beside).tolist() == [True]
