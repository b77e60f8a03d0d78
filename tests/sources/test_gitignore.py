"""Tests the rules of .gitignore files against git itself, if it is installed."""

from __future__ import annotations

import random
import shutil
import subprocess
from pathlib import Path

import pytest

from kbproc.engine.sources import gitignore
from kbproc.engine.sources.walk import Omissions, walk

PARTS = ["a", "b", "x.md", "*.md", "?", "**", "*", "[ab]", "[!a]", "a*", "\\a", "c", "[a-c].md"]
FOLDERS = ["", "a/", "b/", "c/", "a/b/", "a/c/", "b/a/", "a/b/c/"]


def some_pattern(chance: random.Random) -> str:
    text = "/".join(chance.choice(PARTS) for _ in range(chance.randint(1, 3)))
    text = f"/{text}" if chance.random() < 0.3 else text
    text = f"{text}/" if chance.random() < 0.3 else text
    return f"!{text}" if chance.random() < 0.35 else text


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    for folder in FOLDERS:
        (tmp_path / folder).mkdir(exist_ok=True)
        for name in ("x.md", "y.md", "a.md", "b.txt", "x"):
            (tmp_path / folder / name).write_text("text")
    return tmp_path


def as_git_sees(tree: Path) -> list[str]:
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--others", "--exclude-standard"],
        cwd=tree,
        check=True,
        capture_output=True,
        text=True,
    )
    return sorted(n for n in listing.stdout.split("\0") if n and not n.endswith(".gitignore"))


@pytest.mark.parametrize("seed", range(20))
def test_random_files_in_random_folders(tree: Path, seed: int) -> None:
    chance = random.Random(seed)
    written = {}
    for folder in FOLDERS:
        if not folder or chance.random() < 0.25:
            text = "\n".join(some_pattern(chance) for _ in range(chance.randint(1, 5)))
            (tree / folder / ".gitignore").write_text(text)
            written[folder] = text
    walked = sorted(path.relative_to(tree).as_posix() for path in walk(tree, root=None))
    assert walked == as_git_sees(tree), written


@pytest.mark.parametrize(
    ("line", "path", "folder", "is_ignored"),
    [
        ("logs/**", "logs", True, False),
        ("logs/**", "logs/a/b", False, True),
        ("build/", "build", False, False),
        ("build/", "sub/build", True, True),
        ("/top", "sub/top", False, False),
        ("a/b", "x/a/b", False, False),
        ("**/b", "x/a/b", False, True),
        ("a/**/b", "a/b", False, True),
        ("*.md", "a/b.md", False, True),
        ("a*c", "a/c", False, False),
        ("[!x]y", "/y", False, False),
        ("trailing ", "trailing", False, True),
        ("kept\\ ", "kept ", False, True),
        ("\\#hash", "#hash", False, True),
        ("\\!bang", "!bang", False, True),
        ("# comment", "# comment", False, False),
        ("[[:digit:]]", "7", False, True),
        ("[]-a]", "]", False, True),
        ("", "", False, False),
        ("crlf\r", "crlf", False, True),
        ("\N{BYTE ORDER MARK}*.log", "a.log", False, True),
        ("[[:xdigit:]]", "F", False, True),
        ("[[:xdigit:]]", "g", False, False),
        ("[[:punct:]]", "]", False, True),
        ("[[:blank:][:cntrl:]]", " ", False, True),
        ("[[:print:]]", " ", False, True),
        ("[[:graph:]]", " ", False, False),
    ],
)
def test_rules(tmp_path: Path, line: str, path: str, folder: bool, is_ignored: bool) -> None:
    (tmp_path / ".gitignore").write_bytes(line.encode() + b"\n")
    ignores = gitignore.read(tmp_path)
    rule = gitignore.ignored(tmp_path / path.lstrip("/"), folder, ignores)
    assert (rule is not None) is is_ignored


def test_what_begins_with_a_hash_can_be_taken_back(tree: Path) -> None:
    """A comment begins its line; what stands behind an exclamation mark is no comment."""
    for name in ("#kept", "#gone"):
        (tree / name).write_text("text")
    (tree / ".gitignore").write_text("*\n!#kept\n")
    names = [path.name for path in walk(tree, root=None)]
    assert names == as_git_sees(tree) == ["#kept"]


def test_a_file_that_is_no_text(tmp_path: Path) -> None:
    (tmp_path / ".gitignore").write_bytes(b"\xff\xfe\x00*.md\n*.txt\n")
    assert gitignore.ignored(tmp_path / "a.txt", False, gitignore.read(tmp_path))
    assert gitignore.read(tmp_path / "nowhere") == []


def git(folder: Path, *argv: str) -> None:
    who = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *who, *argv], cwd=folder, check=True, capture_output=True)


def walked(start: Path) -> list[str]:
    return sorted(path.relative_to(start).as_posix() for path in walk(start, root=None))


@pytest.mark.parametrize("is_named", [True, False])
def test_a_persons_own_rules(
    tree: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    is_named: bool,
) -> None:
    """core.excludesFile counts in a repository, before the rules of the repository."""
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("HOME", str(home))
    rules = home / ("my rules" if is_named else ".config/git/ignore")
    rules.parent.mkdir(parents=True, exist_ok=True)
    rules.write_text("*.md\nb.txt\n/a/b\n")
    if is_named:
        (home / "more").write_text('[core]\n\texcludesFile = "~/my rules"\n')
        (home / ".gitconfig").write_text("[include]\n\tpath = more\n")
    (tree / ".gitignore").write_text("!x.md\n")
    (tree / "c" / ".gitignore").write_text("!b.txt\n")
    assert walked(tree) == as_git_sees(tree)
    assert "c/x.md" in walked(tree) and "a/b/x" not in walked(tree)
    shutil.rmtree(tree / ".git")
    assert "c/y.md" in walked(tree)


def test_worktrees_of_a_repository(tmp_path: Path) -> None:
    """A linked worktree is a second copy where the main one is read; by itself it is read as the
    rules of the repository say.
    """
    main, beside, within = (tmp_path / name for name in ("main", "beside", "main/within"))
    main.mkdir()
    (main / "a.md").write_text("text")
    git(main, "init", "-q")
    git(main, "add", ".")
    git(main, "commit", "-qm", "a")
    git(main, "worktree", "add", "-q", str(beside))
    git(main, "worktree", "add", "-q", str(within))
    left_out = Omissions()
    assert [*walk(tmp_path, root=None, left_out=left_out)] == [main / "a.md"]
    rules = {"linked worktrees: beside/": 1, "linked worktrees: within/": 1}
    assert left_out.by_rule == rules
    assert len([*walk(tmp_path, root=None, all_files=True)]) == 3
    (main / ".git/info/exclude").write_text("*.txt\n")
    for worktree in (beside, within):
        (worktree / "b.txt").write_text("text")
        assert walked(worktree) == ["a.md"]
    main.rename(tmp_path / ".main")  # a walk passes over hidden folders, so it reads the others
    git(tmp_path / ".main", "worktree", "repair", str(beside))
    assert walked(tmp_path) == ["beside/a.md"]
