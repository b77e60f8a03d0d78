"""Finds the main worktree of a git repository, so that all of its worktrees share one link."""

from __future__ import annotations

import os
from pathlib import Path

_MOST_BYTES = 1 << 13


def in_main_worktree(folder: Path) -> tuple[Path, Path] | None:
    """Returns the folder's counterpart in the main worktree, and that worktree's root.

    Returns None in the main worktree itself, and outside of a repository. A folder that only claims
    to be a worktree gets None, too: the repository must name it in return.
    """
    for place in (folder, *folder.parents):
        if (mark := _text(place / ".git")) is not None:
            return _counterpart(folder, place, mark)
        if (place / ".git").is_dir():
            return None
    return None


def _counterpart(folder: Path, root: Path, mark: str) -> tuple[Path, Path] | None:
    name, _, path = mark.partition(":")
    if name != "gitdir":
        return None
    own = root / path.strip()  # .git/worktrees/NAME of the main worktree
    common, back = _text(own / "commondir"), _text(own / "gitdir")
    if common is None or back is None or not _is_same(own / back, root / ".git"):
        return None
    repository = Path(os.path.normpath(own / common))
    if repository.name != ".git" or not own.resolve().is_relative_to(repository.resolve()):
        return None  # a bare repository has no main worktree
    return repository.parent / folder.relative_to(root), repository.parent


def _is_same(one: Path, other: Path) -> bool:
    return os.path.realpath(one) == os.path.realpath(other)


def _text(path: Path) -> str | None:
    """Returns the text of a small file, stripped; None if there is none."""
    try:
        with path.open("rb") as file:
            return os.fsdecode(file.read(_MOST_BYTES)).strip()
    except (OSError, ValueError):
        return None
