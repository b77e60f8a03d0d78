"""DuckDB's files, and whether each is what was written.

Owns: the checksums that DuckDB writes before its blocks.
Refuses to know: what stands in the blocks, and where the files lie.
"""

from __future__ import annotations

import struct
from pathlib import Path

_HEADER = 4096  # three of them, then the blocks
_BLOCK = 262_144
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
    if len(data) < 3 * _HEADER:
        return False
    headers = [_has_its_checksum(data[at : at + _HEADER]) for at in range(0, 3 * _HEADER, _HEADER)]
    if not any(headers):
        return True
    if len(data) < 3 * _HEADER + _blocks_in(data) * _BLOCK:
        return False
    blocks = range(3 * _HEADER, len(data), _BLOCK)
    return all(headers) and all(_has_its_checksum(data[at : at + _BLOCK]) for at in blocks)


def _blocks_in(data: bytes) -> int:
    """As the newer of the two headers says: checksum, iteration, root, free list, blocks."""
    both = [struct.unpack_from("<5Q", data, at) for at in (_HEADER, 2 * _HEADER)]
    return int(max(both, key=lambda header: header[1])[4])


def _has_its_checksum(block: bytes) -> bool:
    import numpy as np

    if len(block) % 8 or len(block) < 16:
        return False
    words = np.frombuffer(block, "<u8")
    with np.errstate(over="ignore"):
        mixed = np.bitwise_xor.reduce(words[1:] * np.uint64(_FACTOR))
    return int(words[0]) == _SEED ^ int(mixed)
