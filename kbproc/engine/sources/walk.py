"""Which files an ingest means.

Owns: walking folders, and leaving out hidden files, files that git ignores, stores, symlinks that
lead out or to folders, and the files and folders that skipped.py names.
Refuses to know: formats, and what becomes of a file.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from kbproc.base import paths
from kbproc.base.errors import KbprocError
from kbproc.sources import gitignore
from kbproc.sources.gitignore import Ignores, Missed
from kbproc.sources.pattern import NamePattern
from kbproc.sources.skipped import rule_for

MOST_NESTED = 200  # folders: each is opened from the walk's start on, name by name


class SkippedLink(NamedTuple):
    """A symlink that is not followed, and where it leads."""

    path: Path
    target: Path
    reason: str


_Kind = Literal["file", "folder", "other"] | OSError | SkippedLink


class LeftOut:
    """The links and rules that a walk passed files over for; the answer names them."""

    def __init__(self) -> None:
        self.by_rule: dict[str, int] = {}  # rule → files and folders
        self.links: list[SkippedLink] = []

    def count(self, rule: str) -> None:
        self.by_rule[rule] = self.by_rule.get(rule, 0) + 1


class _Folder(NamedTuple):
    """A folder that is being walked: its remaining entries, its names, and the rules in it."""

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
    missed: Missed = lambda path, why: None,
    looked: Callable[[Path], None] = lambda path: None,
    left_out: LeftOut | None = None,
    check: Callable[[], None] = lambda: None,
) -> Iterator[Path]:
    """The regular files below `start` in path order; `start` itself if it is no folder.

    `glob` and `exclude` speak of a name, or of a path from `start` on, in which a star matches
    slashes too. A symlink to a file is followed only if that lies below `root`, or `start` where
    there is no root; a folder that is a store is passed over. With `all_files` neither git's rules
    nor those of skipped.py leave anything out. `missed` gets each path that can't be looked at,
    and why; `looked` each that was looked at and is not given out, be it missed in part;
    `left_out` what a rule left out. `check` is called at every step, and may raise.
    """
    if not stat.S_ISDIR(_mode(start)):
        yield start
        return
    tally = left_out or LeftOut()
    walking = _Walk(
        root or start,
        len(start.parts),
        glob,
        exclude,
        all_files=all_files,
        missed=missed,
        looked=looked,
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
            missed(path, _unseen(path, kind))
        elif kind == "file":
            yield path
        elif isinstance(kind, SkippedLink):
            tally.links.append(kind)
            looked(path)
        elif kind == "other":
            looked(path)


class _Walk:
    def __init__(
        self,
        limit: Path,
        depth: int,
        glob: str | None,
        exclude: Sequence[str],
        *,
        all_files: bool,
        missed: Missed,
        looked: Callable[[Path], None],
        left_out: LeftOut,
        check: Callable[[], None],
    ) -> None:
        """`depth`: how many names of a path are those of the walk's start."""
        self._limit = limit
        self._depth = depth
        self._glob = None if glob is None else NamePattern(glob)
        self._exclude = [NamePattern(pattern.rstrip("/")) for pattern in exclude]
        self._all_files = all_files
        self._missed = missed
        self._looked = looked
        self._left_out = left_out
        self._check = check

    def takes(self, path: Path, kind: _Kind | None, folder: _Folder) -> bool:
        self._check()
        if path.name.startswith(".") or any(self._matches(path, p) for p in self._exclude):
            return False
        is_folder = kind == "folder"
        rule = None if self._all_files else rule_for(path, is_folder, folder.names)
        rule = rule or gitignore.ignored(path, is_folder, folder.ignores, self._check)
        if rule is not None:
            self._left_out.count(rule)
            return False
        if is_folder:
            return not _is_whole_store(path)
        return self._glob is None or self._matches(path, self._glob)

    def _matches(self, path: Path, pattern: NamePattern) -> bool:
        return pattern.matches("/".join(path.parts[self._depth :])) or pattern.matches(path.name)

    def enter(self, folder: Path, above: list[Ignores]) -> _Folder:
        """Nothing is left of a folder that can't be looked into."""
        if len(folder.parts) - self._depth > MOST_NESTED:
            self._missed(folder, _too_deep(folder))
            return _Folder(iter(()), frozenset(), above)
        try:
            fd = paths.open_folder(folder, within=self._limit)
            try:
                found = self._listed(folder, fd, above)
            finally:
                os.close(fd)
            self._looked(folder)
            return found
        except OSError as error:
            self._missed(folder, _unseen(folder, error))
        except KbprocError as error:
            if error.type != "path.outside_root":  # a link has taken the folder's place
                raise
            self._missed(folder, error)
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
        """The .gitignore files between the repository's top and `start`."""
        above = list(start.parents)
        tops = [i for i, folder in enumerate(above) if _mode(folder / ".git")]
        if _mode(start / ".git") or not tops:
            return []
        found: list[Ignores] = []
        for folder in reversed(above[: tops[0] + 1]):
            found = self._ignores(folder, found)
        return found

    def _ignores(self, folder: Path, above: list[Ignores], fd: int | None = None) -> list[Ignores]:
        if self._all_files:
            return above
        ignores = gitignore.read(folder, fd=fd, above=above, missed=self._missed, check=self._check)
        self._looked(folder / gitignore.NAME)
        self._looked(folder / gitignore.EXCLUDE)
        return ignores

    def _kind(self, entry: os.DirEntry[str], path: Path) -> _Kind:
        """A link counts as a file if it leads to one below the limit; else it is skipped."""
        try:
            if not entry.is_symlink():
                return "folder" if entry.is_dir() else "file" if entry.is_file() else "other"
            # The target as the link itself has it: a walk tells nothing of what lies outside,
            # neither where further links lead there nor whether the target exists.
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


def _unseen(path: Path, error: OSError) -> KbprocError:
    loop = "it is a symbolic link that leads back to itself"
    why = loop if error.errno == errno.ELOOP else error.strerror
    return KbprocError("operation.failed", f"{paths.printable(path)} can't be looked at: {why}.")


def _too_deep(path: Path) -> KbprocError:
    name = paths.printable(Path(path.name))
    message = f"{name} is not looked into: it lies more than {MOST_NESTED} folders deep."
    return KbprocError("operation.failed", message)


def _is_whole_store(folder: Path) -> bool:
    """More than a name: many a folder that is no store holds one called log."""
    return stat.S_ISREG(_mode(folder / "store.toml")) and stat.S_ISDIR(_mode(folder / "log"))


def _mode(path: Path) -> int:
    """0 for what is not there or can't be looked at."""
    try:
        return path.stat().st_mode
    except OSError:
        return 0
