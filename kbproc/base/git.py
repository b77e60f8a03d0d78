"""Finds a folder's git repository, the main worktree beside a linked one, and a person's own rules
of what git ignores.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from kbproc.base.host import environment
from kbproc.base.paths import open_regular

_MOST_BYTES = 1 << 13
_PATIENCE_S = 5.0


def in_main_worktree(folder: Path) -> tuple[Path, Path] | None:
    """Returns the folder's counterpart in the main worktree, and that worktree's root.

    Returns None in the main worktree itself, and outside of a repository. A folder that only claims
    to be a worktree gets None, too: the repository must name it in return.
    """
    for place in (folder, *folder.parents):
        mode = _mode(place / ".git")
        if stat.S_ISDIR(mode):
            return None
        if stat.S_ISREG(mode):
            main = main_worktree(place)
            return None if main is None else (main / folder.relative_to(place), main)
    return None


def main_worktree(root: Path) -> Path | None:
    """Returns the main worktree of the repository with this linked worktree; None for others."""
    repository = None if stat.S_ISDIR(_mode(root / ".git")) else repository_of(root)
    if repository is None or repository.name != ".git":
        return None  # a bare repository has no main worktree
    return repository.parent


def repository_of(root: Path) -> Path | None:
    """Returns the repository's own folder, mostly `.git`, if `root` is one of its worktrees."""
    mark = root / ".git"
    if stat.S_ISDIR(_mode(mark)):
        return mark
    name, _, path = (_text(mark) or "").partition(":")
    if name != "gitdir":
        return None
    own = root / path.strip()  # .git/worktrees/NAME of the main worktree
    common, back = _text(own / "commondir"), _text(own / "gitdir")
    if common is None or back is None or not _is_same(own / back, mark):
        return None
    repository = Path(os.path.normpath(own / common))
    return repository if own.resolve().is_relative_to(repository.resolve()) else None


def personal_rules() -> Path | None:
    """Returns the file with the person's own rules of what git ignores in every repository.

    git itself is asked, because its settings may include others. None without git.
    """
    import subprocess  # most commands walk no folder

    command = ("git", "config", "--global", "--includes", "--type=path", "core.excludesFile")
    try:
        answer = subprocess.run(
            command,
            cwd="/",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_PATIENCE_S,
            check=False,
        ).stdout.removesuffix(b"\n")
    except (OSError, subprocess.SubprocessError):
        return None
    if answer:
        return Path(os.fsdecode(answer))
    settings = environment().get("XDG_CONFIG_HOME") or "~/.config"
    return Path(settings).expanduser() / "git" / "ignore"


def _mode(path: Path) -> int:
    """Returns the path's mode; 0 if it does not exist or can't be examined."""
    try:
        return path.stat().st_mode
    except OSError:
        return 0


def _is_same(one: Path, other: Path) -> bool:
    return os.path.realpath(one) == os.path.realpath(other)


def _text(path: Path) -> str | None:
    """Returns the text of a small file, stripped; None if there is none."""
    try:
        with os.fdopen(open_regular(path), "rb") as file:
            return os.fsdecode(file.read(_MOST_BYTES)).strip()
    except (OSError, ValueError):
        return None
