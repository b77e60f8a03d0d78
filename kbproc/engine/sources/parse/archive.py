"""Archives: a list of their files, each of which is a part that becomes a document of its own.

Nothing is written to the disk, so that no name can lead out of a folder. Links, devices, files
with a password and names that point above the archive are counted, and not read.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import PurePath, PurePosixPath
from typing import Any, NamedTuple

from kbproc.base.errors import KbprocError
from kbproc.engine.sources.parse import packed
from kbproc.engine.sources.parse.blocks import Block, Parsed, Part, clean_text, in_bytes

# Limits of what is unpacked and read. Files beyond them are counted.
MAX_READ = 128 << 20
MAX_FILES = 2_000
_LISTED_CHARS = 900
_DAMAGES = (
    *(tarfile.TarError, zlib.error, lzma.LZMAError, gzip.BadGzipFile),
    *(EOFError, OSError, ValueError),
)
# The mark of a compressed file → what reads it.
_READERS: dict[bytes, Callable[[io.BytesIO], Any]] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ\0": lzma.open,
}
_ENCRYPTED = 0x1
_LINK, _KIND = 0o120000, 0o170000


class _ArchiveMember(NamedTuple):
    """A file in an archive; `data`: None where it is no readable file."""

    name: str
    size: int
    data: bytes | None


def parse(data: bytes, name: str) -> Parsed:
    """Returns the list of an archive's files as text, and the files as parts.

    Raises `input.too_large` for a bomb, `operation.failed` for a damaged archive.
    """
    parts: dict[str, Part] = {}
    lines: list[str] = []
    omitted = 0
    for entry in _entries(data, name):
        path = _safe(entry.name)
        if path is None or entry.data is None or path in parts:
            omitted += 1
            continue
        lines.append(f"{path} ({in_bytes(entry.size)})")
        parts[path] = Part(path, entry.data)
    return Parsed(
        blocks=list(_list(lines)),
        metadata={"files": len(lines) + omitted},
        unread={"embedded_files": omitted},
        parts=list(parts.values()),
    )


def _list(lines: list[str]) -> Iterator[Block]:
    rest, size = list[str](), 0
    for line in lines:
        if rest and size + len(line) > _LISTED_CHARS:
            yield Block(text="\n".join(rest), kind="code")
            rest, size = [], 0
        rest.append(line)
        size += len(line)
    if rest:
        yield Block(text="\n".join(rest), kind="code")


def _safe(name: str) -> str | None:
    """Returns the path of a file within its archive; None for one that is hidden or leads out."""
    path = PurePosixPath(clean_text(name).replace("\\", "/").replace("\n", " "))
    names = [part for part in path.parts if part != "."]
    if path.is_absolute() or not names or len(str(path)) > 1000:
        return None
    is_odd = any(part.startswith(".") or part == "__MACOSX" for part in names)
    return None if is_odd else "/".join(names)


def _entries(data: bytes, name: str) -> Iterator[_ArchiveMember]:
    if data.startswith(b"PK"):
        yield from _zipped(packed.opened(data, name, "ZIP"))
        return
    unpacked = _unpacked(data, name)
    if not unpacked.startswith(b"ustar", 257):
        yield _ArchiveMember(PurePath(name).stem, len(unpacked), unpacked)
        return
    try:
        with tarfile.open(fileobj=io.BytesIO(unpacked), mode="r:") as archive:
            yield from _tarred(archive)
    except _DAMAGES as error:
        raise _damaged(name, error) from error


def _zipped(archive: zipfile.ZipFile) -> Iterator[_ArchiveMember]:
    room, count = MAX_READ, 0
    for file in archive.infolist():
        if file.is_dir():
            continue
        count += 1
        is_link = (file.external_attr >> 16) & _KIND == _LINK
        may_read = not (file.flag_bits & _ENCRYPTED or is_link) and file.file_size <= room
        content = None
        if may_read and count <= MAX_FILES:
            try:
                with archive.open(file) as stream:
                    content = stream.read(file.file_size + 1)[: file.file_size]
            except packed.BROKEN:
                content = None
            room -= file.file_size
        yield _ArchiveMember(file.filename, file.file_size, content)


def _tarred(archive: tarfile.TarFile) -> Iterator[_ArchiveMember]:
    room, count = MAX_READ, 0
    for member in archive:
        if member.isdir():
            continue
        count += 1
        content = None
        if member.isreg() and not member.issparse() and member.size <= room and count <= MAX_FILES:
            stream = archive.extractfile(member)
            content = stream.read(member.size) if stream else None
            room -= member.size
        if count > packed.MAX_FILES:
            return
        yield _ArchiveMember(member.name, member.size, content)


def _unpacked(data: bytes, name: str) -> bytes:
    """Returns the bytes of a compressed file; raises input.too_large for a bomb."""
    most = min(packed.MAX_UNPACKED, max(packed.RATIO_FROM, packed.MAX_RATIO * len(data)))
    reader = next((each for mark, each in _READERS.items() if data.startswith(mark)), None)
    if reader is None:
        return data
    try:
        with reader(io.BytesIO(data)) as stream:
            unpacked: bytes = stream.read(most + 1)
    except _DAMAGES as error:
        raise _damaged(name, error) from error
    if len(unpacked) > most:
        message = f"{name} would unpack to more than {most >> 20} MiB: this looks like a bomb."
        raise KbprocError("input.too_large", message)
    return unpacked


def _damaged(name: str, error: Exception) -> KbprocError:
    return KbprocError("operation.failed", f"{name} is damaged: it is no whole archive ({error}).")
