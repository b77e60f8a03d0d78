"""What git would ignore.

Owns: .gitignore and .git/info/exclude files: reading them, and which rule decides on a path.
Refuses to know: walking folders, and how a pattern is matched (pattern.py). The rules are those
of gitignore(5); each pattern speaks of one path only: what lies in an ignored folder is never
asked for.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from kbproc.base import paths
from kbproc.base.errors import KbprocError
from kbproc.sources.pattern import MOST_CHARACTERS, PathPattern

NAME = ".gitignore"
EXCLUDE = Path(".git/info/exclude")  # a repository's own rules, which no commit carries
MOST_BYTES = 64 << 10
MOST_BYTES_TOGETHER = 256 << 10  # of all files whose rules hold for one path

Missed = Callable[[Path, KbprocError], None]


class Rule(NamedTuple):
    """`line`: the rule as its file has it."""

    pattern: PathPattern
    folders_only: bool
    ignores: bool
    line: str


class Ignores(NamedTuple):
    """One file of rules: how deep its folder lies, its rules in order, its size in bytes."""

    depth: int
    rules: list[Rule]
    size: int
    path: Path


def read(
    folder: Path,
    *,
    fd: int | None = None,
    above: Sequence[Ignores] = (),
    missed: Missed = lambda path, why: None,
    check: Callable[[], None] = lambda: None,
) -> list[Ignores]:
    """`above`, the exclude file of a repository that begins here, and the folder's own .gitignore.

    `fd`: a descriptor of the folder. `missed` is told of a file that is passed over, wholly or in
    part; `check` may raise between two rules.
    """

    def own() -> int:
        path = folder / NAME
        return paths.open_regular(path if fd is None else NAME, folder=fd)

    def exclude() -> int:
        return paths.open_file(folder / EXCLUDE, within=folder)

    ignores = [*above]
    if (folder / ".git").is_dir():
        ignores = _with_file(folder, folder / EXCLUDE, exclude, ignores, missed, check)
    return _with_file(folder, folder / NAME, own, ignores, missed, check)


def _with_file(
    folder: Path,
    path: Path,
    opened: Callable[[], int],
    above: list[Ignores],
    missed: Missed,
    check: Callable[[], None],
) -> list[Ignores]:
    """`above` and the rules of the file at `path`, which hold in `folder`."""
    try:
        data = _data(path, opened(), MOST_BYTES_TOGETHER - sum(one.size for one in above))
    except (FileNotFoundError, NotADirectoryError):
        return above
    except OSError as error:
        missed(path, _passed_over(path, str(error.strerror)))
        return above
    except KbprocError as error:
        missed(path, error)
        return above
    rules = list[Rule]()
    # Some editors begin a file with a byte order mark, which git passes over.
    for number, line in enumerate(data.decode("utf-8-sig", "replace").split("\n"), 1):
        check()
        if len(line) > MOST_CHARACTERS:
            missed(path, _too_long(path, number))
        elif rule := _rule(line):
            rules.append(rule)
    return [*above, Ignores(len(folder.parts), rules, len(data), path)]


def _data(path: Path, fd: int, room: int) -> bytes:
    """Raises OSError, input.too_large."""
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
    return KbprocError(type, f"{path.name} is passed over: {why}.")


def _too_long(path: Path, number: int) -> KbprocError:
    message = (
        f"{path.name}, line {number} is passed over: it has more than {MOST_CHARACTERS} characters."
    )
    return KbprocError("input.too_large", message)


def is_gits(rule: str) -> bool:
    """True for a rule as `ignored` names it."""
    return rule.startswith("`")


def ignored(
    path: Path,
    is_folder: bool,
    ignores: Sequence[Ignores],
    check: Callable[[], None] = lambda: None,
) -> str | None:
    """The rule that has git ignore the path, as "`*.log` in /home/me/.gitignore"; None: none.

    The innermost file decides, and in it the last rule that matches. `check` may raise between
    two rules.
    """
    for one in reversed(ignores):
        names = path.parts[one.depth :]
        for rule in reversed(one.rules):
            check()
            if (is_folder or not rule.folders_only) and rule.pattern.matches(names):
                return f"`{rule.line}` in {paths.printable(one.path)}" if rule.ignores else None
    return None


def _rule(line: str) -> Rule | None:
    line = re.sub(r"(?<!\\)((?:\\\\)*)[ ]+$", r"\1", line.rstrip("\r"))
    if line.startswith("#"):
        return None
    ignores = not line.startswith("!")
    line = line if ignores else line[1:]
    if not line:
        return None
    folders_only = line.endswith("/")
    return Rule(PathPattern(line.rstrip("/")), folders_only, ignores, line)
