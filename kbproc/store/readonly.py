"""Stores that can't be written: a backup on read-only media, another user's folder.

Owns: recognising such a store, and the answer to whoever writes to it.
Refuses to know: how such a store is opened (overlay.py), and which methods write.

Light: a process that attaches to the owner imports this.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

import msgspec

from kbproc.base.errors import KbprocError

_REFUSED = {errno.EROFS, errno.EACCES, errno.EPERM}
_ELSEWHERE = "Copy the folder to where you can write, and name the copy with --store."


def is_read_only(folder: Path) -> bool:
    """Whether this folder, or the lock in it, can't be written; False where there is none."""
    try:
        os.close(os.open(folder / "lock", os.O_RDWR | os.O_CLOEXEC))
    except OSError as error:
        if error.errno in _REFUSED:
            return True
    return folder.is_dir() and not os.access(folder, os.W_OK | os.X_OK)


def refusal(store: Path) -> KbprocError:
    """What every write to such a store is answered."""
    error = KbprocError(
        "store.io",
        f"The store {store} is read-only.",
        hint=f"{_ELSEWHERE} Opening a copy is restoring it.",
        detail={"read_only": True},
    )
    # No later try will do better, as it may when a disk was full.
    error.row = msgspec.structs.replace(error.row, retryable=False)
    return error
