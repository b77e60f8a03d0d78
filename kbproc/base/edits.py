"""Changes small files that other programs write, too, such as the settings of a client.

At no moment is a text overwritten that the caller has not seen. The new file and the old one change
names; then the old text lies under a hidden name, where it is compared with what the caller read,
and deleted or put back. A folder's lock keeps two processes of kbproc apart. Where two files can't
change names, an edit in the instant between the last look and the rename is lost.

A file keeps its owner, group and mode, and a symlink stays. As root, a new file belongs to the
owner of its folder.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from kbproc.base.durable import lock, make_folder, write_all
from kbproc.base.paths import open_followed
from kbproc.base.renames import (
    NEW,
    Unsupported,
    hidden,
    is_written_to,
    move,
    swap_names,
    unlink,
)

_LOCK_SECONDS = 10.0
_WRITER_SECONDS = 1.0  # for a program that is writing the file
_POLL_SECONDS = 0.01
_ROUNDS = 20  # attempts to put a text back while its program keeps saving
_MOST_EDITS = 100


def read(path: Path) -> bytes | None:
    """Returns the file's bytes; None without a file. Raises OSError, also for a special file.

    A program that is writing the file gets a second to end, or that is an OSError, too.
    """
    target = Path(os.path.realpath(path))
    try:
        folder = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        return _read(folder, target.name)
    finally:
        os.close(folder)


def _read(folder: int, name: str) -> bytes | None:
    deadline = time.monotonic() + _WRITER_SECONDS
    while True:
        state = _inspect(folder, name)
        if state is None or not state.has_writer:
            return None if state is None else state.data
        if time.monotonic() > deadline:
            raise OSError(errno.EBUSY, "another program holds it open for writing")
        time.sleep(_POLL_SECONDS)


class _FileState(NamedTuple):
    status: os.stat_result
    data: bytes
    has_writer: bool

    def is_same(self, other: _FileState) -> bool:
        return (self.status.st_ino, self.data) == (other.status.st_ino, other.data)


def _inspect(folder: int, name: str) -> _FileState | None:
    try:
        fd = open_followed(name, folder=folder)
    except FileNotFoundError:
        return None
    try:
        has_writer = is_written_to(folder, fd)
        with open(fd, "rb", closefd=False) as file:
            return _FileState(os.fstat(fd), file.read(), has_writer)
    finally:
        os.close(fd)


def write(
    path: Path,
    before: bytes | None,
    after: bytes | None,
    *,
    mode: int = 0o600,
    folder_mode: int = 0o700,
) -> bool:
    """Writes `after` durably if the file still holds `before`; None stands for no file.

    Returns False, with the file as its other writer left it, if it holds anything else. `mode` and
    `folder_mode`: of a new file and a new folder. Raises OSError.
    """
    target = Path(os.path.realpath(path))
    if after is not None:
        _make_folders(target.parent, folder_mode)
    with _locked(target.parent) as folder:
        if folder is None or _read(folder, target.name) != before:
            return before is None and after is None
        if before == after:
            return True
        if after is None:
            is_done = _take_away(folder, target.name, before)
        else:
            is_done = _put(folder, target.name, before, after, mode)
        os.fsync(folder)
        return is_done


def edit(path: Path, change: Callable[[bytes | None], bytes | None]) -> None:
    """Writes what `change` makes of the file's bytes, until no other write comes between.

    Raises OSError.
    """
    for _ in range(_MOST_EDITS):
        before = read(path)
        if write(path, before, change(before)):
            return
    raise OSError(errno.EBUSY, "another program keeps changing it")


def _make_folders(folder: Path, mode: int) -> None:
    if folder.is_dir():
        return
    _make_folders(folder.parent, mode)
    make_folder(folder)
    if mode != 0o700:
        folder.chmod(mode)
    if os.geteuid() == 0:
        above = folder.parent.stat()
        os.chown(folder, above.st_uid, above.st_gid)


@contextmanager
def _locked(folder: Path) -> Iterator[int | None]:
    """Yields the folder's descriptor; None without a folder. Raises OSError."""
    try:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        yield None
        return
    try:
        lock(fd, _LOCK_SECONDS, is_needed=False)
        yield fd
    finally:
        os.close(fd)


def _put(folder: int, name: str, before: bytes | None, after: bytes, mode: int) -> bool:
    part = _staged(folder, name, after, mode)
    try:
        if before is None:
            move(folder, part, name)
            return True
        return _exchange(folder, part, name, before)
    except (FileExistsError, FileNotFoundError):  # the other program made it, or removed it
        return False
    finally:
        unlink(folder, part)


def _staged(folder: int, name: str, data: bytes, mode: int) -> str:
    """Writes an unfinished file, durably, with the owner and mode of `name`; returns its name."""
    part = hidden(name)
    fd = os.open(part, NEW, 0o600, dir_fd=folder)
    try:
        write_all(fd, data)
        _own(fd, folder, name, mode)
        os.fsync(fd)
    except BaseException:
        unlink(folder, part)
        raise
    finally:
        os.close(fd)
    return part


def _own(fd: int, folder: int, name: str, mode: int) -> None:
    own = os.fstat(fd)
    owner = own
    with suppress(FileNotFoundError):
        owner = os.stat(name, dir_fd=folder, follow_symlinks=False)
        mode = stat.S_IMODE(owner.st_mode)
    if owner is own and os.geteuid() == 0:
        owner = os.fstat(folder)
    if (owner.st_uid, owner.st_gid) != (own.st_uid, own.st_gid):
        try:
            os.fchown(fd, owner.st_uid, owner.st_gid)
        except PermissionError:
            whose = f"user {owner.st_uid} and group {owner.st_gid}"
            raise PermissionError(errno.EPERM, f"it belongs to {whose}, which must stay") from None
    os.fchmod(fd, mode)


def _exchange(folder: int, part: str, name: str, before: bytes) -> bool:
    """Swaps the names of the two files, and swaps them back after a save of the other program.

    Raises FileNotFoundError if that program removed the file.
    """
    ours = _inspect(folder, part)
    try:
        swap_names(folder, part, name)
    except Unsupported:
        os.rename(part, name, src_dir_fd=folder, dst_dir_fd=folder)
        return True
    old = _inspect(folder, part)
    if ours is None or old is None or (old.data == before and not old.has_writer):
        return True
    visible, aside = ours, old
    for _ in range(_ROUNDS):
        swap_names(folder, part, name)
        taken_out = _inspect(folder, part)
        if taken_out is None or taken_out.is_same(visible):
            break
        visible, aside = aside, taken_out  # the program has saved once more
    return False


def _take_away(folder: int, name: str, before: bytes | None) -> bool:
    """Removes the file if it holds `before`; gives it its name back otherwise."""
    aside = hidden(name)
    try:
        move(folder, name, aside)
    except FileNotFoundError:
        return True
    state = _inspect(folder, aside)
    is_expected = state is None or (state.data == before and not state.has_writer)
    if not is_expected:
        with suppress(FileExistsError):  # the program has saved a newer one
            move(folder, aside, name)
            return False
    unlink(folder, aside)
    return is_expected
