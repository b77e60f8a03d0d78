"""Finds the rule by which git would ignore a path: in .gitignore files, in a repository's
.git/info/exclude, and in the file that a person's settings of git name (core.excludesFile).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from kbproc.base import git, paths
from kbproc.base.errors import KbprocError
from kbproc.engine.sources.pattern import MOST_CHARACTERS, PathPattern

NAME = ".gitignore"
_EXCLUDE = Path("info/exclude")  # a repository's own rules, which are in no commit
MOST_BYTES = 64 << 10  # for one file
MOST_BYTES_TOGETHER = 256 << 10  # for all files whose rules apply to one path

OnError = Callable[[Path, KbprocError], None]


class Rule(NamedTuple):
    """A rule of an ignore file; `line` is its text in the file."""

    pattern: PathPattern
    folders_only: bool
    ignores: bool
    line: str


class Ignores(NamedTuple):
    """An ignore file: the number of parts in its folder's path, its rules, its size in bytes."""

    depth: int
    rules: list[Rule]
    size: int
    path: Path


def read(
    folder: Path,
    *,
    fd: int | None = None,
    above: Sequence[Ignores] = (),
    personal: Callable[[], Path | None] = lambda: None,
    on_error: OnError = lambda path, why: None,
    on_visit: Callable[[Path], None] = lambda path: None,
    check: Callable[[], None] = lambda: None,
) -> list[Ignores]:
    """Returns `above` and the folder's ignore files: its .gitignore and, at the top of a worktree,
    the `personal` file and the repository's exclude file before it.

    `fd` is a descriptor of the folder. `on_error` gets each file that could not be applied, or only
    in part, with the error, and `on_visit` each that was looked at. `check` is called for each
    rule, and may raise.
    """
    own = folder / NAME
    files = [(own, lambda: paths.open_regular(own if fd is None else NAME, folder=fd))]
    if (repository := git.repository_of(folder)) is not None:
        exclude, top = repository / _EXCLUDE, folder if repository.parent == folder else repository
        files.insert(0, (exclude, lambda: paths.open_file(exclude, within=top)))
        if (file := personal()) is not None:
            # People keep it elsewhere and link to it.
            files.insert(0, (file, lambda: paths.open_regular(file.resolve())))
    ignores = [*above]
    for path, open_file in files:
        ignores = _with_file(folder, path, open_file, ignores, on_error, check)
        on_visit(path)
    return ignores


def _with_file(
    folder: Path,
    path: Path,
    open_file: Callable[[], int],
    above: list[Ignores],
    on_error: OnError,
    check: Callable[[], None],
) -> list[Ignores]:
    """Returns `above` and the file at `path`, whose rules apply in `folder`."""
    try:
        data = _data(path, open_file(), MOST_BYTES_TOGETHER - sum(file.size for file in above))
    except (FileNotFoundError, NotADirectoryError):
        return above
    except OSError as error:
        on_error(path, _passed_over(path, str(error.strerror)))
        return above
    except KbprocError as error:
        on_error(path, error)
        return above
    rules = list[Rule]()
    # Some editors begin a file with a byte order mark, which git ignores.
    for number, line in enumerate(data.decode("utf-8-sig", "replace").split("\n"), 1):
        check()
        if len(line) > MOST_CHARACTERS:
            on_error(path, _too_long(path, number))
        elif rule := _rule(line):
            rules.append(rule)
    return [*above, Ignores(len(folder.parts), rules, len(data), path)]


def _data(path: Path, fd: int, room: int) -> bytes:
    """Returns the file's bytes. Raises OSError, or input.too_large beyond `room` bytes."""
    with open(fd, "rb") as file:
        data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise _passed_over(path, f"it has more than {MOST_BYTES >> 10} KiB", "input.too_large")
    if len(data) > room:
        most = MOST_BYTES_TOGETHER >> 10
        why = f"with those of the folders above it has more than {most} KiB"
        raise _passed_over(path, why, "input.too_large")
    return data


def _passed_over(path: Path, why: str, type: str = "operation.failed") -> KbprocError:
    return KbprocError(type, f"{path.name} was not applied: {why}.")


def _too_long(path: Path, number: int) -> KbprocError:
    message = (
        f"{path.name}: line {number} was not applied, as it has more than {MOST_CHARACTERS} "
        "characters."
    )
    return KbprocError("input.too_large", message)


def is_gits(rule: str) -> bool:
    """Returns True for a rule that `ignored` returned, not a rule of skipped.py."""
    return rule.startswith("`")


def ignored(
    path: Path,
    is_folder: bool,
    ignores: Sequence[Ignores],
    check: Callable[[], None] = lambda: None,
) -> str | None:
    """Returns the rule by which git ignores the path, as "`*.log` in /home/me/.gitignore", or None.

    The innermost file decides, and in it the last rule that matches. `check` is called for each
    rule, and may raise.
    """
    for file in reversed(ignores):
        names = path.parts[file.depth :]
        for rule in reversed(file.rules):
            check()
            if (is_folder or not rule.folders_only) and rule.pattern.matches(names):
                return f"`{rule.line}` in {paths.printable(file.path)}" if rule.ignores else None
    return None


def _without_last_blanks(line: str) -> str:
    """Returns the line without the blanks at its end; a backslash keeps the blank behind it."""
    bare = line.rstrip(" ")
    slashes = len(bare) - len(bare.rstrip("\\"))
    return line[: len(bare) + slashes % 2]


def _rule(line: str) -> Rule | None:
    line = _without_last_blanks(line.rstrip("\r"))
    if line.startswith("#"):
        return None
    ignores = not line.startswith("!")
    line = line if ignores else line[1:]
    if not line:
        return None
    folders_only = line.endswith("/")
    return Rule(PathPattern(line.rstrip("/")), folders_only, ignores, line)
