"""Appends to the last segment of a log: all bytes or none, then durable.

After a failed sync the disk's content is unknown; the file is in doubt until it is settled.
"""

from __future__ import annotations

import os
from pathlib import Path

from kbproc.base import disk, failpoints
from kbproc.base.durable import sync_folder, write_all
from kbproc.base.errors import KbprocError
from kbproc.base.failpoints import reach


class LogTail:
    """One open file, or none yet. One thread at a time uses it; any method may raise store.io.

    `synced`: the number of durable bytes among its `size` bytes.
    """

    def __init__(self) -> None:
        self.size = 0
        self.synced = 0
        self.path = Path()
        self._fd = -1
        self._failed: OSError | None = None

    @property
    def is_open(self) -> bool:
        return self._fd >= 0

    @property
    def in_doubt(self) -> bool:
        """True after a failed sync, when the disk's content is unknown; see `settle`."""
        return self._failed is not None

    def check(self) -> None:
        """Raises store.io while the file is in doubt."""
        if self._failed is not None:
            raise _write_error(self._failed)

    def settle(self) -> None:
        """Cuts the file back to its durable bytes, and drops the kernel's cached pages.

        A kernel that could not write a page may keep it in memory and call it clean. Without
        the pages the next read shows what the disk holds. The file stays in doubt until the next
        `open`.
        """
        try:
            fd = disk.open(self.path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                disk.truncate(fd, self.synced)
                disk.sync(fd)
                _forget_pages(fd)
            finally:
                disk.close(fd)
        except OSError as error:
            raise _write_error(error) from error
        self.size = self.synced

    def is_untouched(self) -> bool:
        """Returns False once another process has cut, appended to or replaced the file.

        Returns False as well if the file can't be inspected, because writes may be lost then.
        """
        try:
            on_path = self.path.lstat()
        except OSError:
            return False
        opened = os.fstat(self._fd)
        return opened.st_size == self.size and os.path.samestat(opened, on_path)

    def _check_untouched(self) -> None:
        """Raises store.io for a file that another process has changed: writes may be lost."""
        if not self.is_untouched():
            raise KbprocError(
                "store.io",
                f"Another process has changed {self.path}: nothing is written to it any more.",
                hint="End this process and run kbproc doctor; what was acknowledged is there as "
                "far as the other process has left it.",
            )

    def open(self, path: Path) -> None:
        """Opens `path` for appending, and makes its name durable."""
        self.close()
        self.path, self._failed = path, None
        try:
            if not path.exists():
                reach("log.segment")
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            self._fd = disk.open(path, flags, 0o600)
            self.size = self.synced = os.fstat(self._fd).st_size
            sync_folder(path.parent)
        except OSError as error:
            self.close()  # so that the next write tries again before it acknowledges anything
            raise _write_error(error) from error

    def write(self, data: bytes) -> None:
        """Appends all of `data`, or nothing."""
        self.check()
        if self.size == self.synced:  # else the first write checked it, and `sync` will again
            self._check_untouched()
        try:
            reach("log.write")
            remaining = memoryview(data)
            if failpoints.armed():
                half = len(remaining) // 2
                write_all(self._fd, remaining[:half])
                remaining = remaining[half:]
                reach("log.torn")
            write_all(self._fd, remaining)
        except OSError as error:
            self._cut(self.size)
            raise _write_error(error) from error
        self.size += len(data)

    def sync(self) -> None:
        """Makes everything written durable. After a failure the file is in doubt."""
        self.check()
        if self.size != self.synced:
            self._check_untouched()
        try:
            reach("log.sync")
            disk.sync_data(self._fd)
        except OSError as error:
            self._failed = error
            raise _write_error(error) from error
        self.synced = self.size
        reach("log.synced")

    def take_back(self) -> None:
        """Drops the bytes that are not durable."""
        if self.size != self.synced:
            self._cut(self.synced)

    def _cut(self, size: int) -> None:
        """Drops the bytes beyond `size`, so that no crash brings back what was refused.

        If that fails, the file is in doubt.
        """
        try:
            disk.truncate(self._fd, size)
            self.size = size
            disk.sync_data(self._fd)
        except OSError as error:
            self._failed = error

    def close(self) -> None:
        if self._fd >= 0:
            disk.close(self._fd)
            self._fd = -1


def _forget_pages(fd: int) -> None:
    """Drops the file's cached pages; macOS has no such call, so there they stay."""
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)


def _write_error(error: OSError) -> KbprocError:
    return KbprocError("store.io", f"The log could not be written: {error.strerror}.")
