"""Finds traces of a text in a store's files, and lists the points that can interrupt a purge."""

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
    for start in range(min(len(data), 1 << 20)):
        if data[start : start + 2] in (b"\x78\x9c", b"\x78\x01", b"\x78\xda", b"\x1f\x8b"):
            try:
                unpack = gzip.decompress if data[start] == 0x1F else zlib.decompress
                contents.append(unpack(data[start:]))
            except (OSError, zlib.error, EOFError):
                continue
    return contents
