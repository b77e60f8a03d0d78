"""Makes one process the owner of a store, and keeps where that process listens.

It is light: a process that attaches to the owner imports this module and no log.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from kbproc.base import disk
from kbproc.base.durable import lock
from kbproc.base.errors import KbprocError

_MOST_BYTES = 1 << 13  # the file `lock` holds two short lines and a path


class Holder(Struct, frozen=True):
    """The process that took the lease last, which may have died since.

    `pid` is empty and `address` None where they are unknown.
    """

    pid: str
    address: Path | None


NOBODY = Holder("", None)


class Lease(Protocol):
    """The right to write to one store; one process has it at a time.

    A process that dies loses it. `was_abandoned`: the former owner has died with it, or may have.
    """

    was_abandoned: bool

    def take(self, pid: int) -> None:
        """Takes the lease. Raises store.locked if any process holds it already, and OSError."""

    def announce(self, address: Path) -> None:
        """Writes down where the owner listens. Only while the lease is held."""

    def holder(self) -> Holder:
        """Returns the owner, or an empty Holder after a release. A dead owner is still named."""

    def check(self) -> None:
        """Raises store.io if the folder is no longer the one that was locked.

        Only while the lease is held.
        """

    def release(self) -> None:
        """Gives the lease up. Only while it is held."""


def locked(store: Path | str, pid: str) -> KbprocError:
    """Returns the error for a process that asks for a lease that another one holds."""
    return KbprocError(
        "store.locked",
        f"The store {store} is open in another process" + (f" (pid {pid})." if pid else "."),
        retry_after_ms=1000,
    )


class FileLease:
    """The lock on a store's folder, and on the file `lock` in it, which names the holder.

    The folder's own lock can't be removed behind its owner's back, as the file can. The file is
    locked too, because some file systems lock no folders. The content of
    the file counts only in the folder it was written in, so a copied store names no owner.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._path = folder / "lock"
        self.was_abandoned = False
        self._pid = 0
        self._fds: list[int] = []

    def take(self, pid: int) -> None:
        fds: list[int] = []
        try:
            fds.append(disk.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
            lock(fds[0], is_needed=False)
            fds.append(_open(self._path))
            lock(fds[1])
        except BaseException as error:
            for fd in fds:
                disk.close(fd)
            if isinstance(error, BlockingIOError):
                raise locked(self._folder, self.holder().pid) from error
            raise
        self._fds, self._pid = fds, pid
        self.was_abandoned = os.fstat(fds[1]).st_size > 0
        try:
            self._write(b"")
        except OSError:
            self.release()
            raise

    def announce(self, address: Path) -> None:
        inside = address.is_relative_to(self._folder)
        self._write(os.fsencode(address.relative_to(self._folder) if inside else address) + b"\n")

    def _write(self, address: bytes) -> None:
        self._put(f"{self._pid}\n{identity(self._folder)}\n".encode() + address)

    def _put(self, text: bytes) -> None:
        disk.truncate(self._fds[1], 0)
        disk.write_at(self._fds[1], text, 0)

    def holder(self) -> Holder:
        try:
            pid, _, rest = _read(self._path).partition(b"\n")
            folder, _, rest = rest.partition(b"\n")
            if folder.decode("ascii", "replace") != identity(self._folder):
                return NOBODY
        except OSError:
            return NOBODY
        address, ended, _ = rest.partition(b"\n")
        return Holder(
            pid.decode("ascii", "replace").strip(),
            self._folder / os.fsdecode(address) if ended else None,
        )

    def check(self) -> None:
        try:
            is_ours = os.path.samestat(self._folder.stat(), os.fstat(self._fds[0]))
        except OSError:
            is_ours = False
        if not is_ours:
            raise KbprocError(
                "store.io",
                f"The store is no longer at {self._folder}: the folder was moved or replaced "
                "while it was open.",
                hint="End this process and open the store where it lies now.",
            )

    def release(self) -> None:
        fds, self._fds = self._fds, []
        with contextlib.suppress(OSError):  # a full disk must not prevent the release
            disk.truncate(fds[1], 0)
        for fd in fds:
            disk.close(fd)


def identity(folder: Path) -> str:
    """Returns a text that stays with the folder when it is moved, and differs for a copy.

    Raises OSError.
    """
    status = folder.stat()
    return f"{status.st_dev}:{status.st_ino}"


def _open(path: Path) -> int:
    """Opens or creates the file. Raises OSError, and store.io for a hard link."""
    fd = disk.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    if os.fstat(fd).st_nlink > 1:
        disk.close(fd)
        raise KbprocError(
            "store.io",
            f"{path} is a hard link to a file elsewhere: two stores would share one log.",
            hint="Copy a store with cp -r, not with links.",
        )
    return fd


def _read(path: Path) -> bytes:
    """Returns the file's first bytes. Raises OSError."""
    fd = disk.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        return os.read(fd, _MOST_BYTES)
    finally:
        disk.close(fd)
