"""Writes files and renames them so that they are durable when a call returns; locks them.

Every change goes through `disk`, where a test can record it. This module also keeps a list of
files that were read and found sound, so that unchanged ones need not be read again.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import io
import os
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, cast

import msgspec

from kbproc.base import disk
from kbproc.base.failpoints import reach
from kbproc.base.values import decoder

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_BLOCK = 1 << 20
_BUFFER = 1 << 16
_LOCK_POLL_S = 0.02
# Network file systems, and some others, lock files and no folders.
_NO_LOCKS = {
    *(errno.EBADF, errno.EINVAL, errno.ENOLCK),
    *(errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP),
}
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW


def write_all(fd: int, data: bytes | memoryview) -> None:
    """Writes all of `data`; raises BrokenPipeError if the reader has gone."""
    rest = memoryview(data)
    while rest:
        rest = rest[disk.write(fd, rest) :]


def write_all_at(fd: int, data: bytes, offset: int) -> None:
    """Writes all of `data` at `offset`."""
    rest = memoryview(data)
    while rest:
        done = disk.write_at(fd, rest, offset)
        rest, offset = rest[done:], offset + done


def write_new(path: str, data: bytes) -> None:
    """Writes a new file of mode 0600, not synced; removes it if it can't be written whole.

    Raises FileExistsError, and FileNotFoundError if the folder does not exist.
    """
    fd = disk.open(path, _NEW, 0o600)
    try:
        write_all(fd, data)
    except BaseException:
        disk.unlink(path)
        raise
    finally:
        disk.close(fd)


def sync_file(path: str | Path) -> None:
    fd = disk.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        disk.sync(fd)
    finally:
        disk.close(fd)


def sync_folder(folder: str | Path) -> None:
    """Makes the names in the folder durable."""
    fd = disk.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        disk.sync(fd)
    finally:
        disk.close(fd)


def make_folder(folder: Path) -> None:
    """Makes the folder and its parents, mode 0700, each durable before anything is put in it."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
    try:
        disk.make_folder(folder, 0o700)
    except FileExistsError:  # another thread has made it
        if not folder.is_dir():
            raise
    sync_folder(folder.parent)


def rename(old: Path, new: Path) -> None:
    """Renames a file, over an existing one too, and makes the new name durable."""
    disk.rename(old, new)
    sync_folder(new.parent)
    if old.parent != new.parent:
        sync_folder(old.parent)


def remove(path: Path) -> None:
    """Removes the file if it is there; a power failure may bring it back. Raises OSError."""
    with contextlib.suppress(FileNotFoundError):
        disk.unlink(path)


def remove_tree(folder: Path) -> None:
    """Removes the folder, if it is there, and everything below it for good; follows no link.

    Raises OSError.
    """
    if os.path.lexists(folder):
        _remove_below(folder)
        sync_folder(folder.parent)


