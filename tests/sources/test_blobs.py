"""Blobs: a name that can be seen stands for whole, durable bytes."""

from __future__ import annotations

import errno
import os
import stat
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbproc.base.errors import KbprocError
from kbproc.sources.blobs import Blobs, digest
from tests.kit.patience import PATIENCE


@pytest.fixture
def blobs(tmp_path: Path) -> Blobs:
    return Blobs(tmp_path / "blobs")


def all_files(blobs: Blobs) -> list[Path]:
    return [path for path in blobs.folder.rglob("*") if path.is_file()]


@given(data=st.binary(max_size=2000))
def test_round_trip(data: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    blobs = Blobs(tmp_path_factory.mktemp("blobs"))
    assert blobs.get(blobs.put(data)) == data


def test_equal_bytes_are_stored_once(blobs: Blobs) -> None:
    first = blobs.put(b"hello")
    [path] = all_files(blobs)
    before = path.stat()
    assert blobs.put(b"hello") == first == digest(b"hello")
    assert path.stat() == before
    assert path == blobs.path(first)
    assert path.relative_to(blobs.folder).parts[:2] == (first[:2], first[2:4])


def test_only_the_owner_may_look(blobs: Blobs) -> None:
    path = blobs.path(blobs.put(b"secret"))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_missing_and_a_damaged_blob_are_told_apart(blobs: Blobs) -> None:
    sha256 = blobs.put(b"hello")
    blobs.path(sha256).write_bytes(b"hellp")
    with pytest.raises(KbprocError, match="damaged") as damaged:
        blobs.get(sha256)
    blobs.path(sha256).unlink()
    with pytest.raises(KbprocError, match="missing") as missing:
        blobs.get(sha256)
    assert damaged.value.type == missing.value.type == "store.corrupt"
    assert missing.value.detail == {"blob": sha256}


def test_a_full_disk_leaves_nothing_behind(blobs: Blobs, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.write

    def full(fd: int, data: Any) -> int:
        if len(data) <= 10:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(fd, bytes(data)[:-10])

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(KbprocError) as refused:
        blobs.put(b"x" * 100)
    assert refused.value.type == "store.io"
    assert all_files(blobs) == []
    monkeypatch.setattr(os, "write", real)
    assert blobs.get(blobs.put(b"x" * 100)) == b"x" * 100


def test_a_failed_fsync_names_nothing(blobs: Blobs, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(fd: int) -> None:
        raise OSError(errno.EIO, "no")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(KbprocError):
        blobs.put(b"hello")
    assert not blobs.path(digest(b"hello")).exists()


def test_the_bytes_are_synced_before_the_name_and_the_name_before_it_is_told(
    blobs: Blobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    blobs.put(b"another")
    order: list[tuple[str, bool]] = []
    real, target = os.fsync, blobs.path(digest(b"hello"))

    def fsync(fd: int) -> None:
        kind = "folder" if stat.S_ISDIR(os.fstat(fd).st_mode) else "data"
        order.append((kind, target.exists()))
        real(fd)

    monkeypatch.setattr(os, "fsync", fsync)
    blobs.put(b"hello")
    assert ("data", True) not in order
    assert order.index(("data", False)) < order.index(("folder", True))


def test_two_threads_may_store_the_same_bytes(
    blobs: Blobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two equal files of one ingest are read side by side."""
    data, real = b"same" * 1000, os.write
    half = threading.Barrier(2, timeout=PATIENCE)
    errors: list[BaseException] = []

    def slow(fd: int, part: Any) -> int:
        if len(part) == len(data):
            half.wait()
            written = real(fd, bytes(part)[:100])
            half.wait()
            return written
        return real(fd, part)

    def put() -> None:
        try:
            blobs.put(data)
        except BaseException as error:  # noqa: BLE001  told below
            errors.append(error)

    monkeypatch.setattr(os, "write", slow)
    threads = [threading.Thread(target=put) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert blobs.get(digest(data)) == data
    assert all_files(blobs) == [blobs.path(digest(data))]
