"""What a pack of vectors begins with.

Owns: the header's bytes, and whose pack a file is. Refuses to know: the records after it.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path

MAGIC = b"kbprocVP"
VERSION = 1
_HEADER = struct.Struct("<8sII32s16s")
HEADER_BYTES = _HEADER.size


def header(dim: int, fingerprint: bytes, id: bytes) -> bytes:
    return _HEADER.pack(MAGIC, VERSION, dim, fingerprint, id)


def read_header(fd: int, dim: int, fingerprint: bytes) -> bytes | None:
    """The pack's id, or None where this is no pack of this model. Raises OSError."""
    found = os.pread(fd, HEADER_BYTES, 0)
    if len(found) < HEADER_BYTES:
        return None
    *begins, id = _HEADER.unpack(found)
    return bytes(id) if begins == [MAGIC, VERSION, dim, fingerprint] else None


def id_of(path: Path, dim: int, fingerprint: bytes) -> bytes | None:
    """The same of a file that nobody has open; None, too, where there is none."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        return read_header(fd, dim, fingerprint)
    except OSError:
        return None
    finally:
        os.close(fd)
