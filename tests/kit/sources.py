"""Damages stored sources in place, and lists the files that hold them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

HEAD = 4 + 32  # bytes of a frame before its source: the length and the sha256


def source_files(store: Path) -> dict[str, bytes]:
    """Returns the bytes of every file below the store's sources, by name."""
    files = sorted(path for path in (store / "sources").rglob("*") if path.is_file())
    return {str(path.relative_to(store)): path.read_bytes() for path in files}


def harm(store: Path, sha256: str, change: Callable[[bytes], bytes]) -> bytes:
    """Changes the stored bytes of a source in place; returns the harmed bytes.

    In a pack the length stays: what `change` cuts off becomes zeros.
    """
    large = store / "sources" / "large" / sha256
    if large.exists():
        large.write_bytes(change(large.read_bytes()))
        return large.read_bytes()
    path, start, length = frame_of(store, sha256)
    with path.open("r+b") as file:
        file.seek(start)
        harmed = change(file.read(length)).ljust(length, b"\0")[:length]
        file.seek(start)
        file.write(harmed)
    return harmed


def frame_of(store: Path, sha256: str) -> tuple[Path, int, int]:
    """Returns the pack of a small source, and the offset and length of its bytes there."""
    for path in sorted((store / "sources").glob("*.pack")):
        at = path.read_bytes().find(bytes.fromhex(sha256))
        if at >= 0:
            length = int.from_bytes(path.read_bytes()[at - 4 : at])
            return path, at - 4 + HEAD, length
    raise AssertionError(f"no pack has {sha256}")
