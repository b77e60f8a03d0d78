"""Replacing a file is durable and all or nothing."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from kbproc.base import disk, durable, failpoints
from tests.kit.patience import LIVES


class Steps:
    """Records the disk operations in order, each with the folder's names at that moment."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.seen = folder, list[tuple[str, list[str]]]()
        self._fsync = os.fsync
        monkeypatch.setattr("kbproc.base.disk.sync", self.fsync)
        failpoints.arm(self.note)

    def note(self, step: str) -> None:
        self.seen.append((step, sorted(path.name for path in self.folder.iterdir())))

    def fsync(self, fd: int) -> None:
        self.note("sync folder" if stat.S_ISDIR(os.fstat(fd).st_mode) else "sync file")
        self._fsync(fd)


def fail(error: int) -> Callable[..., None]:
    def failing(*_: object) -> None:
        raise OSError(error, os.strerror(error))

    return failing


def test_the_bytes_are_synced_then_named_then_the_name_is_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = Steps(tmp_path, monkeypatch)
    durable.replace(tmp_path / "one", b"new", written="before", named="after")
    assert steps.seen == [
        ("sync file", ["one.tmp"]),
        ("before", ["one.tmp"]),
        ("after", ["one"]),
        ("sync folder", ["one"]),
    ]
    assert (tmp_path / "one").read_bytes() == b"new"
    assert stat.S_IMODE((tmp_path / "one").stat().st_mode) == 0o600


@pytest.mark.parametrize("call", ["sync", "write"])
def test_a_disk_that_refuses_leaves_the_old_file_and_nothing_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    (tmp_path / "one").write_bytes(b"old")
    monkeypatch.setattr(disk, call, fail(errno.ENOSPC))
    with pytest.raises(OSError, match="space"):
        durable.replace(tmp_path / "one", b"new")
    assert [path.name for path in tmp_path.iterdir()] == ["one"]
    assert (tmp_path / "one").read_bytes() == b"old"


def test_a_block_that_fails_leaves_the_old_file_and_nothing_beside_it(tmp_path: Path) -> None:
    (tmp_path / "one").write_bytes(b"old")
    with pytest.raises(RuntimeError), durable.replacing(tmp_path / "one") as file:
        file.write(b"half")
        raise RuntimeError
    assert [path.name for path in tmp_path.iterdir()] == ["one"]
    assert (tmp_path / "one").read_bytes() == b"old"


def test_what_a_dead_process_left_is_neither_followed_nor_kept(tmp_path: Path) -> None:
    (tmp_path / "other").write_bytes(b"somebody's")
    (tmp_path / "one.tmp").symlink_to(tmp_path / "other")
    durable.replace(tmp_path / "one", b"new")
    assert (tmp_path / "other").read_bytes() == b"somebody's"
    assert not (tmp_path / "one").is_symlink()


def test_a_new_file_takes_nobodys_place(tmp_path: Path) -> None:
    (tmp_path / "one").write_bytes(b"old")
    with pytest.raises(FileExistsError), durable.create(tmp_path / "one"):
        pass
    assert (tmp_path / "one").read_bytes() == b"old"


def test_folders_are_private_and_each_is_durable_before_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = Steps(tmp_path, monkeypatch)
    durable.make_folder(tmp_path / "one" / "two")
    assert [step for step, _ in steps.seen] == ["sync folder", "sync folder"]
    assert stat.S_IMODE((tmp_path / "one").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "one" / "two").stat().st_mode) == 0o700
    durable.make_folder(tmp_path / "one" / "two")


def test_a_file_may_be_renamed_over_another(tmp_path: Path) -> None:
    (tmp_path / "old").write_bytes(b"1")
    (tmp_path / "new").write_bytes(b"2")
    durable.rename(tmp_path / "old", tmp_path / "new")
    assert [path.name for path in tmp_path.iterdir()] == ["new"]
    assert (tmp_path / "new").read_bytes() == b"1"


def test_write_all_goes_on_where_a_write_was_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.write
    monkeypatch.setattr("kbproc.base.disk.write", lambda fd, data: real(fd, bytes(data)[:3]))
    durable.replace(tmp_path / "one", b"0123456789")
    assert (tmp_path / "one").read_bytes() == b"0123456789"


