"""Walks folders and yields the files that an ingest reads.

The walk leaves out hidden files, files that git ignores, stores, symlinks that lead out of the
root or to folders, linked worktrees of a repository that is read too, and the files and folders
that skipped.py names.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Literal, NamedTuple

from kbproc.base import git, paths
from kbproc.base.errors import KbprocError
from kbproc.engine.sources import gitignore
from kbproc.engine.sources.gitignore import Ignores, OnError
from kbproc.engine.sources.pattern import NamePattern
from kbproc.engine.sources.skipped import rule_for

# The most folders within each other; each is opened from the walk's start on, name by name.
MOST_NESTED = 200


class SkippedLink(NamedTuple):
    """A symlink that the walk does not follow."""

    path: Path
    target: Path
    reason: str


_Kind = Literal["file", "folder", "other"] | OSError | SkippedLink


class Omissions:
    """The files that a walk left out: their number by rule, and the links."""

    def __init__(self) -> None:
        self.by_rule: dict[str, int] = {}  # rule → number of files and folders
        self.links: list[SkippedLink] = []

    def count(self, rule: str) -> None:
        self.by_rule[rule] = self.by_rule.get(rule, 0) + 1


class _Folder(NamedTuple):
    """A folder that is being walked: its remaining entries, all its names, and git's rules."""

    remaining: Iterator[tuple[Path, _Kind]]
    names: frozenset[str]
    ignores: list[Ignores]


def walk(
    start: Path,
    *,
    root: Path | None,
    recursive: bool = True,
    glob: str | None = None,
    exclude: Sequence[str] = (),
    all_files: bool = False,
    on_error: OnError = lambda path, why: None,
    on_visit: Callable[[Path], None] = lambda path: None,
    on_folder: Callable[[Path], None] = lambda path: None,
    left_out: Omissions | None = None,
    check: Callable[[], None] = lambda: None,
) -> Iterator[Path]:
    """Yields the regular files below `start` in path order; `start` itself if it is no folder.

    `glob` and `exclude` match a name, or a path from `start` on, in which a star matches slashes
    too. A symlink to a file is followed only if the file lies below `root`, or below `start`
    without a root. A folder that is a store is left out. With `all_files`, neither git's rules nor
    those of skipped.py apply.

    `on_error` gets each path that can't be examined, with the error. `on_visit` gets each path
    that was examined and is not yielded, even if a part of it failed. `on_folder` gets each folder
    before it is listed. `left_out` collects what rules left out. `check` is called at every step,
    and may raise.
    """
    if not stat.S_ISDIR(paths.mode_of(start)):
        yield start
        return
    tally = left_out or Omissions()
    walking = _Walk(
        start,
        root or start,
        glob,
        exclude,
        all_files=all_files,
        on_error=on_error,
        on_visit=on_visit,
        on_folder=on_folder,
        left_out=tally,
        check=check,
    )
    folders = [walking.enter(start, walking.ignores_above(start))]
    while folders:
        path, kind = next(folders[-1].remaining, (None, None))
        if path is None:
            folders.pop()
        elif not walking.takes(path, kind, folders[-1]):
            continue
        elif kind == "folder" and recursive:
            folders.append(walking.enter(path, folders[-1].ignores))
        elif isinstance(kind, OSError):
            on_error(path, unseen(path, kind))
        elif kind == "file":
            yield path
        elif isinstance(kind, SkippedLink):
            tally.links.append(kind)
            on_visit(path)
        elif kind == "other":
            on_visit(path)


