"""Checks the files of all views before any of them is opened.

For DuckDB's files it verifies the checksum before each block, and the list of free blocks.
"""

from __future__ import annotations

import shutil
import struct
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from kbproc.base.durable import SoundFiles, is_synced
from kbproc.engine.projections.fulltext import files
from kbproc.engine.projections.vectors import manifest

_HEADER = 4096  # there are three headers, then the blocks
_BLOCKS = 3 * _HEADER
_BLOCK = 262_144
_PART_BYTES = (_BLOCK - 8) // 64 // 8 * 8
_PART = f"<{_PART_BYTES // 8}Q"
_NONE = (1 << 64) - 1
_SEED, _FACTOR = 5381, 0xBF58476D1CE4E5B9


def damaged_files(views: Path, checked_files: SoundFiles | None = None) -> list[str]:
    """Returns the names of the damaged views, among catalog, fulltext and vectors.

    No process may have them open. A missing view is not damaged. Reads every byte of the files
    that `checked_files` does not know as sound: some 20 ms for 10,000 chunks.
    """
    checked_files = checked_files or SoundFiles()
    damaged_by_view = {
        "catalog": [path.name for path in _catalogs(views) if not _is_sound(path, checked_files)],
        "fulltext": files.damaged(views / "fulltext", checked_files),
        "vectors": manifest.damaged(views, checked_files),
    }
    return [name for name, files_of_view in damaged_by_view.items() if files_of_view]


def _catalogs(views: Path) -> list[Path]:
    return list(views.glob("catalog*.duckdb"))


def _is_sound(catalog: Path, checked_files: SoundFiles) -> bool:
    """Returns whether the file is what was written and has surely reached the disk."""
    return is_synced(catalog) and checked_files.is_sound(catalog, is_whole)


def were_closed(views: Path) -> bool:
    """Returns whether the catalog is unchanged since a process last closed it."""
    checked_files = SoundFiles(views)
    return any(checked_files.knows(path) for path in _catalogs(views))


def look(views: Path) -> list[str]:
    """Returns what `damaged_files` does; reads only files that changed since the last look."""
    checked_files = SoundFiles(views)
    damaged = damaged_files(views, checked_files)
    checked_files.keep()
    return damaged


def drop_damaged(views: Path) -> list[str]:
    """Removes the damaged views, which the log can build again, and returns their names.

    Runs before they are opened. Raises OSError.
    """
    damaged = look(views)
    if "catalog" in damaged:
        for path in views.glob("catalog*.duckdb*"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    if "fulltext" in damaged:
        shutil.rmtree(views / "fulltext")
    if "vectors" in damaged:
        manifest.drop(views)
    return damaged


# ------------------------------------------------------------------ DuckDB's blocks


def is_whole(path: Path) -> bool:
    """Returns whether every block of this DuckDB file has the checksum that stands before it.

    The checksum is DuckDB's own: 5381 ⊕ each 64-bit word × 0xbf58476d1ce4e5b9, modulo 2⁶⁴. A file
    of a version with another checksum passes, because DuckDB checks the blocks that it reads.
    """
    try:
        data = path.read_bytes()
    except OSError:
        return False
    if len(data) < _BLOCKS:
        return False
    headers = [_has_its_checksum(data[at : at + _HEADER]) for at in range(0, _BLOCKS, _HEADER)]
    if not any(headers):
        return True
    if (len(data) - _BLOCKS) % _BLOCK:
        return False  # because zeros that the last block lacks would not change its checksum
    blocks = range(_BLOCKS, len(data), _BLOCK)
    sound = all(headers) and all(_has_its_checksum(data[at : at + _BLOCK]) for at in blocks)
    return sound and _has_all(data, len(blocks))


class _Root(NamedTuple):
    """The newer of the two headers, without its checksum."""

    iteration: int
    tables: int
    free: int
    blocks: int


def _has_all(data: bytes, there: int) -> bool:
    """Returns whether the blocks that the header counts and the file lacks are free.

    A checkpoint cuts off the free blocks at the end after it has counted them.
    """
    both = (_Root(*struct.unpack_from("<4Q", data, at + 8)) for at in (_HEADER, 2 * _HEADER))
    root = max(both)
    missing = range(there, root.blocks)
    return not missing or _free_blocks(data, root.free).issuperset(missing)


def _free_blocks(data: bytes, pointer: int) -> frozenset[int]:
    """Returns the free blocks; none if the list can't be read."""
    try:
        words = _listed(data, pointer)
        return frozenset(islice(words, next(words)))
    except (struct.error, StopIteration, ValueError):
        return frozenset()


def _listed(data: bytes, pointer: int) -> Iterator[int]:
    """Yields the 64-bit words of a chain of 64ths of blocks from `pointer` on.

    A pointer holds the block in its lower 56 bits and the 64th above them. Each 64th begins with a
    pointer to the next.
    """
    visited: set[int] = set()
    while pointer != _NONE and pointer not in visited:
        visited.add(pointer)
        block, part = pointer & ((1 << 56) - 1), pointer >> 56
        words = struct.unpack_from(_PART, data, _BLOCKS + block * _BLOCK + 8 + part * _PART_BYTES)
        pointer = words[0]
        yield from words[1:]


def _has_its_checksum(block: bytes) -> bool:
    import numpy as np

    if len(block) % 8 or len(block) < 16:
        return False
    words = np.frombuffer(block, "<u8")
    with np.errstate(over="ignore"):
        mixed = np.bitwise_xor.reduce(words[1:] * np.uint64(_FACTOR))
    return int(words[0]) == _SEED ^ int(mixed)
