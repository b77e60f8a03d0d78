"""The vector view's manifest: it comes back whole or not at all."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from kbproc.base.durable import Look, SoundFiles, crc_of
from kbproc.engine.log.record import Position
from kbproc.engine.projections.vectors import manifest
from kbproc.engine.projections.vectors.manifest import GraphFile, SavedView
from kbproc.engine.projections.vectors.waiting import VectorRow

NAME = "vectors.manifest"
GRAPH = b"a graph"


def graph(folder: Path, name: str = "vectors-1.faiss") -> GraphFile:
    (folder / name).write_bytes(GRAPH)
    return GraphFile(name=name, crc=crc_of(folder / name), size=3, spread=0.5)


def saved(folder: Path, name: str = "vectors-1.faiss") -> SavedView:
    return SavedView(
        pack_id=b"p" * 16,
        position=Position(7, "hash"),
        kbs=["default", "other"],
        slots=b"slots",
        alive=b"\xff",
        keys=b"k" * 16,
        pending=[VectorRow(1, 2, "default", b"key", 3)],
        graph=graph(folder, name),
        pack=Look(1, 2, 3),
        model=b"m",
    )


def test_the_manifest_comes_back_and_older_graphs_go(tmp_path: Path) -> None:
    first, second = saved(tmp_path), saved(tmp_path, "vectors-2.faiss")
    manifest.write(tmp_path, first)
    assert manifest.read(tmp_path) == first
    (tmp_path / "vectors-2.faiss").write_bytes(GRAPH)
    manifest.write(tmp_path, second)
    assert manifest.read(tmp_path) == second
    assert sorted(path.name for path in tmp_path.iterdir()) == ["vectors-2.faiss", NAME]
    assert manifest.damaged(tmp_path, SoundFiles()) == []


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(at=st.integers(0, 10**6), bit=st.integers(0, 7), cuts=st.booleans())
def test_a_damaged_manifest_is_not_read(tmp_path: Path, at: int, bit: int, cuts: bool) -> None:
    manifest.write(tmp_path, saved(tmp_path))
    data = bytearray((tmp_path / NAME).read_bytes())
    at %= len(data)
    data[at] ^= 1 << bit
    (tmp_path / NAME).write_bytes(data[:at] if cuts else data)
    assert manifest.read(tmp_path) is None
    assert manifest.damaged(tmp_path, SoundFiles()) == [NAME]


@pytest.mark.parametrize("damage", [None, b"A graph", b"a grap"])
def test_a_damaged_or_lost_graph_is_named(tmp_path: Path, damage: bytes | None) -> None:
    manifest.write(tmp_path, saved(tmp_path))
    path = tmp_path / "vectors-1.faiss"
    if damage is None:
        path.unlink()
    else:
        path.write_bytes(damage)
    assert manifest.damaged(tmp_path, SoundFiles()) == ["vectors-1.faiss"]


class SavesMeanwhile(SoundFiles):
    """Saves another manifest before the first graph is looked at."""

    def __init__(self, newest: SavedView) -> None:
        super().__init__()
        self.newest = newest

    def is_sound(self, file: Path, check: Callable[[Path], bool]) -> bool:
        manifest.write(file.parent, self.newest)
        return super().is_sound(file, check)


@pytest.mark.parametrize("has_graph", [True, False])
def test_a_graph_that_is_replaced_during_the_look_is_no_damage(
    tmp_path: Path, has_graph: bool
) -> None:
    newest = saved(tmp_path, "vectors-2.faiss")
    manifest.write(tmp_path, saved(tmp_path))
    graph(tmp_path, "vectors-2.faiss")  # because the first manifest has dropped it
    looks = SavesMeanwhile(newest if has_graph else replace(newest, graph=None))
    assert manifest.damaged(tmp_path, looks) == []
    assert not (tmp_path / "vectors-1.faiss").exists()


def test_without_a_manifest_nothing_is_damaged(tmp_path: Path) -> None:
    graph(tmp_path)
    assert not manifest.is_there(tmp_path)
    assert manifest.read(tmp_path) is None
    assert manifest.damaged(tmp_path, SoundFiles()) == []


def test_a_manifest_of_another_format_is_not_read(tmp_path: Path) -> None:
    manifest.write(tmp_path, replace(saved(tmp_path), format=1))
    assert manifest.read(tmp_path) is None


def test_dropping_takes_graphs_and_manifest_and_no_other_file(tmp_path: Path) -> None:
    manifest.write(tmp_path, saved(tmp_path))
    (tmp_path / "other").write_bytes(b"")
    manifest.drop(tmp_path)
    manifest.drop(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["other"]
