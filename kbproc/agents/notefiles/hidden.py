"""Hidden names in a folder of notes, for texts that are on their way in or out.

Owns: the names; what lies under them while edit.py works, and after it died; the folder's lock;
what a file holds and whether a program still writes to it.
Refuses to know: which text ought to stand where.

`.<slug>.<n>.kbproc-part` is an unfinished file of our own and never of worth.
`.<slug>.<new>.<old>.<n>.kbproc` may hold somebody's text unless the text's digest is one of the
two in the name; `new` is `-` where a note is being removed.
"""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import stat
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

import msgspec

from kbproc.agents.notefiles import rename
from kbproc.agents.notefiles.file import (
    MOST_BYTES,
    NotANote,
    all_bytes,
    digest,
    file_name,
    open_file,
    require_file,
    require_text,
)
from kbproc.agents.notefiles.folder import KEPT, PART, open_folder
from kbproc.base import paths
from kbproc.base.durable import write_all
from kbproc.base.errors import KbprocError

_LOCK_SECONDS = 2.0  # whoever waits here may hold the writers' lane
_POLL_SECONDS = 0.02


class Leftover(msgspec.Struct, frozen=True):
    """A text that an interrupted change had moved aside and nobody has recorded.

    `problem`: a sentence that says why the text can't become a revision, or its file can't
    be deleted; `data` is empty then.
    """

    slug: str
    name: str
    data: bytes
    problem: str | None = None


class FileState(msgspec.Struct, frozen=True):
    """What lies under a name. `problem`: why it is no note.

    `identity`: the digest of the bytes, or the inode of what can't be read. `has_writer`: a
    program holds the file open for writing.
    """

    identity: str
    data: bytes = b""
    mode: int = 0
    has_writer: bool = False
    problem: str | None = None


# ------------------------------------------------------------------ after a crash


def leftovers(folder: Path) -> list[Leftover]:
    """Texts that nobody has recorded: record each as a revision, then `clear` it.

    Files that are our own, or hold a known text, are deleted on the way; a note whose removal
    had met an edit gets its name back. Raises store.io, Unavailable.
    """
    found: list[Leftover] = []
    with locked(folder) as fd, as_store_io(folder):
        for name in sorted(os.listdir(fd)):  # noqa: PTH208
            try:
                found += _leftover_of(fd, name)
            except OSError as error:
                problem = f"{name} is left over and can't be cleared away: {error.strerror}."
                found.append(Leftover(name.split(".")[1], name, b"", problem))
    return found


def _leftover_of(fd: int, name: str) -> Iterator[Leftover]:
    """The text that remains to be recorded, if there is any; names of others are passed over."""
    if PART.fullmatch(name):
        unlink(fd, name)
    elif parts := KEPT.fullmatch(name):
        slug, new, old = parts.groups()
        yield from _unrecorded(fd, name, slug, new, old)


def _unrecorded(fd: int, name: str, slug: str, new: str, old: str) -> Iterator[Leftover]:
    found = inspect(fd, name)
    if found is None:
        return
    if found.identity[:32] in {new, old}:
        if not found.has_writer:
            unlink(fd, name)
        return
    if new == "-":
        with suppress(FileExistsError):
            rename.move(fd, name, file_name(slug))
            return
    problem = found.problem
    if problem is None:
        try:
            require_text(found.data)
        except NotANote as why:
            if why.code == "blank" and not found.has_writer:
                unlink(fd, name)
                return
            problem = why.reason
    if problem:
        problem = f"{name} is left over from an interrupted change: {problem}."
    yield Leftover(slug, name, b"" if problem else found.data, problem)


def clear(folder: Path, leftover: Leftover) -> bool:
    """Deletes the leftover's file once its text is recorded.

    False if it has a problem, holds another text by now, or is being written to. Raises
    store.io, Unavailable.
    """
    with locked(folder) as fd, as_store_io(folder / leftover.name):
        found = inspect(fd, leftover.name)
        if found is None:
            return True
        if leftover.problem or found.problem or found.has_writer or found.data != leftover.data:
            return False
        unlink(fd, leftover.name)
    return True


# ------------------------------------------------------------------ steps


@contextmanager
def locked(folder: Path) -> Iterator[int]:
    """Two stores may share a folder: only one of them changes it at a time.

    Raises store.io if another program holds the lock for too long; Unavailable.
    """
    with open_folder(folder) as fd:
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
def as_store_io(path: Path) -> Iterator[None]:
    """An OSError within becomes store.io."""
    try:
        yield
    except OSError as error:
        why = error.strerror or str(error)
        raise KbprocError("store.io", f"{path} could not be changed: {why}.") from error


def existing(folder: Path, slugs: Iterable[str]) -> set[str]:
    """Those of `slugs` under whose file name anything stands. Raises store.io, Unavailable."""
    with open_folder(folder) as fd, as_store_io(folder):
        return {slug for slug in slugs if rename.is_there(fd, file_name(slug))}


def inspect(fd: int, name: str) -> FileState | None:
    """What lies under the name; None if nothing does. Raises OSError.

    Whether a program writes to a hidden file is asked before the file is read: a file without
    a writer stays as it is.
    """
    try:
        status = os.stat(name, dir_fd=fd, follow_symlinks=False)
        require_file(status)
        opened = open_file(fd, name)
    except FileNotFoundError:
        return None
    except NotANote as why:
        return FileState(f"{stat.S_IFMT(status.st_mode)}:{status.st_ino}", problem=why.reason)
    try:
        writer = name.startswith(".") and has_writer(opened) and _tells_writers_apart(fd)
        data = all_bytes(opened)
    finally:
        os.close(opened)
    large = len(data) > MOST_BYTES
    return FileState(
        digest(data),
        data,
        stat.S_IMODE(status.st_mode) & 0o777,
        writer,
        "it is over 64 KiB" if large else None,
    )


def has_writer(fd: int) -> bool:
    """Whether a program holds the file open for writing; `fd` is open for reading.

    Linux says so when it is asked for a lease on a file of one's own; elsewhere the answer is
    False. NFS answers True for every file.
    """
    if sys.platform != "linux":
        return False
    try:
        # A lease that is broken sends SIGIO, which would end the process; SIGURG is ignored.
        fcntl.fcntl(fd, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except OSError as error:
        return error.errno == errno.EAGAIN
    return False


def _tells_writers_apart(fd: int) -> bool:
    """False on NFS, which takes even a new file of ours for one that is written to."""
    probe, created = _new_part(fd, "probe")
    os.close(created)
    opened = open_file(fd, probe)
    try:
        return not has_writer(opened)
    finally:
        os.close(opened)
        unlink(fd, probe)


def stage(fd: int, slug: str, data: bytes, mode: int) -> str:
    """The name of an unfinished file of our own that holds the bytes, durably."""
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


def move_aside(fd: int, slug: str, name: str, new: str, old: str) -> str | None:
    """Renames `name` to a hidden name that says which two texts are known.

    Returns the hidden name; None if nothing stands under `name` any more.
    """
    for number in count():
        kept = f".{slug}.{new[:32]}.{old[:32]}.{number}.kbproc"
        try:
            rename.move(fd, name, kept)
        except FileExistsError:
            continue
        except FileNotFoundError:
            return None
        return kept
    raise AssertionError


def unlink(fd: int, name: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=fd)
