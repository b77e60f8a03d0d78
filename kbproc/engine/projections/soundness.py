"""DuckDB's files, and whether each is what was written.

Owns: the checksums that DuckDB writes before its blocks, and its list of free blocks.
Refuses to know: what stands in the other blocks, and where the files lie.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

_HEADER = 4096  # three of them, then the blocks
_BLOCKS = 3 * _HEADER
_BLOCK = 262_144
_PART_BYTES = (_BLOCK - 8) // 64 // 8 * 8
_PART = f"<{_PART_BYTES // 8}Q"
_NONE = (1 << 64) - 1
_SEED, _FACTOR = 5381, 0xBF58476D1CE4E5B9


def is_whole(path: Path) -> bool:
    """Whether every block of this DuckDB file has the checksum that stands before it.

    The sum is DuckDB's own: 5381 ⊕ each 64-bit word × 0xbf58476d1ce4e5b9, modulo 2⁶⁴. A
    file of a version that counts otherwise passes: DuckDB looks at what it reads.
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
    blocks = range(_BLOCKS, len(data), _BLOCK)
    sound = all(headers) and all(_has_its_checksum(data[at : at + _BLOCK]) for at in blocks)
    return sound and _has_all(data, len(blocks))


class _Root(NamedTuple):
    """The newer of the two headers, but for its checksum."""

    iteration: int
    tables: int
    free: int
    blocks: int


def _has_all(data: bytes, there: int) -> bool:
    """Whether what the header counts and the file has not is free.

    A checkpoint cuts off the free blocks at the end after it has counted them.
    """
    both = (_Root(*struct.unpack_from("<4Q", data, at + 8)) for at in (_HEADER, 2 * _HEADER))
    root = max(both)
    missing = range(there, root.blocks)
    return not missing or _free_blocks(data, root.free).issuperset(missing)


def _free_blocks(data: bytes, pointer: int) -> frozenset[int]:
    """Those that hold nothing; none where the list can't be read."""
    try:
        words = _listed(data, pointer)
        return frozenset(islice(words, next(words)))
    except (struct.error, StopIteration, ValueError):
        return frozenset()


def _listed(data: bytes, pointer: int) -> Iterator[int]:
    """64-bit words of the chain of 64ths of blocks that begins there.

    A pointer holds which block in its lower 56 bits and which of its 64ths above them. Each 64th
    begins with a pointer to the next.
    """
    seen: set[int] = set()
    while pointer != _NONE and pointer not in seen:
        seen.add(pointer)
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
