"""Steps with which a file that other programs write, too, is changed without loss.

Two files change names at one moment, a file gets a name that no other has, and a writer is
noticed.
"""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cache

NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
# renameat2(2) on Linux, renameatx_np(2) on macOS: (only if nothing is there, both change places).
_FLAGS = {"linux": (1, 2), "darwin": (4, 2)}
# A sandbox answers EPERM to an unknown call; a plain rename then shows whether it is forbidden.
_UNSUPPORTED = {
    errno.ENOSYS,
    errno.EINVAL,
    errno.ENOTSUP,
    errno.EOPNOTSUPP,
    errno.EPERM,
    errno.EMLINK,
}


def has_writer(fd: int) -> bool:
    """Returns True if a program holds the file open for writing; `fd` is open for reading.

    Linux refuses a lease on such a file, if the file belongs to this user. Other systems can't
    tell: there it is False. On NFS it is True for every file.
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


def is_written_to(folder: int, fd: int) -> bool:
    """Returns True if a program holds the file of `folder` open for writing; see `has_writer`.

    On NFS it is False, because even a new file without a writer seems to have one.
    """
    return has_writer(fd) and not _has_one_always(folder)


def _has_one_always(folder: int) -> bool:
    """Returns True where even a new file, which no program holds, seems to have a writer."""
    probe = hidden("probe")
    os.close(os.open(probe, NEW, 0o600, dir_fd=folder))
    fd = os.open(probe, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    try:
        return has_writer(fd)
    finally:
        os.close(fd)
        unlink(folder, probe)


def hidden(name: str) -> str:
    """Returns a hidden name for an unfinished file beside `name`, which no other file has."""
    return f".{name[:200]}.{int.from_bytes(os.urandom(6))}.kbproc-part"


def unlink(folder: int, name: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)


class Unsupported(Exception):
    """The file system, or this platform, has no such rename."""


def swap_names(folder: int, one: str, other: str) -> None:
    """Lets the two files change names, at one moment.

    Raises Unsupported, FileNotFoundError if either is missing, OSError.
    """
    _rename(folder, one, other, 1)


def move(folder: int, name: str, target: str) -> None:
    """Renames `name` to `target`; raises FileExistsError instead of overwriting it, OSError.

    Some FUSE file systems have neither such a rename nor hard links. There the check comes just
    before the rename.
    """
    try:
        _rename(folder, name, target, 0)
    except Unsupported:
        _link(folder, name, target)


def _link(folder: int, name: str, target: str) -> None:
    try:
        os.link(name, target, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise
    else:
        os.unlink(name, dir_fd=folder)
        return
    if is_there(folder, target):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), target)
    os.rename(name, target, src_dir_fd=folder, dst_dir_fd=folder)


def is_there(folder: int, name: str) -> bool:
    """Returns True if anything has this name, also a dangling symlink. Raises OSError."""
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _rename(folder: int, name: str, target: str, flag_index: int) -> None:
    call = system_call()
    if call is None:
        raise Unsupported
    number = call(folder, name, target, _FLAGS[sys.platform][flag_index])
    if number in _UNSUPPORTED:
        raise Unsupported
    if number:
        raise OSError(number, os.strerror(number), name, None, target)


@cache
def system_call() -> Callable[[int, str, str, int], int] | None:
    """Returns the call, which returns errno or 0; None on other platforms and an old C library."""
    import ctypes

    if sys.platform not in _FLAGS:
        return None
    library = ctypes.CDLL(None, use_errno=True)
    rename = getattr(library, "renameat2" if sys.platform == "linux" else "renameatx_np", None)
    if rename is None:
        return None
    number, text = ctypes.c_int, ctypes.c_char_p
    rename.argtypes = [number, text, number, text, ctypes.c_uint]

    def call(folder: int, name: str, target: str, flags: int) -> int:
        failed = rename(folder, os.fsencode(name), folder, os.fsencode(target), flags)
        return ctypes.get_errno() if failed else 0

    return call
