"""A graph finds the nearest vectors under any mask, and gives them back to the bit."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from kbproc.engine.models.graph import Graph, build_graph, read_graph, stored, write_graph
from kbproc.engine.models.pack import VectorPack

DIM, COUNT = 8, 60


@pytest.fixture
def pack(tmp_path: Path) -> Iterator[VectorPack]:
    """Seventy unit vectors, of which the last ten are in no graph."""
    pack = VectorPack.open(tmp_path / "m.pack", dim=DIM, fingerprint=bytes(32))
    vectors = np.random.default_rng(5).normal(size=(COUNT + 10, DIM)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    pack.append([pack.key(str(row)) for row in range(COUNT + 10)], vectors)
    yield pack
    pack.close()


def rows(count: int = COUNT) -> NDArray[np.int64]:
    return np.arange(count, dtype=np.int64)[::-1].copy()  # so that a slot is not its row


@pytest.fixture
def graph(pack: VectorPack) -> Graph:
    graph = build_graph(pack, rows(), threads=1, cancelled=lambda: False)
    assert graph is not None
    return graph


def query(seed: int = 1) -> NDArray[np.float32]:
    vector = np.random.default_rng(seed).normal(size=DIM).astype(np.float32)
    return vector / np.float32(np.linalg.norm(vector))


def best(
    pack: VectorPack, unit: NDArray[np.float32], count: int, mask: NDArray[np.bool_]
) -> set[int]:
    closeness = np.where(mask, pack.vectors(rows()) @ unit, -np.inf)
    return set(np.argsort(-closeness)[:count].tolist())


def test_the_nearest_are_those_of_a_plain_sort(
    pack: VectorPack, graph: Graph, subtests: pytest.Subtests
) -> None:
    for share in (1.0, 0.7, 0.2):
        for ef in (0, 64):
            with subtests.test(share=share, ef=ef):
                mask = np.random.default_rng(2).random(COUNT) < share
                for seed in range(5):
                    unit = query(seed)
                    slots = graph.nearest(unit, 4, mask, ef)
                    assert mask[slots].all()
                    assert best(pack, unit, 4, mask) <= set(slots.tolist())


def test_no_slot_or_fewer_than_asked_for_are_no_error(pack: VectorPack, graph: Graph) -> None:
    nothing = np.zeros(COUNT, np.bool_)
    assert graph.nearest(query(), 4, nothing, 64).tolist() == []
    assert graph.nearest(query(), 0, ~nothing, 64).tolist() == []
    two = nothing.copy()
    two[[3, 50]] = True
    assert set(graph.nearest(query(), 4, two, 64).tolist()) == {3, 50}
    assert set(graph.scan(query(), 1, two).tolist()) >= best(pack, query(), 1, two)


def test_a_graph_can_be_cancelled_while_it_is_built(pack: VectorPack) -> None:
    assert build_graph(pack, rows(), threads=1, cancelled=lambda: True) is None


def test_a_written_graph_is_read_again_and_other_bytes_are_none(
    pack: VectorPack, graph: Graph, tmp_path: Path
) -> None:
    path = tmp_path / "graph.faiss"
    assert write_graph(path, graph) == zlib.crc32(path.read_bytes())
    again = read_graph(path, size=graph.size, spread=graph.spread)
    assert again is not None
    slots = np.arange(COUNT, dtype=np.int64)
    assert again.vectors(slots).tobytes() == pack.vectors(rows()).tobytes()
    mask = np.ones(COUNT, np.bool_)
    assert best(pack, query(), 4, mask) <= set(again.nearest(query(), 4, mask, 64).tolist())
    path.write_bytes(b"no graph")
    assert read_graph(path, size=graph.size, spread=graph.spread) is None


def test_vectors_come_from_graph_and_pack_and_erased_ones_are_nan(
    pack: VectorPack, graph: Graph
) -> None:
    all_rows = np.concatenate([rows(), np.arange(COUNT, COUNT + 10, dtype=np.int64)])
    slots = np.array([0, COUNT + 9, 7, COUNT], np.int64)
    vectors = stored(graph, pack, slots, all_rows)
    assert vectors.tobytes() == pack.vectors(all_rows[slots]).tobytes()
    assert stored(None, pack, slots, all_rows).tobytes() == vectors.tobytes()
    pack.erase([pack.key(str(int(all_rows[7])))])
    after = stored(graph, pack, slots, all_rows)
    assert np.isnan(after).all(axis=1).tolist() == [False, False, True, False]
