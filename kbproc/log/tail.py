"""The segment that records are appended to.

Owns: writing all bytes or none, making them durable, and refusing every write once
nobody knows what is on the disk.
Refuses to know: which segment it is, and what a record is.
"""

from __future__ import annotations

import os
from pathlib import Path

from kbproc.base import failpoints
from kbproc.base.durable import sync_folder, write_all
from kbproc.base.errors import KbprocError
from kbproc.base.failpoints import reach


class Tail:
    """One open file, or none yet. One thread at a time uses it; any method may raise store.io."""

    def __init__(self) -> None:
        self.size = 0
        self.path = Path()
        self._fd = -1
        self._failed: OSError | None = None

    @property
    def is_open(self) -> bool:
        return self._fd >= 0

    def check(self) -> None:
        """Raises store.io if no write is taken any more."""
        if self._failed is not None:
            raise _refused(self._failed)

    def is_untouched(self) -> bool:
        """False once another process has cut, appended to or replaced the file.

        False, too, where that can't be seen: what is written there may be lost.
        """
        try:
            found = self.path.lstat()
        except OSError:
            return False
        held = os.fstat(self._fd)
        return held.st_size == self.size and os.path.samestat(held, found)

    def _check_untouched(self) -> None:
        """What is written to a file that another has changed may be lost."""
        if not self.is_untouched():
            raise KbprocError(
                "store.io",
                f"Another process has changed {self.path}: nothing is written to it any more.",
                hint="End this process and run kbproc doctor; what was acknowledged is there as "
                "far as the other process has left it.",
            )

    def open(self, path: Path) -> None:
        """Appends to `path` from here on; its name is durable."""
        self.close()
        self.path = path
        try:
            if not path.exists():
                reach("log.segment")
            how = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            self._fd = os.open(path, how, 0o600)
            self.size = os.fstat(self._fd).st_size
            sync_folder(path.parent)
        except OSError as error:
            self.close()  # so that the next write tries again before it acknowledges anything
            raise _refused(error) from error

    def write(self, data: bytes) -> None:
        """Appends all of `data`, or nothing."""
        self.check()
        self._check_untouched()
        try:
            reach("log.write")
            rest = memoryview(data)
            if failpoints.armed():
                half = len(rest) // 2
                write_all(self._fd, rest[:half])
                rest = rest[half:]
                reach("log.torn")
            write_all(self._fd, rest)
        except OSError as error:
            self.cut(self.size)
            raise _refused(error) from error
        self.size += len(data)

    def sync(self) -> None:
        """Makes everything written durable. After a failure no write is taken again."""
        try:
            reach("log.sync")
            os.fdatasync(self._fd)
        except OSError as error:
            self._failed = error
            raise _refused(error) from error
        reach("log.synced")

    def cut(self, size: int) -> None:
        """Drops what lies beyond `size`; if that fails, no write is taken again."""
        try:
            os.ftruncate(self._fd, size)
            self.size = size
        except OSError as error:
            self._failed = error

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _refused(error: OSError) -> KbprocError:
    return KbprocError("store.io", f"The log could not be written: {error.strerror}.")
