"""A run of tests leaves nothing in memory; see tests/kit/tmpfs.py."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.kit import tmpfs


def test_a_runs_folder_is_private_and_gone_at_its_end(tmp_path: Path) -> None:
    run = tmpfs.InMemory(tmp_path)
    assert run.folder.stat().st_mode & 0o777 == 0o700
    (run.folder / "file").write_text("words")
    run.pytest_sessionfinish(pytest.ExitCode.OK)
    run.pytest_unconfigure()
    assert list(tmp_path.iterdir()) == []


def test_the_folders_of_failed_tests_lie_in_the_usual_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (usual := tmp_path / "usual").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(usual))
    (place := tmp_path / "memory").mkdir()
    run = tmpfs.InMemory(place)
    (run.folder / "file").write_text("words")
    os.mkfifo(run.folder / "pipe")
    run.pytest_sessionfinish(pytest.ExitCode.TESTS_FAILED)
    run.pytest_unconfigure()
    assert list(place.iterdir()) == []
    (copy,) = usual.iterdir()
    assert (copy / "file").read_text() == "words"
    assert str(copy) in capsys.readouterr().out


def test_folders_of_killed_runs_go_and_those_of_others_stay(tmp_path: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    for name in (f"kbproc-{ended.pid}-a", f"kbproc-{os.getpid()}-b", "kbproc-home-c", "other"):
        (tmp_path / name).mkdir()
    tmpfs.remove_remains(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {
        f"kbproc-{os.getpid()}-b",
        "kbproc-home-c",
        "other",
    }


def test_a_small_tmpfs_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tmpfs, "LEAST_BYTES", 0)
    assert tmpfs.has_room(tmp_path)
    assert not tmpfs.has_room(tmp_path / "nowhere")
    monkeypatch.setattr(tmpfs, "LEAST_BYTES", 1 << 80)
    assert not tmpfs.has_room(tmp_path)


def test_the_folders_of_the_last_failed_runs_stay(tmp_path: Path) -> None:
    for number, name in enumerate(("failed-old", "failed-new", "docs-other")):
        (tmp_path / f"kbproc-{name}").mkdir()
        os.utime(tmp_path / f"kbproc-{name}", (number, number))
    tmpfs.remove_all_but(1, tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"kbproc-failed-new", "kbproc-docs-other"}
