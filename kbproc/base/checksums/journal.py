"""Bytes that are durable before they have files of their own.

Owns: one file, whose room is on the disk before it is needed. What is written into such room is
durable after one short sync; a new file takes four, of bytes and of names.
Refuses to know: whose bytes they are, and when they have their files.

A frame is the length of the bytes (4 bytes, big-endian), their sha256 and the bytes themselves.
A length of 0 ends the frames.
"""

from __future__ import annotations

import hashlib
import os
import stat
import struct
from collections.abc import Collection
from pathlib import Path

from kbproc.base.durable import sync_data, sync_folder, write_all_at

ROOM = 1 << 20  # bytes: some thousand short texts
_HEAD = struct.Struct(">I32s")


class Journal:
    """One thread at a time uses it. Its file is made when it is first needed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd = -1
        self._end = 0
        self._used = 0  # beyond `_end` may lie what could not be made durable

    def read(self) -> list[bytes]:
        """What a process that has died left in it, or one that lives has there. Raises OSError."""
        try:
            fd = _opened(self._path, os.O_RDONLY)
        except FileNotFoundError:
            return []
        with os.fdopen(fd, "rb") as file:
            data = file.read(ROOM)
        found, self._end = _frames(data)
        self._used = len(data)  # of what follows nothing is known
        return found

    @property
    def is_clean(self) -> bool:
        return not self._used

    def fits(self, sources: Collection[bytes]) -> bool:
        """False, too, where one is empty: that is no frame."""
        needed = sum(_HEAD.size + len(source) for source in sources)
        return all(sources) and self._end + needed <= ROOM

    def add(self, sources: Collection[bytes]) -> None:
        """Durable when it returns; nobody may rely on what is in it after an OSError."""
        self._open()
        frames = b"".join(
            _HEAD.pack(len(source), hashlib.sha256(source).digest()) + source for source in sources
        )
        self._used = max(self._used, self._end + len(frames))
        write_all_at(self._fd, frames, self._end)
        sync_data(self._fd)
        self._end += len(frames)

    def _open(self) -> None:
        """What is in it stays. Raises OSError."""
        if self._fd >= 0:
            return
        fd = _opened(self._path, os.O_RDWR | os.O_CREAT)
        try:
            if (size := os.fstat(fd).st_size) < ROOM:
                write_all_at(fd, bytes(ROOM - size), size)
                os.fsync(fd)
                sync_folder(self._path.parent)
        except OSError:
            os.close(fd)
            if not self._end:
                self._path.unlink(missing_ok=True)
            raise
        self._fd = fd

    def sync(self) -> None:
        """What was read is durable: whoever wrote it may have died before. Raises OSError."""
        self._open()
        sync_data(self._fd)

    def clear(self) -> None:
        """Nothing is left of what was in it. Raises OSError."""
        self._end = 0
        self.trim()

    def trim(self) -> None:
        """Nothing is left of what could not be made durable. Raises OSError."""
        if self._used > self._end:
            self._open()
            write_all_at(self._fd, bytes(self._used - self._end), self._end)
            sync_data(self._fd)
            self._used = self._end

    def remove(self) -> None:
        """Raises OSError."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        self._path.unlink(missing_ok=True)


def _frames(data: bytes) -> tuple[list[bytes], int]:
    """The bytes of each whole frame, and where the last one ends; a rotten one is left out."""
    found: list[bytes] = []
    at = last = 0
    while at + _HEAD.size < len(data):
        length, name = _HEAD.unpack_from(data, at)
        start, at = at + _HEAD.size, at + _HEAD.size + length
        if not length or at > len(data):
            break
        if hashlib.sha256(data[start:at]).digest() == name:
            found.append(data[start:at])
            last = at
    return found, last


def _opened(path: Path, how: int) -> int:
    """Raises OSError for what is no regular file."""
    fd = os.open(path, how | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise FileExistsError(0, "it is no regular file", str(path))
    return fd
