"""Bytes that are on the disk when a call returns.

Owns: writing all of them, and making a folder's names durable.
Refuses to know: what the bytes mean.
"""

from __future__ import annotations

import os
from pathlib import Path


def sync_folder(folder: Path) -> None:
    """Makes the names in it durable. Raises OSError."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def write_all(fd: int, data: bytes) -> None:
    """Writes the whole of `data`; raises BrokenPipeError if nobody reads."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
