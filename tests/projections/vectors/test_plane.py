"""The plane shows vectors along their two greatest variances, the same in every run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest

from kbproc.engine.log.record import Position
from kbproc.engine.models.pack import VectorPack
from kbproc.engine.projections.catalog.rows import IndexRow
from kbproc.engine.projections.restriction import Restriction
from kbproc.engine.projections.vectors.plane import plane
from kbproc.engine.projections.vectors.search import VectorSnapshot
from kbproc.engine.projections.vectors.view import Vectors

EVERYTHING = Restriction()
# Chunk → vector. The first axis varies most, the second less, the third not at all.
SQUARE = {4: (4, 0, 7), 2: (-4, 0, 7), 3: (0, 2, 7), 1: (0, -2, 7)}

MakeSnapshot = Callable[[Mapping[int, tuple[float, ...]]], VectorSnapshot]


@pytest.fixture
def snapshot_of(tmp_path: Path) -> Iterator[MakeSnapshot]:
    """Makes a snapshot of chunks with these vectors; odd chunks are in the knowledge base odd."""
    packs: list[VectorPack] = []

    def make(vectors: Mapping[int, tuple[float, ...]]) -> VectorSnapshot:
        pack = VectorPack.open(tmp_path / "m.pack", dim=3, fingerprint=bytes(32))
        packs.append(pack)
        view = Vectors.open(tmp_path / "view", pack, lambda row: str(row.chunk_id), flat_limit=9)
        if vectors:
            keys = [pack.key(str(chunk)) for chunk in vectors]
            pack.append(keys, np.array([*vectors.values()], np.float32))
        rows = [
            IndexRow(chunk, chunk * 10, "odd" if chunk % 2 else "even", "", None, "")
            for chunk in vectors
        ]
        view.apply([], rows, Position(1, "one"))
        view.commit()
        return view.snapshot()

    yield make
    for pack in packs:
        pack.close()


def test_the_first_axis_has_the_greatest_variance_and_the_farthest_chunk_lies_at_1(
    snapshot_of: MakeSnapshot,
) -> None:
    drawn = plane(snapshot_of(SQUARE), 10, EVERYTHING)
    assert drawn.total == 4
    assert drawn.chunks.tolist() == [1, 2, 3, 4], "by id, not in the order of arrival"
    assert drawn.documents.tolist() == [10, 20, 30, 40]
    assert drawn.places == pytest.approx(np.array([(0, -0.5), (-1, 0), (0, 0.5), (1, 0)]))
    assert drawn.centre == pytest.approx([0, 0, 7])


def test_a_query_is_placed_by_its_direction_and_never_far_away(snapshot_of: MakeSnapshot) -> None:
    drawn = plane(snapshot_of({1: (1, 0, 0), 2: (0, 1, 0), 3: (0, 1, 0)}), 10, EVERYTHING)
    for chunk, vector in enumerate(np.eye(3, dtype=np.float32)[:2]):
        assert drawn.place(vector * 5) == pytest.approx(drawn.places[chunk], abs=1e-6)
    origin = drawn.place(np.zeros(3, np.float32))
    assert origin == pytest.approx(np.clip(-drawn.centre @ drawn.axes, -1.2, 1.2))
    square = plane(snapshot_of(SQUARE), 10, EVERYTHING)
    assert np.abs(square.place(np.array([1, 0, 0], np.float32))).max() <= 1.2


def test_a_sample_is_spread_over_all_ids(snapshot_of: MakeSnapshot) -> None:
    snapshot = snapshot_of({chunk: (chunk, chunk % 3, 1) for chunk in range(1, 10)})
    drawn = plane(snapshot, 3, EVERYTHING)
    assert (drawn.total, drawn.chunks.tolist()) == (9, [1, 5, 9])
    assert plane(snapshot, 1, EVERYTHING).chunks.tolist() == [1]


def test_a_restriction_leaves_chunks_out_and_their_variance_too(
    snapshot_of: MakeSnapshot,
) -> None:
    snapshot = snapshot_of(SQUARE)
    odd = plane(snapshot, 10, Restriction(kbs=("odd",)))
    assert odd.chunks.tolist() == [1, 3]
    assert odd.places[:, 0] == pytest.approx([-1, 1]), "their own axis, which was the second"
    only = Restriction(documents=np.array([20, 40], np.int64))
    assert plane(snapshot, 10, only).chunks.tolist() == [2, 4]


def test_a_plane_is_drawn_once_for_the_same_restriction_by_names(
    snapshot_of: MakeSnapshot,
) -> None:
    snapshot = snapshot_of(SQUARE)
    first = plane(snapshot, 10, EVERYTHING)
    assert plane(snapshot, 10, Restriction()) is first
    assert plane(snapshot, 9, EVERYTHING) is not first
    documents = Restriction(documents=np.array([20], np.int64))
    assert plane(snapshot, 10, documents) is not plane(snapshot, 10, documents)


def test_no_chunk_or_one_or_equal_ones_lie_in_the_middle(snapshot_of: MakeSnapshot) -> None:
    empty = plane(snapshot_of({}), 10, EVERYTHING)
    assert (empty.total, empty.places.shape) == (0, (0, 2))
    equal = plane(snapshot_of({1: (1, 2, 3), 2: (1, 2, 3)}), 10, EVERYTHING)
    assert equal.places.tolist() == [[0, 0], [0, 0]]
