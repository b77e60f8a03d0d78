"""A file that another program writes, too, loses nothing of it, and keeps its owner and mode."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kbproc.base import edits
from kbproc.base import renames as base_renames

OLD, NEW, THEIRS = b"old\n", b"new\n", b"theirs\n"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "settings.json"
    path.write_bytes(OLD)
    return path


def names(path: Path) -> list[str]:
    return sorted(file.name for file in path.parent.iterdir())


def by_rename(path: Path, data: bytes) -> None:
    temporary = path.with_name("theirs")
    temporary.write_bytes(data)
    temporary.replace(path)


def in_place(path: Path, data: bytes) -> None:
    path.write_bytes(data)


def test_a_file_is_written_removed_and_made_again(path: Path) -> None:
    path.chmod(0o640)
    others = path.with_name("settings.json.tmp")  # somebody else's
    others.write_text("a draft")
    assert edits.write(path, OLD, NEW) and path.read_bytes() == NEW
    assert path.stat().st_mode & 0o777 == 0o640
    assert edits.write(path, NEW, NEW)
    assert edits.write(path, NEW, None) and not path.exists()
    assert edits.write(path, None, None)
    assert edits.write(path, None, OLD, mode=0o644) and path.read_bytes() == OLD
    assert path.stat().st_mode & 0o777 == 0o644
    assert names(path) == ["settings.json", "settings.json.tmp"]
    assert others.read_text() == "a draft"
    link = path.with_name("link")
    link.symlink_to(path.name)
    assert edits.write(link, OLD, NEW) and link.is_symlink() and path.read_bytes() == NEW


def test_what_stands_is_not_what_was_read(path: Path) -> None:
    assert not edits.write(path, b"older", NEW)
    assert not edits.write(path, None, NEW)
    assert not edits.write(path, b"older", None)
    assert path.read_bytes() == OLD
    path.unlink()
    assert not edits.write(path, OLD, NEW) and not path.exists()


@pytest.mark.parametrize("save", [by_rename, in_place])
@pytest.mark.parametrize("after", [NEW, None])
@pytest.mark.parametrize("times", [1, 2, 3])
def test_a_text_that_is_saved_in_the_last_instant_stays(
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
    save: Callable[[Path, bytes], None],
    after: bytes | None,
    times: int,
) -> None:
    """The other program saves just before a rename, once or again before those that mend it."""
    texts = iter([THEIRS * n for n in range(1, times + 1)])
    saved = [OLD]
    for name in ("swap_names", "move"):
        step = getattr(base_renames, name)

        def before_it(folder: int, one: str, two: str, step: Callable[..., None] = step) -> None:
            if (text := next(texts, None)) is not None and path.exists():
                save(path, text)
                saved.append(text)
            step(folder, one, two)

        monkeypatch.setattr(edits, name, before_it)
    assert not edits.write(path, OLD, after)
    assert path.read_bytes() == saved[-1] != OLD
    assert names(path) == ["settings.json"]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells of a writer")
def test_a_file_that_a_program_is_writing_stays(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(edits, "_WRITER_SECONDS", 0.05)
    with path.open("r+b") as file:
        with pytest.raises(OSError, match="open for writing"):
            edits.write(path, OLD, NEW)
        file.write(THEIRS)
    assert path.read_bytes() == THEIRS


def test_a_new_file_replaces_none_that_came_meanwhile(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path.unlink()
    move = base_renames.move

    def late(folder: int, name: str, target: str) -> None:
        path.write_bytes(THEIRS)
        move(folder, name, target)

    monkeypatch.setattr(edits, "move", late)
    assert not edits.write(path, None, NEW)
    assert path.read_bytes() == THEIRS and names(path) == ["settings.json"]


def test_where_two_files_can_t_change_names(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base_renames, "system_call", lambda: None)
    assert edits.write(path, OLD, NEW) and path.read_bytes() == NEW
    assert not edits.write(path, OLD, NEW)
    assert edits.write(path, NEW, None) and edits.write(path, None, OLD)
    assert names(path) == ["settings.json"]


def test_a_special_file_is_refused_at_once(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(OSError, match="no regular file"):
        edits.read(path)
    with pytest.raises(OSError, match="no regular file"):
        edits.write(path, None, NEW)
    assert path.is_fifo()


def test_a_write_that_fails_leaves_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(fd: int, data: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(edits, "write_all", full)
    with pytest.raises(OSError, match="No space"):
        edits.write(path, OLD, NEW)
    assert path.read_bytes() == OLD and names(path) == ["settings.json"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_root_keeps_the_owner(path: Path) -> None:
    os.chown(path.parent, 1234, 1235)
    os.chown(path, 1234, 1236)
    assert edits.write(path, OLD, NEW)
    assert (path.stat().st_uid, path.stat().st_gid) == (1234, 1236)
    new = path.parent / "a" / "b" / "new.json"
    assert edits.write(new, None, NEW)
    for place in (new, new.parent, new.parent.parent):
        assert (place.stat().st_uid, place.stat().st_gid) == (1234, 1235)


def test_an_edit_is_repeated_until_nobody_comes_between(path: Path) -> None:
    texts = iter([b"1", b"2"])

    def change(data: bytes | None) -> bytes | None:
        if (text := next(texts, None)) is not None:
            path.write_bytes(text)
        return (data or b"") + b"!"

    edits.edit(path, change)
    assert path.read_bytes() == b"2!"