class _Walk:
    def __init__(
        self,
        start: Path,
        limit: Path,
        glob: str | None,
        exclude: Sequence[str],
        *,
        all_files: bool,
        on_error: OnError,
        on_visit: Callable[[Path], None],
        on_folder: Callable[[Path], None],
        left_out: Omissions,
        check: Callable[[], None],
    ) -> None:
        self._start = start
        self._limit = limit
        self._depth = len(start.parts)
        self._glob = None if glob is None else NamePattern(glob)
        self._exclude = [NamePattern(pattern.rstrip("/")) for pattern in exclude]
        self._all_files = all_files
        self._on_error = on_error
        self._on_visit = on_visit
        self._on_folder = on_folder
        self._left_out = left_out
        self._check = check

    def takes(self, path: Path, kind: _Kind | None, folder: _Folder) -> bool:
        self._check()
        if path.name.startswith(".") or any(self._matches(path, p) for p in self._exclude):
            return False
        is_folder = kind == "folder"
        rule = None if self._all_files else self._rule_for(path, is_folder, folder)
        rule = rule or gitignore.ignored(path, is_folder, folder.ignores, self._check)
        if rule is not None:
            self._left_out.count(rule)
            return False
        if is_folder:
            return not _is_whole_store(path)
        return self._glob is None or self._matches(path, self._glob)

    def _rule_for(self, path: Path, is_folder: bool, folder: _Folder) -> str | None:
        rule = rule_for(path, is_folder, folder.names)
        if rule is None and is_folder and self._is_second_copy(path):
            return f"linked worktrees: {path.name}/"
        return rule

    def _is_second_copy(self, folder: Path) -> bool:
        """Returns True for a linked worktree of a repository that this walk reads, too."""
        main = git.main_worktree(folder)
        if main is None:
            return False
        start, main = Path(os.path.realpath(self._start)), Path(os.path.realpath(main))
        if start.is_relative_to(main):
            return True
        below = main.is_relative_to(start)
        return below and not any(n.startswith(".") for n in main.relative_to(start).parts)

    @cached_property
    def _personal_rules(self) -> Path | None:
        return git.personal_rules()

    def _matches(self, path: Path, pattern: NamePattern) -> bool:
        return pattern.matches("/".join(path.parts[self._depth :])) or pattern.matches(path.name)

    def enter(self, folder: Path, above: list[Ignores]) -> _Folder:
        """Returns the folder with its entries; without any if it can't be read."""
        if len(folder.parts) - self._depth > MOST_NESTED:
            self._on_error(folder, _too_deep(folder))
            return _Folder(iter(()), frozenset(), above)
        try:
            fd = paths.open_folder(folder, within=self._limit)
            self._on_folder(folder)
            try:
                listed = self._listed(folder, fd, above)
            finally:
                os.close(fd)
            self._on_visit(folder)
            return listed
        except OSError as error:
            self._on_error(folder, unseen(folder, error))
        except KbprocError as error:
            if error.type != "path.outside_root":  # a link has taken the folder's place
                raise
            self._on_error(folder, error)
        return _Folder(iter(()), frozenset(), above)

    def _listed(self, folder: Path, fd: int, above: list[Ignores]) -> _Folder:
        ignores = self._ignores(folder, above, fd)
        children: list[tuple[Path, _Kind]] = []
        with os.scandir(fd) as entries:
            for entry in entries:
                self._check()
                path = folder / entry.name
                children.append((path, self._kind(entry, path)))
        children.sort(key=lambda pair: pair[0].name)
        names = frozenset(path.name for path, _ in children)
        return _Folder(iter(children), names, ignores)

    def ignores_above(self, start: Path) -> list[Ignores]:
        """Returns the .gitignore files from the repository's top down to `start`'s parent."""
        above = list(start.parents)
        tops = [i for i, folder in enumerate(above) if paths.mode_of(folder / ".git")]
        if paths.mode_of(start / ".git") or not tops:
            return []
        ignores: list[Ignores] = []
        for folder in reversed(above[: tops[0] + 1]):
            ignores = self._ignores(folder, ignores)
        return ignores

    def _ignores(self, folder: Path, above: list[Ignores], fd: int | None = None) -> list[Ignores]:
        if self._all_files:
            return above
        return gitignore.read(
            folder,
            fd=fd,
            above=above,
            personal=lambda: self._personal_rules,
            on_error=self._on_error,
            on_visit=self._on_visit,
            check=self._check,
        )

    def _kind(self, entry: os.DirEntry[str], path: Path) -> _Kind:
        """Returns the kind of an entry; a link to a file below the limit counts as a file."""
        try:
            if not entry.is_symlink():
                return "folder" if entry.is_dir() else "file" if entry.is_file() else "other"
            # The target is the link's own text, because a walk must not disclose what lies
            # outside: neither where further links lead there nor whether the target exists.
            target = Path(os.path.normpath(path.parent / path.readlink()))
            if not Path(os.path.realpath(path)).is_relative_to(self._limit):
                return SkippedLink(path, target, f"it leads out of {paths.printable(self._limit)}")
            mode = path.stat().st_mode
        except FileNotFoundError:
            return SkippedLink(path, target, "its target does not exist")
        except OSError as error:
            return error
        if stat.S_ISDIR(mode):
            # A link to a folder above would never end.
            return SkippedLink(path, target, "links to folders are not followed")
        return "file" if stat.S_ISREG(mode) else "other"


def unseen(path: Path, error: OSError) -> KbprocError:
    """Returns the error of a path that the system refuses to look at."""
    loop = "it is a symbolic link that leads back to itself"
    why = loop if error.errno == errno.ELOOP else error.strerror
    return KbprocError(
        "operation.failed",
        f"{paths.printable(path)} can't be looked at: {why}.",
        passing=error.errno != errno.ELOOP,
    )


def _too_deep(path: Path) -> KbprocError:
    name = paths.printable(Path(path.name))
    message = f"{name} is not looked into: it lies more than {MOST_NESTED} folders deep."
    return KbprocError("operation.failed", message)


def _is_whole_store(folder: Path) -> bool:
    """Returns True for a store, which has two entries of certain names: one alone is common."""
    return stat.S_ISREG(paths.mode_of(folder / "store.toml")) and stat.S_ISDIR(
        paths.mode_of(folder / "log")
    )
