"""Opens the compound files of the older Office formats (DOC, PPT, MSG): a file system in a file.

[MS-CFB] describes it. Chains of sectors that run in a circle, or out of the file, are damage.
"""

from __future__ import annotations

import struct
from array import array
from typing import NamedTuple

from kbproc.base.errors import KbprocError
from kbproc.engine.sources.parse.kinds import OLE

_FREE = 0xFFFFFFFA  # this and greater numbers are no sectors
_NONE = 0xFFFFFFFF
_ENTRY = 128
_STORAGE, _STREAM, _ROOT = 1, 2, 5
_MOST_ENTRIES = 100_000
_HEAD_SECTORS = 109


class OleError(Exception):
    """The file is damaged."""


class _DirectoryEntry(NamedTuple):
    """An entry of the directory; `before`, `after` and `child` are numbers of other entries."""

    name: str
    kind: int
    before: int
    after: int
    child: int
    start: int
    size: int


class CompoundFile:
    """The streams of a compound file by their paths, "folder/name"."""

    def __init__(self, data: bytes) -> None:
        """Raises OleError for a damaged file."""
        self._data = data
        try:
            self._open()
        except (struct.error, IndexError, ValueError, RecursionError) as error:
            raise OleError(str(error)) from error

    def _open(self) -> None:
        data = self._data
        if not data.startswith(OLE) or len(data) < 512:
            raise OleError("it has no head")
        shift, mini_shift = struct.unpack_from("<HH", data, 30)
        if shift not in (9, 12) or mini_shift > shift:
            raise OleError("its sectors have no valid size")
        self._size, self._mini_size = 1 << shift, 1 << mini_shift
        directory, _, self._cutoff, mini_fat, _, difat = struct.unpack_from("<IIIIII", data, 48)
        self._fat = self._table(self._fat_sectors(difat))
        self._mini_fat = self._table(self._chain(mini_fat))
        self._entries = self._directory(self._joined(directory))
        root = self._entries[0]
        self._mini = self._joined(root.start)[: root.size]
        self.streams: dict[str, int] = {}
        self._list(root.child)

    def read(self, path: str) -> bytes:
        """Returns a stream; b"" if there is none of this path. Raises OleError for damage."""
        number = self.streams.get(path)
        if number is None:
            return b""
        entry = self._entries[number]
        if entry.size >= self._cutoff:
            return self._joined(entry.start)[: entry.size]
        pieces, at = [], entry.start
        for _ in range(entry.size // self._mini_size + 1):
            if at >= _FREE or at >= len(self._mini_fat):
                break
            pieces.append(self._mini[at * self._mini_size : (at + 1) * self._mini_size])
            at = self._mini_fat[at]
        return b"".join(pieces)[: entry.size]

    def _fat_sectors(self, difat: int) -> list[int]:
        sectors = list(struct.unpack_from(f"<{_HEAD_SECTORS}I", self._data, 76))
        most = len(self._data) // self._size
        for _ in range(most):
            if difat >= _FREE:
                break
            *more, difat = struct.unpack(f"<{self._size // 4}I", self._sector(difat))
            sectors += more
        return [sector for sector in sectors if sector < _FREE][:most]

    def _table(self, sectors: list[int]) -> array[int]:
        return array("I", b"".join(map(self._sector, sectors)))

    def _sector(self, number: int) -> bytes:
        start = (number + 1) * self._size
        sector = self._data[start : start + self._size]
        if not sector:
            raise OleError("a sector lies behind its end")
        return sector.ljust(self._size, b"\0")

    def _chain(self, start: int) -> list[int]:
        chain: list[int] = []
        most = len(self._data) // self._size + 1
        while start < _FREE:
            if len(chain) > most or start >= len(self._fat):
                raise OleError("its sectors run in a circle or behind its end")
            chain.append(start)
            start = self._fat[start]
        return chain

    def _joined(self, start: int) -> bytes:
        return b"".join(map(self._sector, self._chain(start)))

    def _directory(self, data: bytes) -> list[_DirectoryEntry]:
        entries = []
        for at in range(0, min(len(data), _MOST_ENTRIES * _ENTRY), _ENTRY):
            length, kind = struct.unpack_from("<HB", data, at + 64)
            before, after, child = struct.unpack_from("<III", data, at + 68)
            start, size = struct.unpack_from("<II", data, at + 116)
            name = data[at : at + max(0, min(64, length) - 2)].decode("utf-16-le", "replace")
            entries.append(_DirectoryEntry(name, kind, before, after, child, start, size))
        if not entries or entries[0].kind != _ROOT:
            raise OleError("it has no directory")
        return entries

    def _list(self, first: int) -> None:
        visited: set[int] = set()
        stack = [(first, "")]
        while stack:
            number, path = stack.pop()
            if number == _NONE or number >= len(self._entries) or number in visited:
                continue
            visited.add(number)
            entry = self._entries[number]
            stack += [(entry.before, path), (entry.after, path)]
            if entry.kind == _STREAM:
                self.streams[f"{path}{entry.name}"] = number
            elif entry.kind == _STORAGE:
                stack.append((entry.child, f"{path}{entry.name}/"))


def opened(data: bytes, name: str, hint: str | None = None) -> CompoundFile:
    """Returns the opened file. Raises `operation.failed` with the hint for a damaged one."""
    try:
        return CompoundFile(data)
    except OleError as error:
        raise KbprocError("operation.failed", f"{name} is damaged: {error}.", hint=hint) from error


def summary(file: CompoundFile) -> dict[str, str]:
    """Returns title and author from the properties of a document, if they can be read."""
    data = file.read("\x05SummaryInformation")
    properties: dict[str, str] = {}
    try:
        (start,) = struct.unpack_from("<I", data, 44)
        (count,) = struct.unpack_from("<I", data, start + 4)
        codepage = 1252
        for i in range(min(count, 100)):
            property, offset = struct.unpack_from("<II", data, start + 8 + 8 * i)
            kind, size = struct.unpack_from("<II", data, start + offset)
            if property == 1:
                codepage = size & 0xFFFF
            elif kind == 30 and property in (2, 4):
                raw = data[start + offset + 8 : start + offset + 8 + min(size, 1000)]
                coding = {65001: "utf-8", 1200: "utf-16-le"}.get(codepage, f"cp{codepage}")
                text = raw.decode(coding, "replace").split("\0")[0]
                properties["title" if property == 2 else "author"] = text
    except (struct.error, LookupError):
        pass
    return properties
