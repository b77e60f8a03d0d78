"""Worktrees of one git repository share the link of the main worktree."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from kbproc.base.git import in_main_worktree
from kbproc.base.settings import profiles
from kbproc.base.settings.profiles import LINK, find_link
from kbproc.base.settings.trust import Trust


def git(folder: Path, *argv: str) -> None:
    env = {**os.environ, "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b"}
    env |= {"GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@b"}
    subprocess.run(["git", *argv], cwd=folder, env=env, check=True, capture_output=True)


@pytest.fixture
def main(tmp_path: Path) -> Path:
    """A repository with a second worktree beside it."""
    main = tmp_path / "main"
    (main / "src").mkdir(parents=True)
    (main / "src" / "a").touch()
    git(main, "init", "--quiet")
    git(main, "add", ".")
    git(main, "commit", "--quiet", "-m", "a")
    git(main, "worktree", "add", "--quiet", "../other")
    return main


@pytest.fixture
def trust(tmp_path: Path) -> Trust:
    return Trust(tmp_path / "trusted.json")


def test_a_folder_has_a_counterpart(main: Path) -> None:
    other = main.parent / "other"
    assert in_main_worktree(other / "src") == (main / "src", main)
    assert in_main_worktree(main / "src") is None
    assert in_main_worktree(main.parent) is None


def test_both_worktrees_find_one_link(main: Path, trust: Trust) -> None:
    other = main.parent / "other"
    assert find_link(other, trust) == (None, ())
    profiles.link(main, {"store": str(main / ".kb")}, trust)
    link, notes = find_link(other / "src", trust)
    assert link is not None and (link.path, notes) == (main / LINK, ())
    assert link.settings["store"] == str(main / ".kb")


def test_a_checkout_of_the_link_means_the_same_store(main: Path, trust: Trust) -> None:
    other = main.parent / "other"
    profiles.link(main, {"store": str(main / ".kb")}, trust)
    (other / LINK).write_bytes((main / LINK).read_bytes())
    link, notes = find_link(other, trust)
    assert link is not None and (link.path, notes) == (main / LINK, ())
    (other / LINK).write_text('store = "/elsewhere"\n')
    link, notes = find_link(other, trust)
    assert link is not None and len(notes) == 1 and str(other / LINK) in notes[0]


def test_a_worktree_may_have_its_own(main: Path, trust: Trust) -> None:
    other = main.parent / "other"
    for folder in (main, other):
        profiles.link(folder, {"store": str(folder / ".kb")}, trust)
    link, _ = find_link(other, trust)
    assert link is not None and link.path == other / LINK


def test_a_folder_that_only_claims_to_be_a_worktree_finds_nothing(main: Path, trust: Trust) -> None:
    profiles.link(main, {"store": str(main / ".kb")}, trust)
    foreign = main.parent / "foreign"
    foreign.mkdir()
    (foreign / ".git").write_bytes((main.parent / "other" / ".git").read_bytes())
    assert in_main_worktree(foreign) is None
    (foreign / ".git").write_text(f"gitdir: {main / '.git'}\n")
    assert find_link(foreign, trust) == (None, ())
    for text in ("", "gitdir:", "gitdir: \0", "x" * 100_000):
        (foreign / ".git").write_text(text)
        assert in_main_worktree(foreign) is None
