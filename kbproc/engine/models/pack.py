"""Stores the cache of embeddings: one file of fixed-size records, which grows at its end.

The file is `STORE/vectors/<model>.pack`. A record is key (sha256 of fingerprint ‖ text) ‖ dim × f16
‖ crc32, little-endian. The index by key lives in memory.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import struct
import threading
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from kbproc.base import disk
from kbproc.base.durable import SoundFiles, make_folder, write_all_at
from kbproc.base.errors import KbprocError
from kbproc.base.failpoints import reach
from kbproc.base.hashes import blake2b, sha256
from kbproc.base.wording import plural
from kbproc.engine.models.calibration import UNSCALED

if TYPE_CHECKING:
    from numpy.typing import NDArray

MAGIC = b"kbprocVP"
VERSION = 1
KEY_BYTES = 32
ERASED = bytes(KEY_BYTES)
_HEADER = struct.Struct("<8sII32s16s")
HEADER_BYTES = _HEADER.size


class VectorPack:
    """A pack, with one writer at a time and any number of reading threads.

    `id` is drawn when the file is made: row numbers keep their meaning while it stays the same.
    `damaged`: the number of records that are ignored for a bad checksum. `set_aside`: where a file
    of another model or format was moved, if there was one.
    """

    def __init__(self, *, path: Path, fd: int, dim: int, fingerprint: bytes, id: bytes) -> None:
        self.path = path
        self.dim = dim
        self.fingerprint = fingerprint
        self.scale = UNSCALED  # the scale of the model's cosines
        self.id = id
        self.set_aside: Path | None = None
        self._fd = fd
        self._record = np.dtype(
            [("key", f"V{KEY_BYTES}"), ("vector", "<f2", (dim,)), ("crc", "<u4")]
        )
        self._count = 0
        self._unusable: set[int] = set()
        self._free: list[int] = []  # erased rows to which no reader refers
        self.damaged = 0
        self._rows_by_key: dict[bytes, int] | None = None
        self._finding = threading.Lock()
        self._mapped: NDArray[np.void] = np.empty(0, self._record)
        self._map: mmap.mmap | None = None
        self._writing = threading.Lock()

    @classmethod
    def open(cls, path: Path, *, dim: int, fingerprint: bytes) -> VectorPack:
        """Opens or makes the pack of this model; raises store.io.

        It removes an incomplete last record. A file with another header is renamed to `*.old`, and
        an empty one takes its place.
        """
        if len(fingerprint) != 32:
            raise ValueError("a fingerprint has 32 bytes")
        with _disk("open", path):
            make_folder(path.parent)
            fd = disk.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            id = _read_header(fd, dim, fingerprint)
            old: Path | None = None
            if id is None:
                if os.fstat(fd).st_size:
                    old = path.with_name(path.name + ".old")
                    disk.rename(path, old)
                disk.close(fd)
                fd, id = _start(path, dim, fingerprint)
            pack = cls(path=path, fd=fd, dim=dim, fingerprint=fingerprint, id=id)
            pack.set_aside = old
            pack._load()
        return pack

    def _load(self) -> None:
        size = os.fstat(self._fd).st_size - HEADER_BYTES
        self._count, torn = divmod(size, self._record.itemsize)
        if torn:
            disk.truncate(self._fd, size - torn + HEADER_BYTES)
        bad = _unsound(self.path, self._records)
        self.damaged = len(bad)
        erased = np.frombuffer(ERASED, f"V{KEY_BYTES}")
        self._free = np.flatnonzero(self._records()["key"] == erased).tolist()
        self._unusable = bad | set(self._free)

    @property
    def _row_of(self) -> dict[bytes, int]:
        """Key → row; made at the first use, because a search needs none."""
        with self._finding:
            if self._rows_by_key is None:
                keys = enumerate(self._records()["key"].tolist())
                self._rows_by_key = {key: row for row, key in keys if row not in self._unusable}
            return self._rows_by_key

    def __len__(self) -> int:
        """Returns the number of records in the file, with ignored and erased ones."""
        return self._count

    def key(self, text: str) -> bytes:
        """Returns the 32-byte key of this exact string under this model."""
        return sha256(self.fingerprint + text.encode("utf-8", "surrogatepass")).digest()

    def has(self, key: bytes) -> bool:
        return key in self._row_of

    def rows(self, keys: Sequence[bytes]) -> NDArray[np.int64]:
        """Returns row numbers, shape (len(keys),); −1 where there is no vector."""
        find = self._row_of.get
        return np.fromiter((find(key, -1) for key in keys), np.int64, len(keys))

    def usable(self, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Returns which of these row numbers hold a vector."""
        good = (rows >= 0) & (rows < self._count)
        if bad := self._unusable.intersection(rows.tolist()):
            good &= ~np.isin(rows, list(bad))
        return good

    def key_at(self, row: int) -> bytes:
        return bytes(self._records()["key"][row].tobytes())

    def keys_digest(self, rows: NDArray[np.int64]) -> bytes:
        """Returns a 16-byte digest of these rows' keys in their order.

        It reads from every page and then frees the pages, because a search needs few of them.
        """
        keys = np.ascontiguousarray(self._records()["key"][rows])
        if self._map is not None and hasattr(mmap, "MADV_DONTNEED"):
            self._map.madvise(mmap.MADV_DONTNEED)
        return blake2b(keys.view(np.uint8).data, digest_size=16).digest()

    def vectors(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Returns the stored f16 values as float32, shape (len(rows), dim)."""
        return widened(self._records()["vector"][rows])

    def halves(self, rows: NDArray[np.int64]) -> list[bytes]:
        """Returns the bytes of each row's f16 values as they are in the file."""
        return [vector.tobytes() for vector in self._records()["vector"][rows]]

    def append(self, keys: Sequence[bytes], vectors: NDArray[np.float32]) -> NDArray[np.int64]:
        """Adds missing vectors; returns the row numbers of all keys, shape (len(keys),).

        `vectors`: shape (len(keys), dim), finite; else ValueError is raised. Raises store.io if the
        disk refuses; then nothing was added.
        """
        if vectors.shape != (len(keys), self.dim) or not np.isfinite(vectors).all():
            raise ValueError(f"expected {len(keys)} finite vectors of {self.dim} dimensions")
        with self._writing:
            new = {key: i for i, key in enumerate(keys) if key not in self._row_of}
            records = np.zeros(len(new), self._record)
            records["key"] = np.frombuffer(b"".join(new), f"V{KEY_BYTES}")
            records["vector"] = vectors[list(new.values())]
            records["crc"] = _checksums(records)
            reused = self._free[: len(new)]
            added = range(self._count, self._count + len(new) - len(reused))
            with _disk("write", self.path):
                reach("pack.write")
                for n, row in enumerate(reused):
                    _write(self._fd, row, records[n : n + 1])
                _write(self._fd, self._count, records[len(reused) :])
            reach("pack.written")
            self._count += len(added)
            del self._free[: len(reused)]
            self._unusable.difference_update(reused)
            self._row_of.update(zip(new, [*reused, *added], strict=True))
        return self.rows(keys)

    def erase(self, keys: Sequence[bytes]) -> int:
        """Overwrites these vectors for good; returns the number of records.

        Other rows keep their numbers; the erased rows hold nothing until `release`. Raises
        store.io.
        """
        erased_keys = set(keys) - {ERASED}
        blank = np.zeros(1, self._record)
        blank["crc"] = _checksums(blank)
        with self._writing, _disk("write", self.path):
            all_keys = enumerate(self._records()["key"].tolist())
            rows = [row for row, key in all_keys if key in erased_keys]
            self._unusable.update(rows)
            for key in erased_keys:
                self._row_of.pop(key, None)
            for row in rows:
                reach("pack.erase")
                _write(self._fd, row, blank)
            disk.sync(self._fd)
        return len(rows)

    def release(self) -> None:
        """Frees all erased rows for other vectors, once no reader refers to them."""
        with self._writing:
            erased = np.frombuffer(ERASED, f"V{KEY_BYTES}")
            self._free = np.flatnonzero(self._records()["key"] == erased).tolist()

    def check(self) -> list[str]:
        """Reads every record again; returns the problems in words."""
        bad = _bad_rows(self._records())
        return (
            [f"{self.path.name}: {plural(len(bad), 'record')} of a wrong checksum"] if bad else []
        )

    def sync(self) -> None:
        """Forces appended records to the disk; raises store.io."""
        with _disk("sync", self.path):
            disk.sync(self._fd)

    def close(self) -> None:
        """Closes the file; checks its records first, so that the next opener need not."""
        if self._fd >= 0:
            if os.fstat(self._fd).st_size == HEADER_BYTES + self._count * self._record.itemsize:
                _unsound(self.path, self._records)
            disk.close(self._fd)
            self._fd = -1

    def _records(self) -> NDArray[np.void]:
        """Returns all records as a read-only array over the mapped file.

        The file is mapped again once it has outgrown the mapping; readers of an older mapping keep
        that alive.
        """
        mapped, count = self._mapped, self._count
        if len(mapped) < count:
            size = HEADER_BYTES + count * self._record.itemsize
            file = mmap.mmap(self._fd, size, access=mmap.ACCESS_READ)
            mapped = np.frombuffer(file, self._record, count, HEADER_BYTES)
            self._mapped, self._map = mapped, file
        return mapped


def records_in(path: Path, dim: int) -> int:
    """Returns how many records a pack's file has by its size, with ignored and erased ones."""
    try:
        size = path.stat().st_size
    except OSError:
        return 0
    return max(0, size - HEADER_BYTES) // (KEY_BYTES + 2 * dim + 4)


def _write(fd: int, first: int, records: NDArray[np.void]) -> None:
    """Writes records from row `first` on."""
    write_all_at(fd, records.tobytes(), HEADER_BYTES + first * records.dtype.itemsize)


def _bad_rows(records: NDArray[np.void]) -> set[int]:
    return set(np.flatnonzero(_checksums(records) != records["crc"]).tolist())


def _unsound(path: Path, records: Callable[[], NDArray[np.void]]) -> set[int]:
    """Returns the rows with a bad checksum.

    It reads no file that is unchanged since a check without bad rows.
    """
    bad: set[int] = set()

    def has_none(_: Path) -> bool:
        bad.update(_bad_rows(records()))
        return not bad

    checks = SoundFiles(path.parent)
    checks.is_sound(path, has_none)
    checks.keep()
    return bad


def widened(halves: NDArray[np.float16]) -> NDArray[np.float32]:
    """Returns finite f16 values as float32; numpy's own conversion takes twenty times as long.

    Exponent and fraction move to float32's places. The factor 2^112 corrects the bias, exactly, and
    turns subnormals into normal numbers.
    """
    bits = np.ascontiguousarray(halves).view(np.int16).astype(np.int32)
    bits <<= 13
    bits &= ~0x70000000  # copies of the sign
    wide: NDArray[np.float32] = bits.view(np.float32)
    wide *= np.float32(2.0**112)
    return wide


def _checksums(records: NDArray[np.void]) -> NDArray[np.uint32]:
    size = records.dtype.itemsize
    data = records.view(np.uint8).data
    crc = zlib.crc32
    ends = range(size - 4, len(data), size)
    return np.fromiter((crc(data[end + 4 - size : end]) for end in ends), np.uint32, len(records))


def _read_header(fd: int, dim: int, fingerprint: bytes) -> bytes | None:
    """Returns the pack's id, or None if this is no pack of this model."""
    header = os.pread(fd, HEADER_BYTES, 0)
    if len(header) < HEADER_BYTES:
        return None
    *fields, id = _HEADER.unpack(header)
    return bytes(id) if fields == [MAGIC, VERSION, dim, fingerprint] else None


def _start(path: Path, dim: int, fingerprint: bytes) -> tuple[int, bytes]:
    id = os.urandom(16)
    fd = disk.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    write_all_at(fd, _HEADER.pack(MAGIC, VERSION, dim, fingerprint, id), 0)
    return fd, id


@contextlib.contextmanager
def _disk(action: str, path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise KbprocError("store.io", f"cannot {action} {path}: {error.strerror}") from error
