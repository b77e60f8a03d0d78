"""The pack keeps vectors by key, survives cuts and flips, and never mixes models."""

from __future__ import annotations

import errno
import os
import stat
import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbproc.base import failpoints
from kbproc.base.errors import KbprocError
from kbproc.engine.models.pack import HEADER_BYTES, VectorPack

DIM = 8
MODEL = bytes(range(32))
RECORD = 32 + 2 * DIM + 4


def opened(path: Path, *, dim: int = DIM, fingerprint: bytes = MODEL) -> VectorPack:
    return VectorPack.open(path, dim=dim, fingerprint=fingerprint)


def vectors(n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((n, DIM)).astype(np.float32)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "vectors" / "model.pack"


def filled(path: Path, n: int) -> tuple[list[bytes], np.ndarray]:
    pack = opened(path)
    keys = [pack.key(f"text {i}") for i in range(n)]
    values = vectors(n)
    pack.append(keys, values)
    pack.close()
    return keys, values


def test_what_was_appended_is_there_after_reopening(path: Path) -> None:
    keys, values = filled(path, 5)
    pack = opened(path)
    assert pack.rows([*keys, pack.key("other")]).tolist() == [0, 1, 2, 3, 4, -1]
    assert pack.has(keys[0])
    assert not pack.has(pack.key("other"))
    stored = pack.vectors(pack.rows(keys))
    assert stored.dtype == np.float32
    assert np.array_equal(stored, values.astype(np.float16).astype(np.float32))
    assert pack.key_at(3) == keys[3]


def test_the_key_depends_on_text_and_model(path: Path) -> None:
    pack = opened(path)
    other = opened(path.with_name("other.pack"), fingerprint=bytes(32))
    assert len(pack.key("a")) == 32
    assert pack.key("a") == pack.key("a")
    assert len({pack.key("a"), pack.key("a "), other.key("a"), pack.key("\ud800")}) == 4


def test_a_key_is_stored_once(path: Path) -> None:
    pack = opened(path)
    key = pack.key("x")
    assert pack.append([key, key], vectors(2)).tolist() == [0, 0]
    assert pack.append([key], vectors(1, seed=9)).tolist() == [0]
    assert len(pack) == 1


def test_the_file_is_private(path: Path) -> None:
    filled(path, 1)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


@given(cut=st.integers(min_value=1, max_value=3 * RECORD - 1))
def test_a_torn_tail_is_cut_and_the_rest_stays(
    tmp_path_factory: pytest.TempPathFactory, cut: int
) -> None:
    path = tmp_path_factory.mktemp("torn") / "m.pack"
    keys, values = filled(path, 3)
    os.truncate(path, path.stat().st_size - cut)
    whole = (3 * RECORD - cut) // RECORD
    pack = opened(path)
    assert len(pack) == whole
    assert pack.damaged == 0
    assert (pack.rows(keys) >= 0).sum() == whole
    assert pack.append(keys, values).tolist() == [0, 1, 2]
    pack.close()
    assert opened(path).rows(keys).tolist() == [0, 1, 2]


@given(at=st.integers(min_value=0, max_value=3 * RECORD - 1), bit=st.integers(0, 7))
def test_a_flipped_bit_costs_its_record_and_no_other(
    tmp_path_factory: pytest.TempPathFactory, at: int, bit: int
) -> None:
    path = tmp_path_factory.mktemp("flip") / "m.pack"
    keys, values = filled(path, 3)
    data = bytearray(path.read_bytes())
    data[HEADER_BYTES + at] ^= 1 << bit
    path.write_bytes(data)
    pack = opened(path)
    hit = at // RECORD
    assert pack.damaged == 1
    assert pack.check()
    assert pack.rows(keys).tolist() == [-1 if i == hit else i for i in range(3)]
    assert pack.usable(np.arange(4)).tolist() == [i != hit for i in range(3)] + [False]
    assert pack.append(keys, values)[hit] == 3
    stored = pack.vectors(pack.rows(keys))
    assert np.array_equal(stored, values.astype(np.float16).astype(np.float32))


@pytest.mark.parametrize(
    "change", [{"dim": 4}, {"fingerprint": bytes(32)}], ids=["dimensions", "model"]
)
def test_a_pack_of_another_model_is_set_aside(path: Path, change: dict[str, object]) -> None:
    keys, _ = filled(path, 2)
    pack = opened(path, **change)  # type: ignore[arg-type]
    assert len(pack) == 0
    assert pack.set_aside is not None
    assert pack.set_aside.stat().st_size == HEADER_BYTES + 2 * RECORD
    assert pack.rows(keys).tolist() == [-1, -1]


@pytest.mark.parametrize("content", [b"", b"kb", b"x" * 500], ids=["empty", "short", "foreign"])
def test_a_file_that_is_no_pack_gives_way(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    pack = opened(path)
    pack.append([pack.key("a")], vectors(1))
    pack.close()
    assert len(opened(path)) == 1


def test_a_new_file_has_a_new_id(path: Path) -> None:
    first = opened(path).id
    assert opened(path).id == first
    path.unlink()
    assert opened(path).id != first


def test_what_is_erased_is_gone_from_the_disk(path: Path) -> None:
    keys, values = filled(path, 3)
    pack = opened(path)
    assert pack.erase([keys[1], pack.key("never there")]) == 1
    assert pack.rows(keys).tolist() == [0, -1, 2]
    pack.close()
    data = path.read_bytes()
    assert keys[1] not in data
    assert values[1].astype("<f2").tobytes() not in data
    pack = opened(path)
    assert pack.rows(keys).tolist() == [0, -1, 2]
    assert pack.damaged == 0
    assert pack.check() == []
    assert not pack.has(bytes(32))


def test_the_place_of_what_was_erased_is_used_again(path: Path) -> None:
    """An erased vector's row is written again after the last reference to it is released."""
    keys, values = filled(path, 4)
    size = path.stat().st_size
    pack = opened(path)
    new, more = [pack.key(f"new {n}") for n in range(3)], vectors(7)[4:]
    pack.erase([keys[1], keys[2]])
    assert pack.append(new[:1], more[:1]).tolist() == [4]
    pack.release()
    assert pack.append([*new, keys[0]], np.concatenate([more, values[:1]])).tolist() == [4, 1, 2, 0]
    assert path.stat().st_size == size * 5 // 4 - HEADER_BYTES // 4
    pack.erase([keys[3]])
    pack.close()
    pack = opened(path)
    assert (pack.damaged, pack.check()) == (0, [])
    assert pack.rows([*keys, *new]).tolist() == [0, -1, -1, -1, 4, 1, 2]
    assert np.array_equal(pack.vectors(pack.rows(new)), more.astype("<f2").astype(np.float32))
    assert pack.append([keys[3]], values[3:4]).tolist() == [3]
    assert pack.usable(np.arange(6)).tolist() == [True] * 5 + [False]
    pack.close()


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_vectors_must_be_finite_and_fit(path: Path, bad: float) -> None:
    pack = opened(path)
    values = vectors(1)
    with pytest.raises(ValueError, match="dimensions"):
        pack.append([pack.key("a")], values[:, :3])
    values[0, 0] = bad
    with pytest.raises(ValueError, match="finite"):
        pack.append([pack.key("a")], values)
    assert len(pack) == 0


def test_a_disk_that_refuses_is_store_io(path: Path) -> None:
    filled(path, 1)
    pack = opened(path)

    def refuse(point: str) -> None:
        if point == "pack.write":
            raise OSError(errno.ENOSPC, "No space left on device")

    failpoints.arm(refuse)
    try:
        with pytest.raises(KbprocError) as caught:
            pack.append([pack.key("new")], vectors(1))
    finally:
        failpoints.arm(None)
    assert caught.value.type == "store.io"
    assert not pack.has(pack.key("new"))
    path.unlink()
    path.mkdir()
    with pytest.raises(KbprocError):
        opened(path)


def test_readers_see_whole_records_while_one_appends(path: Path) -> None:
    pack = opened(path)
    keys = [pack.key(str(i)) for i in range(400)]
    values = np.repeat(np.arange(400, dtype=np.float32)[:, None], DIM, axis=1)
    wrong: list[int] = []

    def read() -> None:
        count = 0
        while count < 400:
            rows = pack.rows(keys)
            present = np.flatnonzero(rows >= 0)
            stored = pack.vectors(rows[present])
            wrong.extend(present[(stored != values[present]).any(axis=1)].tolist())
            count = len(present)

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for i in range(0, 400, 7):
        pack.append(keys[i : i + 7], values[i : i + 7])
    for reader in readers:
        reader.join()
    assert wrong == []