def _remove_below(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        for name in list(path.iterdir()):
            _remove_below(name)
        disk.remove_folder(path)
    else:
        disk.unlink(path)


def lock(fd: int, seconds: float = 0.0, *, is_needed: bool = True) -> None:
    """Locks the file or folder until the descriptor is closed. Raises OSError.

    Raises BlockingIOError if another program has locked it for so long. Where the file system can't
    lock it, that is an error only if the lock `is_needed`.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            if time.monotonic() >= deadline:
                raise BlockingIOError(error.errno, "another program holds its lock") from None
            time.sleep(_LOCK_POLL_S)
        except OSError as error:
            if is_needed or error.errno not in _NO_LOCKS:
                raise
            return
        else:
            return


@contextlib.contextmanager
def create(path: Path) -> Iterator[BinaryIO]:
    """Creates a file of mode 0600; its bytes are durable after the block, its name is not.

    Removes the file if the block fails. Raises FileExistsError.
    """
    fd = disk.open(path, _NEW, 0o600)
    try:
        with io.BufferedWriter(_File(fd), _BUFFER) as file:
            yield cast(BinaryIO, file)
            file.flush()
            disk.sync(fd)
    except BaseException:
        _remove(path)
        raise


@contextlib.contextmanager
def replacing(
    path: Path,
    *,
    beside: Path | None = None,
    written: str | None = None,
    named: str | None = None,
    name_is_durable: bool = True,
) -> Iterator[BinaryIO]:
    """Writes a new file that replaces `path` after the block; if that fails, `path` is unchanged.

    `beside`: the new file's temporary name, in the same folder. The default one is safe for one
    writer at a time. `written` and `named`: the failpoints before and after the renaming.
    `name_is_durable` False: after a power failure the old file may be there again.
    """
    temporary = beside or path.with_name(f"{path.name}.tmp")
    remove(temporary)  # left by a process that died while it wrote
    try:
        with create(temporary) as file:
            yield file
        _reach(written)
        disk.rename(temporary, path)
    finally:
        _remove(temporary)
    _reach(named)
    if name_is_durable:
        sync_folder(path.parent)


def replace(
    path: Path,
    data: bytes,
    *,
    beside: Path | None = None,
    written: str | None = None,
    named: str | None = None,
    name_is_durable: bool = True,
) -> None:
    """Replaces the file by one that holds `data`, mode 0600; see `replacing`."""
    with replacing(
        path,
        beside=beside,
        written=written,
        named=named,
        name_is_durable=name_is_durable,
    ) as file:
        write_all(file.fileno(), data)


def crc_of(path: Path, *, without: int = 0) -> int:
    """Returns the crc32 of the file's bytes except the last `without` ones.

    One block of them is in memory at a time.
    """
    crc = 0
    with path.open("rb") as file:
        remaining = file.seek(0, os.SEEK_END) - without
        file.seek(0)
        while remaining > 0 and (block := file.read(min(remaining, _BLOCK))):
            crc, remaining = zlib.crc32(block, crc), remaining - len(block)
    return crc


_BOOT = Path("/proc/sys/kernel/random/boot_id")


def boot() -> str:
    """Returns an id of the machine's current boot; "" where the system has none."""
    try:
        return _BOOT.read_text().strip()
    except OSError:
        return ""


_CLOCK_REALTIME_COARSE = 5  # Linux's clock of file times
_TICK_NS = 20_000_000  # the clock ticks more often than this


class Look(msgspec.Struct, frozen=True, array_like=True):
    """A file's size, inode and ctime when it was read.

    A change always changes the ctime, because no program can set it.
    """

    size: int
    inode: int
    changed_ns: int


class _SoundFiles(msgspec.Struct, frozen=True):
    boot: str
    files: dict[str, Look]


_decode = decoder(_SoundFiles).decode


class SoundFiles:
    """Files that were read whole and found sound, remembered from one process to the next.

    A file counts as sound until it is changed. After a restart of the machine all are read again,
    because the disk may have lost bytes. Where the machine has no id of its boot, none is
    remembered.
    """

    def __init__(self, folder: Path | None = None) -> None:
        """`folder`: where the list is kept; with None nothing is remembered."""
        self._path = None if folder is None or not boot() else folder / "files.seen"
        self._before: dict[str, Look] = {}
        self._now: dict[str, Look] = {}
        if self._path is not None:
            with contextlib.suppress(OSError, msgspec.DecodeError):
                saved = _decode(self._path.read_bytes())
                self._before = saved.files if saved.boot == boot() else {}

    def knows(self, file: Path) -> bool:
        """Returns whether the file is unchanged since it was found sound."""
        look = look_at(file)
        return look is not None and look == self._before.get(file.name)

    def is_sound(self, file: Path, check: Callable[[Path], bool]) -> bool:
        """Returns the result of `check`, or True if it passed since the file's last change."""
        look = look_at(file)
        if self._path is None or look is None:
            return check(file)
        if look != self._before.get(file.name):
            _wait_past(look.changed_ns)
            if not check(file):
                return False
        self._now[file.name] = look
        return True

    def doubt(self, file: Path) -> None:
        """Has the file read again next time."""
        self._now.pop(file.name, None)

    def keep(self) -> None:
        """Writes the files found sound by this object for the next process, if they can be
        written.
        """
        if self._path is not None and self._now != self._before:
            with contextlib.suppress(OSError):
                data = msgspec.json.encode(_SoundFiles(boot(), self._now))
                replace(self._path, data, name_is_durable=False)


def look_at(file: Path) -> Look | None:
    """Returns the file's current look; None if it does not exist."""
    try:
        status = file.lstat()
    except OSError:
        return None
    return Look(status.st_size, status.st_ino, status.st_ctime_ns)


def last_look(file: Path) -> Look | None:
    """Returns the file's current look; any later change gives it another one."""
    look = look_at(file)
    if look is not None:
        _wait_past(look.changed_ns)
    return look


def _wait_past(moment_ns: int) -> None:
    """Waits until the clock of file times has passed the moment, so that later changes show."""
    while 0 <= moment_ns - time.clock_gettime_ns(_CLOCK_REALTIME_COARSE) < _TICK_NS:
        time.sleep(0.001)


def _reach(failpoint: str | None) -> None:
    if failpoint is not None:
        reach(failpoint)


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        remove(path)


class _File(io.RawIOBase):
    """A file that is open for writing, and closed with this object."""

    def __init__(self, fd: int) -> None:
        super().__init__()
        self._fd = fd

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._fd

    def write(self, data: ReadableBuffer) -> int:
        return disk.write(self._fd, data)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        return os.lseek(self._fd, offset, whence)

    def close(self) -> None:
        if not self.closed:
            super().close()
            disk.close(self._fd)
