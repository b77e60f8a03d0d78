"""Renames that overwrite nothing, and two files that change places.

Owns: the system calls for both, on Linux and macOS, and what serves where they are missing.
Refuses to know: what is in the files. Names are relative to an open folder.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable
from functools import cache

# renameat2(2) on Linux, renameatx_np(2) on macOS: (only if nothing is there, both change places).
_FLAGS = {"linux": (1, 2), "darwin": (4, 2)}
# A sandbox answers EPERM to a call that it does not know; a plain rename then shows what is wrong.
_UNSUPPORTED = {
    errno.ENOSYS,
    errno.EINVAL,
    errno.ENOTSUP,
    errno.EOPNOTSUPP,
    errno.EPERM,
    errno.EMLINK,
}


class Unsupported(Exception):
    """The file system, or this platform, has no such rename."""


def swap(folder: int, one: str, other: str) -> None:
    """The two files change names, at one moment.

    Raises Unsupported, FileNotFoundError if either is missing, OSError.
    """
    _rename(folder, one, other, 1)


def move(folder: int, name: str, target: str) -> None:
    """Renames `name` to `target`; raises FileExistsError rather than overwrite it, OSError.

    Some FUSE file systems have neither such a rename nor hard links: there the check comes
    just before the rename.
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
    """Whether anything has this name, be it a link that leads nowhere. Raises OSError."""
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _rename(folder: int, name: str, target: str, which: int) -> None:
    call = system_call()
    if call is None:
        raise Unsupported
    number = call(folder, name, target, _FLAGS[sys.platform][which])
    if number in _UNSUPPORTED:
        raise Unsupported
    if number:
        raise OSError(number, os.strerror(number), name, None, target)


@cache
def system_call() -> Callable[[int, str, str, int], int] | None:
    """Returns errno, 0 if it went well; None on other platforms and with an old C library."""
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
