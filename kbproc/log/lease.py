"""Who may write to a store, and where that process listens.

Owns: the interface of a lease, and the lease that is a locked file.
Refuses to know: what is written, and what is said to whoever listens.

Light: a process that attaches to the owner imports this and no log.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import NamedTuple, Protocol

from kbproc.base.errors import KbprocError


class Holder(NamedTuple):
    """The process that took the lease last, which may have ended since.

    `pid` is empty and `address` None where nothing is known of it.
    """

    pid: str
    address: Path | None


class Lease(Protocol):
    """The right to write to one store; one process has it at a time.

    A process that dies loses it.
    """

    def take(self, pid: int) -> None:
        """Raises store.locked if it is held already, by whomever; OSError."""

    def announce(self, address: Path) -> None:
        """Tells where its holder listens. Only while it is held."""

    def holder(self) -> Holder:
        """Whether it is held or not."""

    def release(self) -> None:
        """Only while it is held."""


def locked(store: Path | str, pid: str) -> KbprocError:
    """The answer to whoever wants a lease that another process holds."""
    return KbprocError(
        "store.locked",
        f"The store {store} is open in another process" + (f" (pid {pid})." if pid else "."),
        retry_after_ms=1000,
    )


class FileLease:
    """The lock on the file `lock` in a store's folder; the file names the holder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._path = folder / "lock"
        self._pid = 0
        self._fd = -1

    def take(self, pid: int) -> None:
        fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(fd)
            raise locked(self._folder, self.holder().pid) from error
        self._fd, self._pid = fd, pid
        self._write(b"")

    def announce(self, address: Path) -> None:
        self._write(os.fsencode(address) + b"\n")

    def _write(self, address: bytes) -> None:
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, f"{self._pid}\n".encode() + address, 0)

    def holder(self) -> Holder:
        try:
            pid, _, rest = self._path.read_bytes().partition(b"\n")
        except OSError:
            return Holder("", None)
        address, ended, _ = rest.partition(b"\n")
        return Holder(
            pid.decode("ascii", "replace").strip(), Path(os.fsdecode(address)) if ended else None
        )

    def release(self) -> None:
        fd, self._fd = self._fd, -1
        os.close(fd)
