"""Bytes and names that are on the disk when a call returns.

Owns: writing all of them, new files, files that take another's place, folders, renames; the mark
beside a file that may be ahead of the disk, and which files were read whole since anybody changed
them.
Refuses to know: what the bytes mean, and how a surface tells of a disk that refuses: every
function here raises OSError.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import BinaryIO

import msgspec

from kbproc.base.failpoints import reach
from kbproc.base.values import decoder

_BLOCK = 1 << 20


def write_all(fd: int, data: bytes | memoryview) -> None:
    """Writes the whole of `data`; raises BrokenPipeError if nobody reads."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]


def write_all_at(fd: int, data: bytes, offset: int) -> None:
    """Writes the whole of `data` from `offset` on."""
    rest = memoryview(data)
    while rest:
        done = os.pwrite(fd, rest, offset)
        rest, offset = rest[done:], offset + done


def sync_data(fd: int) -> None:
    """The file's bytes are durable, and its size if it has grown. macOS knows only the whole."""
    (os.fdatasync if hasattr(os, "fdatasync") else os.fsync)(fd)


def write_new(path: str, data: bytes) -> None:
    """A new file of mode 0600, not synced; nothing is left of one that can't be written whole.

    Raises FileExistsError, FileNotFoundError where its folder is not there.
    """
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        write_all(fd, data)
    except BaseException:
        Path(path).unlink()
        raise
    finally:
        os.close(fd)


