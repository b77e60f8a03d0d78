"""Slots: snapshots share their arrays, so a slot in use never changes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from kbproc.engine.log.record import Position
from kbproc.engine.models.pack import VectorPack
from kbproc.engine.projections.vectors.manifest import SavedView
from kbproc.engine.projections.vectors.slots import Slots
from kbproc.engine.projections.vectors.waiting import VectorRow

DIM, COUNT = 4, 40


@pytest.fixture(scope="module")
def pack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VectorPack]:
    """A pack of vectors under the keys of "0" to "39"."""
    path = tmp_path_factory.mktemp("pack") / "m.pack"
    pack = VectorPack.open(path, dim=DIM, fingerprint=bytes(32))
    vectors = np.random.default_rng(1).normal(size=(COUNT, DIM)).astype(np.float32)
    pack.append([pack.key(str(n)) for n in range(COUNT)], vectors)
    yield pack
    pack.close()


def row(pack: VectorPack, n: int, kb: str = "default") -> VectorRow:
    return VectorRow(1000 + n, n % 5, kb, pack.key(str(n)))


def seen(slots: Slots) -> tuple[Any, Any, Any]:
    return slots.slots.tolist(), slots.alive.tolist(), slots.tail.tolist()


@given(
    adds=st.lists(st.integers(0, 6), max_size=6),
    removed=st.lists(st.integers(0, 5), max_size=6),
)
def test_what_a_snapshot_has_seen_stays(
    pack: VectorPack, adds: list[int], removed: list[int]
) -> None:
    slots, at = Slots(pack), 0
    alive: dict[int, bool] = {}
    views: list[tuple[Any, Any]] = []
    for step, count in enumerate(adds):
        numbers = range(at, min(at + count, COUNT))
        at += len(numbers)
        rows = [row(pack, n, "default" if n % 2 else f"kb{n}") for n in numbers]
        slots.add(rows, np.array(numbers, np.int64))
        alive |= dict.fromkeys(numbers, True)
        if step < len(removed):
            slots.remove(np.array([removed[step]], np.int64))
            alive |= {n: False for n in alive if n % 5 == removed[step]}
        arrays = (slots.slots, slots.alive, slots.tail)
        views.append((arrays, [array.tolist() for array in arrays]))
    for arrays, values in views:
        assert [array.tolist() for array in arrays] == values
    assert slots.slots["chunk"].tolist() == [1000 + n for n in alive]
    assert slots.slots["document"].tolist() == [n % 5 for n in alive]
    assert slots.alive.tolist() == list(alive.values())
    names = {code: kb for kb, code in slots.kb_codes.items()}
    kbs = [names[code] for code in slots.slots["kb"].tolist()]
    assert kbs == ["default" if n % 2 else f"kb{n}" for n in alive]
    assert np.allclose(np.linalg.norm(slots.tail, axis=1), 1, atol=1e-3)


def test_compacted_slots_go_on_growing(pack: VectorPack) -> None:
    slots = Slots(pack)
    slots.add([row(pack, n) for n in range(6)], np.arange(6))
    tail = slots.tail.copy()
    slots.remove(np.array([1], np.int64))
    slots.keep(np.flatnonzero(slots.alive), None)
    assert slots.slots["chunk"].tolist() == [1000, 1002, 1003, 1004, 1005]
    assert slots.alive.all()
    assert (slots.tail == tail[[0, 2, 3, 4, 5]]).all()
    slots.add([row(pack, 6)], np.array([6]))
    assert slots.slots["chunk"].tolist()[-1] == 1006
    assert (slots.count, len(slots.tail)) == (6, 6)


def saved(pack: VectorPack, slots: Slots, keys: bytes) -> SavedView:
    return SavedView(
        pack_id=b"",
        position=Position(1, "one"),
        kbs=list(slots.kb_codes),
        slots=slots.slots.tobytes(),
        alive=np.packbits(slots.alive).tobytes(),
        keys=keys,
        pending=[],
        graph=None,
    )


def test_saved_slots_come_back_only_if_they_are_of_this_pack(pack: VectorPack) -> None:
    slots = Slots(pack)
    slots.add([row(pack, n, f"kb{n % 3}") for n in range(9)], np.arange(9))
    slots.remove(np.array([2], np.int64))
    keys = pack.keys_digest(slots.slots["row"][slots.alive])
    restored = Slots(pack)
    assert restored.restore(saved(pack, slots, keys), None)
    assert seen(restored) == seen(slots)
    assert restored.kb_codes == slots.kb_codes
    other = Slots(pack)
    assert not other.restore(saved(pack, slots, b"other"), None)
    assert (other.count, other.kb_codes) == (0, {})
    moved = slots.slots.copy()
    moved["row"] = COUNT + 1  # beyond the pack's end
    assert not other.restore(replace(saved(pack, slots, keys), slots=moved.tobytes()), None)
    assert other.count == 0
