"""Reads, writes and checks the vector view's files: a manifest, and the graph that it names."""

from __future__ import annotations

from pathlib import Path

import msgspec

from kbproc.base.durable import Look, SoundFiles, crc_of, replace
from kbproc.base.hashes import blake2b
from kbproc.base.values import packed_decoder
from kbproc.engine.log.record import Position
from kbproc.engine.projections.vectors.waiting import VectorRow

_FORMAT = 2
_NAME = "vectors.manifest"


class GraphFile(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """A written graph: its name in the view's folder, crc32, number of slots, Graph.spread."""

    name: str
    crc: int
    size: int
    spread: float

    def is_whole(self, path: Path) -> bool:
        """Returns whether the file at `path` is what was written."""
        try:
            return crc_of(path) == self.crc
        except OSError:
            return False


class SavedView(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """The manifest. `keys`: VectorPack.keys_digest of the live slots. `pack`: the state of the
    pack's file before the keys were read. `model`: the pack's fingerprint.
    """

    format: int = _FORMAT
    pack_id: bytes
    position: Position
    kbs: list[str]
    slots: bytes
    alive: bytes
    keys: bytes
    pending: list[VectorRow]
    graph: GraphFile | None
    pack: Look | None = None
    model: bytes = b""


_decode = packed_decoder(SavedView).decode


def write(folder: Path, saved: SavedView) -> None:
    """Replaces the manifest atomically and removes older graphs. Raises OSError."""
    body = msgspec.msgpack.encode(saved)
    replace(folder / _NAME, _digest(body) + body, written="vectors.saved", name_is_durable=False)
    drop_stale(folder, saved.graph)


def read(folder: Path) -> SavedView | None:
    """Returns the manifest; None if it is missing, damaged or of another format."""
    try:
        data = (folder / _NAME).read_bytes()
        if _digest(data[16:]) != data[:16]:
            return None
        saved = _decode(data[16:])
    except (OSError, msgspec.DecodeError):
        return None
    return saved if saved.format == _FORMAT else None


def is_there(folder: Path) -> bool:
    return (folder / _NAME).exists()


def damaged(folder: Path, checked_files: SoundFiles) -> list[str]:
    """Returns the files that fail their checksum; none without a manifest."""
    if not is_there(folder):
        return []
    saved = read(folder)
    if saved is None:
        return [_NAME]
    if saved.graph is None or checked_files.is_sound(
        folder / saved.graph.name, saved.graph.is_whole
    ):
        return []
    newest = read(folder)  # a view in use may have saved another graph, and removed this one
    is_replaced = newest is not None and newest.graph != saved.graph
    return [] if is_replaced else [saved.graph.name]


def drop(folder: Path) -> None:
    """Removes all files of the view. Raises OSError."""
    (folder / _NAME).unlink(missing_ok=True)
    drop_stale(folder, None)


def drop_stale(folder: Path, current: GraphFile | None) -> None:
    """Removes graphs that the manifest does not name; memory maps in use stay readable."""
    for path in folder.glob("vectors-*.faiss"):
        if current is None or path.name != current.name:
            path.unlink()


def _digest(body: bytes) -> bytes:
    return blake2b(body, digest_size=16).digest()
