"""Tests the rules of .gitignore files against git itself, if it is installed."""

from __future__ import annotations

import random
import shutil
import subprocess
from pathlib import Path

import pytest

from kbproc.engine.sources import gitignore
from kbproc.engine.sources.walk import walk

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
