"""Hidden names in a folder of notes, for texts that are on their way in or out.

Owns: the names, what lies under them while noteedit.py works and after it died, the
folder's lock, and looking at a file so that what is told of it stays true.
Refuses to know: which text ought to stand where.

`.<slug>.<n>.kbproc-part` is ours and unfinished, never of worth.
`.<slug>.<new>.<old>.<n>.kbproc` may hold somebody's text unless its digest is one of
the two named; `new` is `-` where a note is being removed.
"""

from __future__ import annotations

import fcntl
import os
import stat
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

import msgspec

from kbproc.base import paths
from kbproc.base.durable import write_all
from kbproc.base.errors import KbprocError
from kbproc.notefiles import folder as notefolder
from kbproc.notefiles import rename
from kbproc.notefiles.folder import Unfit, digest

_LOCK_SECONDS = 2.0  # all writers may be waiting for whoever waits here
_POLL_SECONDS = 0.02


class Leftover(msgspec.Struct, frozen=True):
    """A text that a change had moved out of the way and nobody has recorded.

    `problem`: why it can't become a revision, or can't be cleared away, a sentence;
    then `data` is empty.
    """

    slug: str
    name: str
    data: bytes
    problem: str | None = None


class Look(msgspec.Struct, frozen=True):
    """`mark`: the bytes' digest, or what else tells it from others."""

    mark: str
    data: bytes = b""
    mode: int = 0
    writer: bool = False
    unfit: str | None = None


# ------------------------------------------------------------------ after a crash


def leftovers(folder: Path) -> list[Leftover]:
    """Texts that nobody has recorded; record each as a revision, then `forget` it.

    On the way it clears away what is ours or known, and puts back a note whose removal
    had met an unseen edit. Raises store.io, Unavailable.
    """
    found: list[Leftover] = []
    with locked(folder) as fd, failing(folder):
        for name in sorted(os.listdir(fd)):  # noqa: PTH208
            try:
                found += _cleared(fd, name)
            except OSError as error:
                problem = f"{name} is left over and can't be cleared away: {error.strerror}."
                found.append(Leftover(name.split(".")[1], name, b"", problem))
    return found


def _cleared(fd: int, name: str) -> Iterator[Leftover]:
    """What remains of it to be recorded; nothing of names that are not ours."""
    if notefolder.PART.fullmatch(name):
        unlink(fd, name)
    elif kept := notefolder.KEPT.fullmatch(name):
        slug, new, old = kept.groups()
        yield from _leftover(fd, name, slug, new, old)


def _leftover(fd: int, name: str, slug: str, new: str, old: str) -> Iterator[Leftover]:
    came = look(fd, name)
    if came is None:
        return
    if came.mark[:32] in {new, old}:
        if not came.writer:
            unlink(fd, name)
        return
    if new == "-":
        try:
            rename.place(fd, name, notefolder.file_name(slug))
            return
        except FileExistsError:
            pass
    try:
        if came.unfit is None:
            notefolder.require_text(came.data)
        problem = came.unfit
    except Unfit as unfit:
        if unfit.code == "blank" and not came.writer:
            unlink(fd, name)
            return
        problem = unfit.reason
    if problem:
        problem = f"{name} is left over from an interrupted change: {problem}."
    yield Leftover(slug, name, b"" if problem else came.data, problem)


def forget(folder: Path, leftover: Leftover) -> bool:
    """Deletes it; False if it holds something else by now, is being written to, or has a
    problem. Raises store.io, Unavailable.
    """
    with locked(folder) as fd, failing(folder / leftover.name):
        came = look(fd, leftover.name)
        if came is None:
            return True
        if came.writer or came.unfit or leftover.problem or came.data != leftover.data:
            return False
        unlink(fd, leftover.name)
    return True


# ------------------------------------------------------------------ steps


@contextmanager
def locked(folder: Path) -> Iterator[int]:
    """Two stores may share a folder: one changes it at a time.

    Raises store.io if another keeps it too long; Unavailable.
    """
    with notefolder.opened(folder) as fd:
        _lock(folder, fd)
        yield fd


def _lock(folder: Path, fd: int) -> None:
    deadline = time.monotonic() + _LOCK_SECONDS
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise KbprocError(
                    "store.io",
                    f"The notes folder {paths.printable(folder)} is locked by another program.",
                    hint="Wait until that program is done, then repeat the change.",
                ) from None
            time.sleep(_POLL_SECONDS)
        except OSError:  # a file system without locks
            return
        else:
            return


@contextmanager
def failing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        why = error.strerror or str(error)
        raise KbprocError("store.io", f"{path} could not be changed: {why}.") from error


def standing(folder: Path, slugs: Iterable[str]) -> set[str]:
    """Those under whose name there is anything at all. Raises store.io, Unavailable."""
    with notefolder.opened(folder) as fd, failing(folder):
        return {slug for slug in slugs if rename.is_there(fd, notefolder.file_name(slug))}


def look(fd: int, name: str) -> Look | None:
    """None if nothing is there. Raises OSError.

    Of a hidden name, whether someone writes to it is asked before it is read: what has
    no writer then stays what it is.
    """
    try:
        status = os.stat(name, dir_fd=fd, follow_symlinks=False)
        notefolder.require_file(status)
        opened = notefolder.open_file(fd, name)
    except FileNotFoundError:
        return None
    except Unfit as unfit:
        return Look(f"{stat.S_IFMT(status.st_mode)}:{status.st_ino}", unfit=unfit.reason)
    try:
        writer = name.startswith(".") and rename.has_writer(opened) and _can_tell(fd)
        data = notefolder.content(opened)
    finally:
        os.close(opened)
    large = len(data) > notefolder.MOST_BYTES
    return Look(
        digest(data),
        data,
        stat.S_IMODE(status.st_mode) & 0o777,
        writer,
        "it is over 64 KiB" if large else None,
    )


def _can_tell(fd: int) -> bool:
    """NFS takes every file for one that is written to; then a new one of ours, too."""
    probe, created = _new_part(fd, "probe")
    os.close(created)
    opened = notefolder.open_file(fd, probe)
    try:
        return not rename.has_writer(opened)
    finally:
        os.close(opened)
        unlink(fd, probe)


def stage(fd: int, slug: str, data: bytes, mode: int) -> str:
    """The bytes, durable, under a name of worthless parts."""
    part, opened = _new_part(fd, slug)
    try:
        write_all(opened, data)
        os.fchmod(opened, mode)
        os.fsync(opened)
    except OSError:
        unlink(fd, part)
        raise
    finally:
        os.close(opened)
    return part


def _new_part(fd: int, slug: str) -> tuple[str, int]:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    for number in count():
        part = f".{slug}.{number}.kbproc-part"
        with suppress(FileExistsError):
            return part, os.open(part, flags, 0o600, dir_fd=fd)
    raise AssertionError


def aside(fd: int, slug: str, name: str, new: str, old: str) -> str | None:
    """Renames to a hidden name that says which two texts are known; None if `name` is gone."""
    for number in count():
        kept = f".{slug}.{new[:32]}.{old[:32]}.{number}.kbproc"
        try:
            rename.place(fd, name, kept)
        except FileExistsError:
            continue
        except FileNotFoundError:
            return None
        return kept
    raise AssertionError


def unlink(fd: int, name: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=fd)
