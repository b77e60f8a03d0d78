"""Which folders become stores, and who may look into them."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.kit.shell import Run, environment, in_process, refused, write_docs


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    return in_process(tmp_path, monkeypatch, capsys)


@pytest.mark.parametrize("flag", ["--store", "--kb", "--agent", "--actor"])
def test_an_empty_name_is_refused(run: Run, tmp_path: Path, flag: str) -> None:
    before = sorted(tmp_path.iterdir())
    for argv in (["search", "x"], ["doc", "create", "--title", "t", "--text", "x"]):
        error = refused(run, *argv, f"{flag}=")
        assert (error["type"], error["field"]) == ("input.invalid_params", flag)
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    "argv",
    [
        ["status"],
        ["search", "x"],
        ["list"],
        ["call", "ping"],
        ["store", "export", "all.ndjson"],
        ["store", "backup", "copy"],
        ["doc", "delete", "1"],
        ["doc", "create", "--title", "t", "--text", "x", "--dry-run"],
    ],
)
def test_what_adds_nothing_makes_no_store(run: Run, tmp_path: Path, argv: list[str]) -> None:
    before = sorted(tmp_path.iterdir())
    error = refused(run, *argv, "--store", "mistyped")
    assert (error["type"], error["exit_code"]) == ("resource.not_found", 5)
    assert "kbproc --store mistyped add" in error["hint"]
    assert sorted(tmp_path.iterdir()) == before


def test_the_doctor_makes_no_store(run: Run, tmp_path: Path) -> None:
    code, out, _ = run("doctor", "--store", "mistyped")
    findings = {row["name"]: row for row in json.loads(out)["data"]["findings"]}
    assert (code, findings["store"]["status"]) == (0, "fail")
    assert "There is no store in mistyped" in findings["store"]["message"]
    assert not (tmp_path / "mistyped").exists()


def test_what_needs_no_store_needs_none(run: Run) -> None:
    for argv in (["version"], ["describe", "search"], ["schema"]):
        assert run(*argv, "--store", "mistyped")[0] == 0


def test_what_adds_makes_a_store(run: Run, tmp_path: Path) -> None:
    assert run("kb", "create", "books", "--store", "new")[0] == 0
    assert run("kb", "get", "books", "--store", "new")[0] == 0
    (tmp_path / "empty").mkdir()
    assert run("kb", "create", "books", "--store", "empty")[0] == 0


def test_a_folder_of_something_else_is_not_adopted(run: Run, tmp_path: Path) -> None:
    docs = write_docs(tmp_path)
    for argv in (["kb", "create", "books"], ["add", "docs"]):
        error = refused(run, *argv, "--store", "docs")
        assert (error["type"], error["exit_code"]) == ("resource.already_exists", 7)
        assert "git-admin.md" in error["message"]
    assert sorted(path.name for path in docs.iterdir()) == ["git-admin.md", "setup.md"]


def test_everything_in_a_store_is_for_its_user_alone(tmp_path: Path) -> None:
    write_docs(tmp_path)
    where = environment(tmp_path)
    (tmp_path / "store" / "store.toml").chmod(0o600)
    for argv in (["add", "docs"], ["search", "git"]):
        subprocess.run(
            [sys.executable, "-m", "kbproc", *argv],
            env={"PATH": os.environ["PATH"], **where},
            cwd=tmp_path,
            check=True,
            capture_output=True,
            umask=0o022,
        )
    store = tmp_path / "store"
    assert list((store / "views").rglob("*"))
    assert _open_to_others([store, *store.rglob("*")]) == []


def test_what_was_open_to_others_is_closed(run: Run, tmp_path: Path) -> None:
    run("kb", "create", "books")
    views = tmp_path / "store" / "views"
    before = [views, *views.rglob("*")]
    for path in before:
        path.chmod(0o755 if path.is_dir() else 0o644)
    assert run("kb", "list")[0] == 0
    assert _open_to_others(before) == []


def _open_to_others(paths: Iterable[Path]) -> list[str]:
    return [
        f"{path} {stat.S_IMODE(path.lstat().st_mode):o}"
        for path in paths
        if path.exists() and stat.S_IMODE(path.lstat().st_mode) & 0o077
    ]
