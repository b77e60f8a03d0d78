"""Sources of a store from before there were packs are found by name, whole and as files only."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from kbproc.engine.sources.older import OlderSources
from kbproc.engine.sources.packs import framed

FIRST, SECOND, THIRD = (character * 64 for character in "abc")


@pytest.fixture
def blobs(tmp_path: Path) -> Path:
    """Returns the folder of an older store, with a source in each of the two depths."""
    folder = tmp_path / "blobs"
    (folder / "aa").mkdir(parents=True)
    (folder / "aa" / FIRST).write_bytes(b"first")
    (folder / "bb" / "bb").mkdir(parents=True)
    (folder / "bb" / "bb" / SECOND).write_bytes(b"second")
    return folder


def test_a_source_is_found_in_either_depth(blobs: Path) -> None:
    older = OlderSources(blobs.parent)
    assert older.may_hold_some
    assert older.path(FIRST) == blobs / "aa" / FIRST
    assert older.path(SECOND) == blobs / "bb" / "bb" / SECOND
    assert older.path(THIRD) is None


def test_symlinks_and_folders_are_no_sources(blobs: Path) -> None:
    (blobs / "cc" / THIRD).mkdir(parents=True)
    link = blobs / "aa" / ("a" * 63 + "b")
    link.symlink_to(blobs / "aa" / FIRST)
    older = OlderSources(blobs.parent)
    assert older.path(THIRD) is None
    assert older.path(link.name) is None
    assert sorted(path.name for path in older.files()) == [FIRST, SECOND]


def test_temporary_files_are_no_sources_and_are_swept(blobs: Path) -> None:
    temporary = [blobs / "aa" / "x.tmp", blobs / "bb" / "bb" / "y.tmp"]
    for path in temporary:
        path.touch()
    older = OlderSources(blobs.parent)
    assert sorted(path.name for path in older.files()) == [FIRST, SECOND]
    older.sweep()
    assert not any(path.exists() for path in temporary)
    assert older.path(FIRST) and older.path(SECOND)


def test_only_empty_folders_are_removed(blobs: Path) -> None:
    older = OlderSources(blobs.parent)
    (blobs / "aa" / FIRST).unlink()
    older.remove_folders()
    assert [path.name for path in blobs.iterdir()] == ["bb"]
    assert older.may_hold_some
    (blobs / "bb" / "bb" / SECOND).unlink()
    older.remove_folders()
    assert not blobs.exists()
    assert not older.may_hold_some
    assert older.path(SECOND) is None


def test_a_store_without_such_a_folder_has_none(tmp_path: Path) -> None:
    older = OlderSources(tmp_path)
    assert not older.may_hold_some
    assert older.path(FIRST) is None
    assert list(older.files()) == []
    older.sweep()
    older.remove_folders()
    assert older.journal() is None
    assert list(tmp_path.iterdir()) == []


def test_the_journal_has_the_frames_of_a_pack(blobs: Path) -> None:
    data = b"the newest source"
    digest = hashlib.sha256(data).digest()
    path = blobs.with_name("blobs.journal")
    path.write_bytes(framed(digest, data) + framed(digest, b"torn")[:-2])
    journal = OlderSources(blobs.parent).journal()
    assert journal is not None
    [(key, frame)] = journal.frames()
    assert (key, journal.read(frame)) == (digest, data)


def test_a_journal_that_is_no_file_is_an_error(blobs: Path) -> None:
    journal = blobs.with_name("blobs.journal")
    journal.symlink_to(blobs / "aa" / FIRST)
    with pytest.raises(OSError, match="it is a symbolic link"):
        OlderSources(blobs.parent).journal()
