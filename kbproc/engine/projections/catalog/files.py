"""Names and removes the files of catalogs."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import sys
from pathlib import Path

from kbproc.base import durable
from kbproc.base.paths import listed

# SQLite's file beside a database, the mark of one that is known to be damaged, and a note of the
# frames of the WAL that a checkpoint has copied.
WAL, DAMAGED, COPIED = "-wal", ".damaged", ".copied"
PRIVATE = ("", WAL)  # the files that hold rows


def catalogs(views: Path) -> list[Path]:
    """Returns the catalogs' files, oldest first."""
    return [path for path in listed(views, "catalog-", ".sqlite") if path.name[8].isdecimal()]


def next_catalog(views: Path) -> Path:
    """Returns a path for a new catalog, which is built beside the one in use.

    No number is used again while the process runs, because SQLite removes a WAL by its name.
    """
    numbers = [int(path.stem.partition("-")[2]) for path in catalogs(views)]
    return views / f"catalog-{max(numbers, default=0) + 1:06d}.sqlite"


def path_of(folder: int) -> Path:
    """Returns where an open folder is by now. Raises OSError."""
    if sys.platform == "darwin":
        path: bytes = fcntl.fcntl(folder, fcntl.F_GETPATH, bytes(1024))  # PATH_MAX
        return Path(os.fsdecode(path.rstrip(b"\0")))
    return Path(f"/proc/self/fd/{folder}").readlink()


def beside(catalog: Path, suffix: str) -> Path:
    return catalog.with_name(catalog.name + suffix)


def remove_catalog(catalog: Path) -> None:
    """Removes a catalog's files, the database last, because a WAL alone means nothing.

    They hold texts that a purge may have erased, so a power failure must not bring them back.
    """
    for suffix in (WAL, COPIED, DAMAGED, ""):
        beside(catalog, suffix).unlink(missing_ok=True)
    durable.sync_folder(catalog.parent)


def note_damage(catalog: Path) -> None:
    """Marks the file as damaged, so that the next process to open it makes it afresh."""
    with contextlib.suppress(OSError):
        make_private(beside(catalog, DAMAGED))


def make_private(path: Path) -> None:
    """Makes an empty file of mode 0600 unless it exists. Raises OSError, also for a symlink.

    It opens no file that is there: closing it would give up SQLite's locks, and then another
    process could cut off memory that this one has mapped.
    """
    if path.is_symlink():
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
    with contextlib.suppress(FileExistsError):
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        os.close(os.open(path, flags, 0o600))
