"""Which files an ingest means.

Owns: walking folders, and what is skipped: hidden files, git's ignored ones, stores, symlinks
that lead out.
Refuses to know: formats, and what becomes of a file.
"""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from kbproc.sources import gitignore
from kbproc.sources.gitignore import Ignores


def walk(
    start: Path,
    *,
    root: Path | None,
    recursive: bool = True,
    glob: str | None = None,
    exclude: Sequence[str] = (),
) -> Iterator[Path]:
    """The regular files below `start` in path order; `start` itself if it is a file.

    A symlink is followed only if what it leads to stays below `start` (or `root`); a
    folder that is a store is passed over.
    """
    if not start.is_dir():
        yield start
        return
    ignores = _ignores_above(start)
    yield from _walk(start, start, root or start, ignores, recursive, glob, exclude)


def _walk(
    folder: Path,
    start: Path,
    limit: Path,
    ignores: list[Ignores],
    recursive: bool,
    glob: str | None,
    exclude: Sequence[str],
) -> Iterator[Path]:
    ignores = [*ignores, *gitignore.read(folder)]
    for entry in sorted(_entries(folder), key=lambda entry: entry.name):
        path = folder / entry.name
        if entry.name.startswith(".") or _excluded(path, start, exclude):
            continue
        if entry.is_symlink() and not _stays(path, limit):
            continue
        is_folder = entry.is_dir()
        if gitignore.ignored(path, is_folder, ignores):
            continue
        if is_folder:
            # A link to a folder above would never end.
            if recursive and not entry.is_symlink() and not _is_whole_store(path):
                yield from _walk(path, start, limit, ignores, recursive, glob, exclude)
        elif entry.is_file() and (glob is None or _matches(path, start, glob)):
            yield path


def _is_whole_store(folder: Path) -> bool:
    """More than a name: many a folder that is no store holds one called log."""
    return (folder / "store.toml").is_file() and (folder / "log").is_dir()


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:  # unreadable or gone meanwhile: nothing to ingest there
        return []


def _stays(path: Path, limit: Path) -> bool:
    return Path(os.path.realpath(path)).is_relative_to(limit)


def _matches(path: Path, start: Path, pattern: str) -> bool:
    relative = path.relative_to(start).as_posix()
    return fnmatch.fnmatch(relative, pattern) or fnmatch.fnmatch(path.name, pattern)


def _excluded(path: Path, start: Path, patterns: Sequence[str]) -> bool:
    return any(_matches(path, start, pattern.rstrip("/")) for pattern in patterns)


def _ignores_above(start: Path) -> list[Ignores]:
    """The .gitignore files between the repository's top and `start`."""
    above = list(start.parents)
    tops = [i for i, folder in enumerate(above) if (folder / ".git").exists()]
    if (start / ".git").exists() or not tops:
        return []
    return [found for folder in reversed(above[: tops[0] + 1]) for found in gitignore.read(folder)]
