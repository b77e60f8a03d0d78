"""What git would ignore.

Owns: .gitignore files: reading one, and what it says of a path.
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
MOST_BYTES = 64 << 10
MOST_BYTES_TOGETHER = 256 << 10  # of all files whose rules hold for one path

Missed = Callable[[Path, KbprocError], None]


class Rule(NamedTuple):
    pattern: PathPattern
    folders_only: bool
    ignores: bool


class Ignores(NamedTuple):
    """One .gitignore file: how deep its folder lies, its rules in order, its size in bytes."""

    depth: int
    rules: list[Rule]
    size: int


def read(
    folder: Path,
    *,
    fd: int | None = None,
    above: Sequence[Ignores] = (),
    missed: Missed = lambda path, why: None,
    check: Callable[[], None] = lambda: None,
) -> list[Ignores]:
    """`above` and the folder's own .gitignore, if it has one.

    `fd`: a descriptor of the folder. `missed` is told of a file that is passed over, wholly or in
    part; `check` may raise between two rules.
    """
    path = folder / NAME
    try:
        data = _data(path, fd, MOST_BYTES_TOGETHER - sum(found.size for found in above))
    except FileNotFoundError:
        return [*above]
    except OSError as error:
        missed(path, _passed_over(str(error.strerror)))
        return [*above]
    except KbprocError as error:
        missed(path, error)
        return [*above]
    rules = list[Rule]()
    # Some editors begin a file with a byte order mark, which git passes over.
    for number, line in enumerate(data.decode("utf-8-sig", "replace").split("\n"), 1):
        check()
        if len(line) > MOST_CHARACTERS:
            missed(path, _too_long(number))
        elif rule := _rule(line):
            rules.append(rule)
    return [*above, Ignores(len(folder.parts), rules, len(data))]


def _data(path: Path, fd: int | None, left: int) -> bytes:
    """Raises FileNotFoundError, OSError, input.too_large."""
    opened = paths.open_regular(path if fd is None else path.name, folder=fd)
    with open(opened, "rb") as file:  # noqa: PTH123
        data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise _passed_over(f"it has more than {MOST_BYTES >> 10} KiB", "input.too_large")
    if len(data) > left:
        most = MOST_BYTES_TOGETHER >> 10
        why = f"with those of the folders above it has more than {most} KiB"
        raise _passed_over(why, "input.too_large")
    return data


def _passed_over(why: str, type: str = "operation.failed") -> KbprocError:
    return KbprocError(type, f"{NAME} is passed over: {why}.")


def _too_long(number: int) -> KbprocError:
    message = (
        f"{NAME}, line {number} is passed over: it has more than {MOST_CHARACTERS} characters."
    )
    return KbprocError("input.too_large", message)


def ignored(
    path: Path,
    is_folder: bool,
    found: Sequence[Ignores],
    check: Callable[[], None] = lambda: None,
) -> bool:
    """The innermost file decides, and in it the last rule that matches.

    `check` may raise between two rules.
    """
    for depth, rules, _ in reversed(found):
        names = path.parts[depth:]
        for rule in reversed(rules):
            check()
            if (is_folder or not rule.folders_only) and rule.pattern.matches(names):
                return rule.ignores
    return False


def _rule(line: str) -> Rule | None:
    line = re.sub(r"(?<!\\)((?:\\\\)*)[ ]+$", r"\1", line.rstrip("\r"))
    if line.startswith("#"):
        return None
    ignores = not line.startswith("!")
    line = line if ignores else line[1:]
    if not line:
        return None
    folders_only = line.endswith("/")
    return Rule(PathPattern(line.rstrip("/")), folders_only, ignores)