def sync_file(path: str | Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def sync_folder(folder: str | Path) -> None:
    """Makes the names in it durable."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


# Those that do what syncfs(2) asks for; programs that serve files (FUSE) and machines may not.
_WHOLE = frozenset({"btrfs", "ext4", "f2fs", "tmpfs", "xfs"})


def syncs_filesystem(folder: str | Path) -> bool:
    """Whether one call can sync all files at once where `folder` lies, and says so if it fails:
    syncfs(2) of Linux tells everything since 5.17. Raises OSError.
    """
    if sys.platform != "linux" or _version(os.uname().release) < (5, 17):
        return False
    return _kind_of(Path(folder).stat().st_dev) in _WHOLE


@cache
def _kind_of(device: int) -> str | None:
    """Of the file system on it, as Linux calls it."""
    wanted = f"{os.major(device)}:{os.minor(device)}"
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines():
            mount, _, kind = line.partition(" - ")
            if mount.split()[2] == wanted:
                return kind.split()[0]
    return None


def _version(release: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", release)[:2])


def sync_filesystem(fd: int) -> None:
    """All that was written since `fd` was opened is durable where it lies, names too.

    Raises OSError.
    """
    import ctypes

    library = ctypes.CDLL(None, use_errno=True)
    if not hasattr(library, "syncfs"):
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    if library.syncfs(fd):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def make_folder(folder: Path) -> None:
    """Makes it with its parents, mode 0700, each durable before anything is put in it."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
    folder.mkdir(mode=0o700, exist_ok=True)
    sync_folder(folder.parent)


def rename(old: Path, new: Path) -> None:
    """What `old` names is called `new` from now on; a file that had this name is gone."""
    old.rename(new)
    sync_folder(new.parent)
    if old.parent != new.parent:
        sync_folder(old.parent)


@contextlib.contextmanager
def create(path: Path) -> Iterator[BinaryIO]:
    """A new file of mode 0600; its bytes are durable once the block has ended, its name is not.

    Nothing is left of a file whose block fails. Raises FileExistsError.
    """
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(fd, "wb") as file:
            yield file
            file.flush()
            os.fsync(fd)
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
    """A new file that takes the place of `path` once the block has ended; else all is as before.

    `beside`: the new file's name until then, in the same folder. The default one is good for
    one writer at a time. `written` and `named`: the failpoints before and after the renaming.
    `name_is_durable` False: after a power failure the old file may be there again.
    """
    temporary = beside or path.with_name(f"{path.name}.tmp")
    temporary.unlink(missing_ok=True)  # of a process that died while it wrote
    try:
        with create(temporary) as file:
            yield file
        _reach(written)
        temporary.replace(path)
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
    """The file holds `data` and nothing else, mode 0600; see `replacing`."""
    with replacing(
        path,
        beside=beside,
        written=written,
        named=named,
        name_is_durable=name_is_durable,
    ) as file:
        write_all(file.fileno(), data)


def crc_of(path: Path, *, without: int = 0) -> int:
    """The crc32 of all its bytes but the last ones, `without` so many.

    A block of them is in memory at a time.
    """
    crc = 0
    with path.open("rb") as file:
        left = file.seek(0, os.SEEK_END) - without
        file.seek(0)
        while left > 0 and (block := file.read(min(left, _BLOCK))):
            crc, left = zlib.crc32(block, crc), left - len(block)
    return crc


# As long as the machine runs, what was written is there, whoever dies. So a file that can be made
# again need not be synced at every step: after a power failure its mark says that it is no good.
_BOOT = Path("/proc/sys/kernel/random/boot_id")


def boot() -> str:
    """Another one after each start of the machine; "" where it does not say."""
    try:
        return _BOOT.read_text().strip()
    except OSError:
        return ""


def mark(path: Path) -> None:
    """From now on the file may be ahead of the disk."""
    replace(_mark_of(path), boot().encode())


def sync(path: Path, *beside: str) -> None:
    """The file is on the disk, with those whose names go on as `beside`, and its mark goes."""
    for file in (path, *(path.with_name(path.name + end) for end in beside)):
        if file.exists():
            sync_file(file)
    sync_folder(path.parent)
    _mark_of(path).unlink(missing_ok=True)


def is_synced(path: Path) -> bool:
    """False for what may not have reached the disk before the machine stopped."""
    try:
        return _mark_of(path).read_text() == boot()
    except FileNotFoundError:
        return True
    except (OSError, UnicodeDecodeError):
        return False


_CLOCK_REALTIME_COARSE = 5  # Linux's, by which files are dated
_TICK_NS = 20_000_000  # it ticks more often


class Look(msgspec.Struct, frozen=True, array_like=True):
    """How a file looked when it was read. A change always changes the ctime: nobody can set it."""

    size: int
    inode: int
    changed_ns: int


class _Kept(msgspec.Struct, frozen=True):
    boot: str
    files: dict[str, Look]


_decode = decoder(_Kept).decode


class Seen:
    """Which files were read whole and found sound, kept from one process to the next.

    That holds for a file until somebody touches it, and for all of them until the machine stops:
    then it is to be seen what the disk has kept. Where the machine does not tell its starts apart
    nothing is known.
    """

    def __init__(self, folder: Path | None = None) -> None:
        """`folder`: where it is kept; None knows nothing and keeps nothing."""
        self._path = None if folder is None or not boot() else folder / "files.seen"
        self._before: dict[str, Look] = {}
        self._now: dict[str, Look] = {}
        if self._path is not None:
            with contextlib.suppress(OSError, msgspec.DecodeError):
                kept = _decode(self._path.read_bytes())
                self._before = kept.files if kept.boot == boot() else {}

    def knows(self, file: Path) -> bool:
        """Whether nobody has touched it since it was found sound."""
        look = look_at(file)
        return look is not None and look == self._before.get(file.name)

    def is_sound(self, file: Path, check: Callable[[Path], bool]) -> bool:
        """As `check` says, or has said before anybody last touched the file."""
        look = look_at(file)
        if self._path is None or look is None:
            return check(file)
        if not self.knows(file):
            _wait_past(look.changed_ns)
            if not check(file):
                return False
        self._now[file.name] = look
        return True

    def keep(self) -> None:
        """What was found sound since this was made, for the next process, if it can be written."""
        if self._path is not None and self._now != self._before:
            with contextlib.suppress(OSError):
                data = msgspec.json.encode(_Kept(boot(), self._now))
                replace(self._path, data, name_is_durable=False)


def look_at(file: Path) -> Look | None:
    """How it looks now; None for what is not there."""
    try:
        found = file.lstat()
    except OSError:
        return None
    return Look(found.st_size, found.st_ino, found.st_ctime_ns)


def last_look(file: Path) -> Look | None:
    """How it looks now; whatever changes it from now on changes that, too."""
    look = look_at(file)
    if look is not None:
        _wait_past(look.changed_ns)
    return look


def _wait_past(moment_ns: int) -> None:
    """Until the clock of files has gone on: what changes from now on looks changed."""
    while 0 <= moment_ns - time.clock_gettime_ns(_CLOCK_REALTIME_COARSE) < _TICK_NS:
        time.sleep(0.001)


def _mark_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.boot")


def _reach(failpoint: str | None) -> None:
    if failpoint is not None:
        reach(failpoint)


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink(missing_ok=True)
