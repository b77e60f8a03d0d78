"""The vector view's files: a manifest, and the graph that it names.

Owns: the manifest's form, and whether both files are what was written.
Refuses to know: what is done with what they hold.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec

from kbproc.base.durable import Look, Seen, crc_of, replace
from kbproc.base.values import packed_decoder
from kbproc.log.record import Position
from kbproc.views.vectors.waiting import VectorRow

_FORMAT = 2
_NAME = "vectors.manifest"


class GraphFile(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """A written graph: name under the view's folder, crc32, slots, Graph.spread."""

    name: str
    crc: int
    size: int
    spread: float

    def is_whole(self, path: Path) -> bool:
        """Whether the file at `path` is what was written."""
        try:
            return crc_of(path) == self.crc
        except OSError:
            return False


class Saved(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """`keys`: VectorPack.keys_digest of the slots that are alive. `pack`: how the file of the pack
    looked before those were read. `model`: the pack's fingerprint.
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


_decode = packed_decoder(Saved).decode


def write(folder: Path, saved: Saved) -> None:
    """Beside the old manifest, then in its place. Raises OSError."""
    body = msgspec.msgpack.encode(saved)
    replace(folder / _NAME, _digest(body) + body, written="vectors.saved", name_is_durable=False)
    drop_stale(folder, saved.graph)


def read(folder: Path) -> Saved | None:
    """None for one that is missing, damaged or of another format."""
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


def damaged(folder: Path, seen: Seen) -> list[str]:
    """The files that fail their checksum; none if there is no manifest."""
    if not is_there(folder):
        return []
    saved = read(folder)
    if saved is None:
        return [_NAME]
    if saved.graph is None or seen.is_sound(folder / saved.graph.name, saved.graph.is_whole):
        return []
    return [saved.graph.name]


def drop(folder: Path) -> None:
    """Removes all files of the view. Raises OSError."""
    (folder / _NAME).unlink(missing_ok=True)
    drop_stale(folder, None)


def drop_stale(folder: Path, current: GraphFile | None) -> None:
    """Remove graphs that no manifest names any more; maps in use live on."""
    for path in folder.glob("vectors-*.faiss"):
        if current is None or path.name != current.name:
            path.unlink()


def _digest(body: bytes) -> bytes:
    return hashlib.blake2b(body, digest_size=16).digest()
