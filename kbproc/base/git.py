"""Finds a folder's git repository, the main worktree beside a linked one, a person's own rules of
what git ignores, the dates of commits, and whether a commit still counts.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Literal, NamedTuple

from kbproc.base.host import environment
from kbproc.base.paths import mode_of, open_regular

_MOST_BYTES = 1 << 13
_PATIENCE_S = 5.0
# A repository's settings may name programs; these arguments let git start none of them.
_GIT = (
    *("git", "--no-pager", "--literal-pathspecs", "-c", "core.fsmonitor=false"),
    *("-c", "protocol.allow=never"),
)
_LOG = (
    *(*_GIT, "log", "--no-show-signature", "--no-ext-diff"),
    *("--no-textconv", "--no-renames", "--no-abbrev", "--raw", "-z", "--format=%x01%ct"),
)
_BLOCK = 1 << 16
_MOST_ARGUMENTS = 1000


def in_main_worktree(folder: Path) -> tuple[Path, Path] | None:
    """Returns the folder's counterpart in the main worktree, and that worktree's root.

    Returns None in the main worktree itself, and outside of a repository. A folder that only claims
    to be a worktree gets None, too: the repository must name it in return.
    """
    for place in (folder, *folder.parents):
        mode = mode_of(place / ".git")
        if stat.S_ISDIR(mode):
            return None
        if stat.S_ISREG(mode):
            main = main_worktree(place)
            return None if main is None else (main / folder.relative_to(place), main)
    return None


def main_worktree(root: Path) -> Path | None:
    """Returns the main worktree of the repository with this linked worktree; None for others."""
    repository = None if stat.S_ISDIR(mode_of(root / ".git")) else repository_of(root)
    if repository is None or repository.name != ".git":
        return None  # a bare repository has no main worktree
    return repository.parent


def repository_of(root: Path) -> Path | None:
    """Returns the repository's own folder, mostly `.git`, if `root` is one of its worktrees."""
    mark = root / ".git"
    if stat.S_ISDIR(mode_of(mark)):
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


class Committed(NamedTuple):
    """The newest commit of a file: git's digest of its bytes, and the seconds since 1970."""

    digest: str
    seconds: int


def newest_commits(top: Path, names: Collection[str]) -> dict[str, Committed]:
    """Returns the newest commit of each of these files, which are named from the worktree's top.

    One process of git reads the history, until all files are found or its time is over: then the
    others are left out. Returns nothing without git.
    """
    import subprocess

    within = sorted(names) if len(names) <= _MOST_ARGUMENTS else [os.path.commonpath(names) or "."]
    try:
        process = subprocess.Popen(
            [*_LOG, "--", *within],
            cwd=top,
            env=_surroundings(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
    except OSError:
        return {}
    commits: dict[str, Committed] = {}
    assert process.stdout is not None  # noqa: S101  it is a pipe
    try:
        for name, commit in _commits(_fields(process.stdout.fileno())):
            if name in names:
                commits.setdefault(name, commit)
            if len(commits) == len(names):
                break
    finally:
        process.kill()
        process.stdout.close()
        process.wait()
    return commits


def _surroundings() -> dict[str, str]:
    """Returns the environment in which git writes, fetches and asks nothing."""
    own = {name: value for name, value in environment().items() if not name.startswith("GIT_")}
    limits = {"GIT_NO_LAZY_FETCH": "1", "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0"}
    return own | limits


def worktree_around(folder: Path) -> Path | None:
    """Returns the top of the worktree that the folder lies in; None outside of a repository."""
    for place in (folder, *folder.parents):
        if repository_of(place) is not None:
            return place
    return None


def head_log(top: Path) -> Path:
    """Returns the file that grows whenever another commit is checked out in this worktree."""
    name, _, path = (_text(top / ".git") or "").partition(":")
    own = top / path.strip() if name == "gitdir" else top / ".git"
    return own / "logs" / "HEAD"


def commit_named(top: Path, name: str) -> str | None:
    """Returns the whole digest of a commit; None if there is none, or without git."""
    answer = _answer(
        top, "rev-parse", "--quiet", "--verify", "--end-of-options", f"{name}^{{commit}}"
    )
    return answer[1].strip() if answer is not None and answer[0] == 0 else None


CommitState = Literal["same", "gone", "reverted"]


def state_of_commit(top: Path, commit: str) -> CommitState | None:
    """Returns "same" for a commit in the history of what is checked out, "gone" for one that is not
    there, "reverted" for one that a later commit says it reverts; None where git can't say.
    """
    if repository_of(top) is None:
        return None
    answer = _answer(top, "merge-base", "--is-ancestor", commit, "HEAD")
    if answer is None or answer[0] not in {0, 1, 128}:
        return None
    if answer[0] == 128:  # no such commit, or no repository that git can read
        head = _answer(top, "rev-parse", "--quiet", "--verify", "HEAD")
        return "gone" if head is not None and head[0] == 0 else None
    if answer[0] == 1:
        return "gone"
    words = f"This reverts commit {commit}"
    options = ("--no-show-signature", "--fixed-strings", f"--grep={words}", "--format=%H", "-1")
    answer = _answer(top, "log", *options, f"{commit}..HEAD")
    return None if answer is None else "reverted" if answer[1].strip() else "same"


def _answer(top: Path, *arguments: str) -> tuple[int, str] | None:
    """Returns git's exit code and output; None without git, or when its time is over."""
    import subprocess

    try:
        answer = subprocess.run(
            [*_GIT, *arguments],
            cwd=top,
            env=_surroundings(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_PATIENCE_S,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return answer.returncode, answer.stdout.decode("utf-8", "replace")


def _fields(fd: int) -> Iterator[bytes]:
    """Yields the fields of git's output that a NUL ends, until it ends or the time is over."""
    import select
    import time

    end, rest = time.monotonic() + _PATIENCE_S, b""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    while (remaining := end - time.monotonic()) > 0 and poll.poll(remaining * 1000):
        block = os.read(fd, _BLOCK)
        if not block:
            return
        *fields, rest = (rest + block).split(b"\0")
        yield from fields


def _commits(fields: Iterator[bytes]) -> Iterator[tuple[str, Committed]]:
    """Yields each change of a file, newest first."""
    seconds = 0
    for field in fields:
        text = field.lstrip(b"\n")
        if text.startswith(b"\x01"):
            seconds = int(text[1:])
        elif text.startswith(b":"):
            digest = text.split(b" ")[3].decode()
            yield os.fsdecode(next(fields, b"")), Committed(digest, seconds)


def digest_of(data: bytes) -> str:
    """Returns git's own digest of a file with these bytes, in a repository of SHA-1."""
    from hashlib import sha1

    return sha1(b"blob %d\0%b" % (len(data), data), usedforsecurity=False).hexdigest()


def _is_same(one: Path, other: Path) -> bool:
    return os.path.realpath(one) == os.path.realpath(other)


def _text(path: Path) -> str | None:
    """Returns the text of a small file, stripped; None if there is none."""
    try:
        with os.fdopen(open_regular(path), "rb") as file:
            return os.fsdecode(file.read(_MOST_BYTES)).strip()
    except (OSError, ValueError):
        return None
