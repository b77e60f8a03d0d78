"""Finds traces of a text in a store's files, and lists the points that can interrupt a purge."""

from __future__ import annotations

import gzip
import re
import zlib
from pathlib import Path

from kbproc.base import failpoints

PURGE_POINTS = [
    name
    for name in failpoints.FAILPOINTS
    if name.startswith("purge.")
    or name in ("pack.erase", "catalog.built", "fulltext.built", "views.swapped", "vectors.save")
]

_PACKED = re.compile(rb"\x78[\x9c\x01\xda]|\x1f\x8b")  # how such a stream begins


def holding(folder: Path, *phrases: str) -> list[str]:
    """Returns the files below `folder` with one of `phrases`, compressed or not, in two codings."""
    needles = [p.encode(coding) for p in phrases for coding in ("utf-8", "utf-16-le")]
    paths = []
    for path in sorted(folder.rglob("*")):
        if not path.is_file():
            continue
        data = path.read_bytes()
        if any(w.lower() in text.lower() for text in (data, *unpacked(data)) for w in needles):
            paths.append(str(path.relative_to(folder)))
    return paths


def unpacked(data: bytes) -> list[bytes]:
    """Returns the contents of zlib, gzip and lz4 streams; tantivy and DuckDB may compress."""
    contents = []
    for mark in _PACKED.finditer(data, 0, 1 << 20):
        packed = data[mark.start() :]
        try:
            contents.append((gzip.decompress if packed[0] == 0x1F else zlib.decompress)(packed))
        except (OSError, zlib.error, EOFError):
            continue
    return contents