# ------------------------------------------------------------------- what was read whole


class Checks:
    """A check that every file passes except those with b"rotten"; `asked` lists the files."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __call__(self, file: Path) -> bool:
        self.asked.append(file.name)
        return file.exists() and file.read_bytes() != b"rotten"


def looked(folder: Path, *names: str) -> tuple[list[bool], list[str]]:
    """The verdicts of another process on the files, and the names of the files that it reads."""
    files, check = durable.SoundFiles(folder), Checks()
    verdicts = [files.is_sound(folder / name, check) for name in names]
    files.keep()
    return verdicts, check.asked


def test_what_was_read_whole_is_read_again_once_it_is_touched(tmp_path: Path) -> None:
    (tmp_path / "one").write_bytes(b"1")
    (tmp_path / "two").write_bytes(b"2")
    assert looked(tmp_path, "one", "two") == ([True, True], ["one", "two"])
    assert looked(tmp_path, "one", "two") == ([True, True], [])
    (tmp_path / "two").write_bytes(b"3")
    assert looked(tmp_path, "one", "two") == ([True, True], ["two"])
    assert looked(tmp_path, "one", "two") == ([True, True], [])


def test_a_change_that_hides_itself_is_found(tmp_path: Path) -> None:
    """A change is noticed even if size, inode and mtime stay the same."""
    file = tmp_path / "one"
    file.write_bytes(b"sound.")
    assert looked(tmp_path, "one") == ([True], ["one"])
    times = file.stat()
    file.write_bytes(b"rotten")
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert file.stat().st_mtime_ns == times.st_mtime_ns
    assert looked(tmp_path, "one") == ([False], ["one"])
    assert looked(tmp_path, "one") == ([False], ["one"]), "what is wrong is never passed over"


def test_another_file_under_the_same_name_is_read(tmp_path: Path) -> None:
    (tmp_path / "one").write_bytes(b"sound.")
    (tmp_path / "other").write_bytes(b"rotten")
    looked(tmp_path, "one")
    durable.rename(tmp_path / "other", tmp_path / "one")
    assert looked(tmp_path, "one") == ([False], ["one"])
    (tmp_path / "one").unlink()
    assert looked(tmp_path, "one") == ([False], ["one"])


def test_after_another_start_of_the_machine_everything_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "one").write_bytes(b"1")
    looked(tmp_path, "one")
    for start in ("another", ""):
        monkeypatch.setattr(durable, "boot", lambda start=start: start)
        assert looked(tmp_path, "one") == ([True], ["one"])
    assert looked(tmp_path, "one") == ([True], ["one"]), "where no start is told, nothing is known"


@pytest.mark.parametrize("data", [b"", b"{}", b"[1]", b'{"boot":"x","files":{"one":[1]}}'])
def test_a_damaged_list_of_what_was_read_means_that_nothing_was(
    tmp_path: Path, data: bytes
) -> None:
    (tmp_path / "one").write_bytes(b"1")
    looked(tmp_path, "one")
    (tmp_path / "files.seen").write_bytes(data)
    assert looked(tmp_path, "one") == ([True], ["one"])
    assert looked(tmp_path, "one") == ([True], [])


def test_where_nothing_can_be_kept_nothing_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "one").write_bytes(b"1")
    monkeypatch.setattr("kbproc.base.disk.write", fail(errno.ENOSPC))
    assert looked(tmp_path, "one") == ([True], ["one"])
    assert [path.name for path in tmp_path.iterdir()] == ["one"]


def test_a_lock_is_of_one_holder_at_a_time(tmp_path: Path) -> None:
    first, second = (os.open(tmp_path, os.O_RDONLY) for _ in range(2))
    durable.lock(first)
    with pytest.raises(BlockingIOError, match="another program holds its lock"):
        durable.lock(second)
    os.close(first)
    durable.lock(second, LIVES)
    os.close(second)
    no_file = 1 << 20  # fails as a folder does where the file system locks none
    durable.lock(no_file, is_needed=False)
    with pytest.raises(OSError, match="Bad file descriptor"):
        durable.lock(no_file)
