"""What is left of a text in the files of a store, and where forgetting it may be cut off."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

from kbproc.base import failpoints

PURGE_POINTS = [
    name
    for name in failpoints.FAILPOINTS
    if name.startswith("purge.")
    or name in ("pack.erase", "catalog.built", "fulltext.built", "views.swapped", "vectors.save")
]


def holding(folder: Path, *phrases: str) -> list[str]:
    """Files below that hold one of `phrases`, compressed or not, in any of some codings."""
    wanted = [p.encode(coding) for p in phrases for coding in ("utf-8", "utf-16-le")]
    found = []
    for path in sorted(folder.rglob("*")):
        if not path.is_file():
            continue
        data = path.read_bytes()
        if any(w.lower() in text.lower() for text in (data, *unpacked(data)) for w in wanted):
            found.append(str(path.relative_to(folder)))
    return found


def unpacked(data: bytes) -> list[bytes]:
    """What zlib, gzip or lz4 streams in it hold; tantivy and DuckDB may compress."""
    found = []
    for start in range(min(len(data), 1 << 20)):
        if data[start : start + 2] in (b"\x78\x9c", b"\x78\x01", b"\x78\xda", b"\x1f\x8b"):
            try:
                unpack = gzip.decompress if data[start] == 0x1F else zlib.decompress
                found.append(unpack(data[start:]))
            except (OSError, zlib.error, EOFError):
                continue
    return found
