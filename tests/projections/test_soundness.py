"""`is_whole` distinguishes a DuckDB file that a checkpoint shortened from a truncated one."""

from __future__ import annotations

import contextlib
from pathlib import Path

import duckdb
import pytest

from kbproc.engine.projections.soundness import is_whole
from tests.kit.patience import LONG

_BLOCK = 262_144


def file_made_by(path: Path, *statements: str) -> Path:
    with contextlib.closing(duckdb.connect(str(path), config={"threads": 1})) as database:
        for statement in statements:
            database.execute(f"{statement}; checkpoint")
    return path


def rows(count: int) -> str:
    return f"select range x, hash(range)::varchar y from range({count})"


@pytest.mark.parametrize("count", [400_000, 20_000_000] if LONG else [400_000])
def test_a_file_that_a_checkpoint_made_shorter_is_whole(tmp_path: Path, count: int) -> None:
    """The list of free blocks fits into a part of a block, or needs a chain of blocks."""
    first, second = f"create table k as {rows(1000)}", f"create table t as {rows(count)}"
    path = file_made_by(tmp_path / "one.duckdb", first, second)
    before = path.stat().st_size
    file_made_by(path, "drop table t")
    assert path.stat().st_size < before / 2
    assert is_whole(path)
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - _BLOCK)
    assert not is_whole(path)


def test_a_file_that_lost_its_end_is_not_whole(tmp_path: Path) -> None:
    path = file_made_by(tmp_path / "one.duckdb", f"create table t as {rows(400_000)}")
    assert is_whole(path)
    whole = path.read_bytes()
    for blocks in range(1, len(whole) // _BLOCK + 1):
        path.write_bytes(whole[: len(whole) - blocks * _BLOCK])
        assert not is_whole(path)
    path.write_bytes(whole[:-1])
    assert not is_whole(path)
