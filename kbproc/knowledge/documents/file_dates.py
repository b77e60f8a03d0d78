"""Says when the files of an ingest were last changed.

A checkout gives every file the time of the checkout. So a file whose bytes git has gets the date of
its newest commit, and any other file the time that the file system has.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from kbproc.base import git
from kbproc.base.times import rfc3339

# Archives and package managers give files such times instead of their own.
_EARLIEST_MS = 315_619_200_000  # 1980-01-02
_LATEST_MS = 253_370_764_800_000  # the year 9999


class FileDates:
    """The dates of some files. Git is asked once a repository, when a file's date is needed."""

    def __init__(self, paths: Collection[Path], root: Path | None) -> None:
        """`root`: the folder above which nothing is read."""
        self._paths = paths
        self._root = root
        self._tops: dict[Path, Path | None] = {}
        self._commits: dict[Path, dict[str, git.Committed]] = {}

    def of(self, path: Path, stamp: str, data: bytes) -> str | None:
        """Returns when a file with these bytes was changed; None where that is unknown.

        `stamp`: its size and time; see `moves.stamp_of`.
        """
        time_ns = stamp.partition(":")[2]
        time_ms = int(time_ns) // 1_000_000 if time_ns else 0
        commit = self._commit(path)
        if commit is not None and commit.digest == git.digest_of(data):
            time_ms = commit.seconds * 1000
        return rfc3339(time_ms) if _EARLIEST_MS <= time_ms < _LATEST_MS else None

    def _commit(self, path: Path) -> git.Committed | None:
        top = self._top(path.parent)
        if top is None:
            return None
        if top not in self._commits:
            own = (each for each in self._paths if self._top(each.parent) == top)
            names = {str(each.relative_to(top)) for each in own}
            self._commits[top] = git.newest_commits(top, names)
        return self._commits[top].get(str(path.relative_to(top)))

    def _top(self, folder: Path) -> Path | None:
        """Returns the top of the git worktree around a folder."""
        if folder not in self._tops:
            is_within = self._root is None or folder.is_relative_to(self._root)
            if not is_within:
                self._tops[folder] = None
            elif git.repository_of(folder) is not None:
                self._tops[folder] = folder
            else:
                is_last = folder.parent == folder
                self._tops[folder] = None if is_last else self._top(folder.parent)
        return self._tops[folder]
