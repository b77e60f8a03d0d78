"""Source packs: files that many small sources are appended to.

A pack is `STORE/sources/000001.pack`. It begins with a magic word and a random id; then come
frames: the length of a source (4 bytes, big-endian), its sha256 and its bytes. The sha256 is both
the source's name and the checksum of its bytes. Frames are appended and never changed in place: a
pack that has to lose sources is written anew beside the old one, which it then replaces.

Zeros may follow the last frame. They are room that was allocated and synced in advance, so that a
source is durable after one short sync that changes neither the file's size nor its blocks.

An index, `000001.index`, saves reading a whole pack at the next start. It holds the id of its pack,
the number of bytes that it knows, a checksum, and for each source its sha256, offset and length,
sorted. It is made from its pack, covers at least all but the last megabyte, and may be lost.

A reader that finds no sound frame where one should begin looks for the next one, so a flipped bit
costs the source that it is in. An unsound frame at the end is no damage: its writer died before the
source was acknowledged.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import stat
import struct
import threading
import zlib
from bisect import bisect_left
from collections.abc import Callable, Iterable
from pathlib import Path

from msgspec import Struct
from msgspec.structs import astuple

from kbproc.base import disk, durable, hashes
from kbproc.base.failpoints import reach
from kbproc.base.paths import listed, open_regular

SMALL_BYTES = 64 << 10  # a larger source has a file of its own
PACK_BYTES = 64 << 20  # a longer pack is full
_ROOM = 1 << 20
_UNINDEXED_BYTES = 1 << 20  # read again in milliseconds, so an index may lack so many
# Bytes that are hashed in search of the next sound frame; damage costs no more time.
_SEARCHED_BYTES = 64 << 20
_MAGIC, _INDEX_MAGIC = b"kbprocSP", b"kbprocSI"
_HEADER = struct.Struct(">8s16s")
_FRAME = struct.Struct(">I32s")
_INDEX = struct.Struct(">8s16sQI")  # magic, the pack's id, bytes it knows, crc32 of the entries
_ENTRY = struct.Struct(">32sII")  # sha256, offset of the frame, length of the source


class Frame(Struct, frozen=True):
    """The place of a source in a pack: the offset of its frame, and the source's length."""

    offset: int
    length: int

    @property
    def end(self) -> int:
        return self.offset + _FRAME.size + self.length


def read(path: Path, frame: Frame) -> bytes:
    """Returns the bytes of a source in this pack, unchecked. Raises OSError."""
    fd = open_regular(path)
    try:
        return os.pread(fd, frame.length, frame.offset + _FRAME.size)
    finally:
        os.close(fd)


def framed(sha256: bytes, data: bytes) -> bytes:
    return _FRAME.pack(len(data), sha256) + data


def new_header() -> bytes:
    return _HEADER.pack(_MAGIC, os.urandom(16))


def size_of(sizes: Iterable[int]) -> int:
    """Returns the size of a pack of sources of these sizes."""
    return _HEADER.size + sum(_FRAME.size + size for size in sizes)


def name_of(number: int) -> str:
    return f"{number:06d}.pack"


class Pack:
    """A pack file. One thread at a time changes it; any number of threads find and read."""

    def __init__(self, path: Path) -> None:
        """`path`: of an existing pack."""
        self.path = path
        self.is_full = False
        self.damaged: frozenset[bytes] = frozenset()  # sources after the index, when it was read
        self.is_torn = False  # some of the bytes after the index were no source's, or damaged
        self._fd = -1
        self._room_end = 0  # the file's size while it is open for writing
        self._indexed = b""  # the entries of the index
        self._indexed_end = 0
        self._new: dict[bytes, Frame] = {}  # sources after the index
        self._end = 0
        self._appends = 0
        self._is_loaded = False
        self._loading = threading.Lock()
        with open(open_regular(path), "rb") as file:  # noqa: PTH123
            start = file.read(_HEADER.size)
        magic, id = _HEADER.unpack(start) if len(start) == _HEADER.size else (b"", b"")
        self.id = id if magic == _MAGIC else b""

    @property
    def index_path(self) -> Path:
        return self.path.with_suffix(".index")

    @property
    def end(self) -> int:
        """The end of the last frame; reading it loads the index."""
        self._load()
        return self._end

    # ------------------------------------------------------------------ reading

    def find(self, sha256: bytes) -> Frame | None:
        """Returns where the source's frame is; None if the pack lacks it. Raises OSError."""
        self._load()
        if (frame := self._new.get(sha256)) is not None:
            return frame
        size, entries = _ENTRY.size, self._indexed
        count = len(entries) // size
        at = bisect_left(
            range(count), sha256, key=lambda n: entries[n * size : n * size + len(sha256)]
        )
        if at == count or entries[at * size : at * size + len(sha256)] != sha256:
            return None
        return Frame(*_ENTRY.unpack_from(entries, at * size)[1:])

    def frames(self) -> list[tuple[bytes, Frame]]:
        """Returns the sha256 and the place of each source, in the order of the file."""
        self._load()
        places = dict(self._new)
        places |= {key: Frame(*place) for key, *place in _ENTRY.iter_unpack(self._indexed)}
        return sorted(places.items(), key=lambda entry: entry[1].offset)

    def read(self, frame: Frame) -> bytes:
        """Returns the source's bytes, unchecked. Raises OSError."""
        return read(self.path, frame)

    def survey(self) -> tuple[list[bytes], bool]:
        """Reads the whole file; returns the sha256s of damaged sources, and whether bytes are lost.

        Lost bytes belong to no source that can be named. Raises OSError.
        """
        scan = _scanned(self._bytes(), _HEADER.size)
        return scan.damaged, scan.has_gap or (_HEADER.size > 0 and not self.id)

    def _load(self) -> None:
        if self._is_loaded:
            return
        with self._loading:
            if not self._is_loaded:
                self._indexed, self._indexed_end = self._read_index()
                scan = _scanned(self._bytes(), self._indexed_end)
                self._new, self._end = dict(scan.frames), scan.end
                self.damaged = frozenset(scan.damaged)
                self.is_torn = bool(scan.damaged) or scan.has_gap
                self._is_loaded = True

    def _bytes(self) -> bytes | mmap.mmap:
        with open(open_regular(self.path), "rb") as file:  # noqa: PTH123
            if not os.fstat(file.fileno()).st_size:
                return b""
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    def _read_index(self) -> tuple[bytes, int]:
        """Returns the index's entries and the end of the bytes that it knows."""
        try:
            data = self.index_path.read_bytes() if self.id else b""
            magic, id, end, crc = _INDEX.unpack_from(data)
            entries = data[_INDEX.size :]
        except (OSError, struct.error):
            return b"", _HEADER.size
        is_sound = (magic, id, crc) == (_INDEX_MAGIC, self.id, zlib.crc32(entries))
        if not is_sound or end > self.path.stat().st_size:
            return b"", _HEADER.size
        return entries, end

    # ------------------------------------------------------------------ writing

    def sync(self) -> None:
        """Makes all frames durable. Raises OSError."""
        self._load()
        if self._new:
            disk.sync_data(self._writable())

    def append(self, sources: Iterable[tuple[bytes, bytes]], *, synced: bool = True) -> list[bytes]:
        """Appends sources, (sha256, bytes) each; returns their sha256s.

        They are durable if they are `synced`, as are all earlier ones; else with the next sync.

        Raises OSError, and then has appended nothing.
        """
        self._load()
        fd, at = self._writable(), self._end
        self._check_untouched(fd)
        frames, parts = dict[bytes, Frame](), list[bytes]()
        for sha256, data in sources:
            parts.append(framed(sha256, data))
            frames[sha256] = Frame(at, len(data))
            at = frames[sha256].end
        # A process that writes once needs no room for more.
        grows = at > self._room_end
        for room in (_ROOM, 0) if grows and self._appends else (0,):
            try:
                durable.write_all_at(fd, b"".join(parts) + bytes(room), self._end)
                reach("blob.appended")
                if synced:
                    disk.sync_data(fd)
            except OSError:
                self._cut()
                if not room:
                    raise
            else:
                break
        if synced:
            reach("blob.synced")
        self._room_end = max(self._room_end, at + room)
        self._appends += 1
        self._new |= frames
        self._end = at
        self.is_full = self.is_full or at >= PACK_BYTES
        return list(frames)

    def _check_untouched(self, fd: int) -> None:
        """Raises OSError if another process has changed the file: sources may be lost."""
        ours, on_path = os.fstat(fd), self.path.lstat()
        if ours.st_size != self._room_end or not os.path.samestat(ours, on_path):
            raise OSError(errno.ESTALE, f"another process has changed {self.path}")

    def take_back(self, sha256s: Iterable[bytes]) -> None:
        """Cuts off these sources, which were the last to be appended."""
        frames = [self._new.pop(sha256) for sha256 in sha256s]
        if frames:
            self._end = min(frame.offset for frame in frames)
            self._cut()

    def _cut(self) -> None:
        """Removes the bytes after the last frame; if that fails, nothing more is appended."""
        try:
            disk.truncate(self._writable(), self._end)
            self._room_end = self._end
        except OSError:
            self.is_full = True

    def _writable(self) -> int:
        if self._fd < 0:
            fd = disk.open(self.path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
            self._fd, self._room_end = fd, os.fstat(fd).st_size
        return self._fd

    def rewrite(self, keep: Callable[[bytes, bytes], bool]) -> Pack | None:
        """Replaces the file by one that has the sources for which `keep` returns True.

        `keep` gets a sha256 and the bytes. Returns the new pack; None if nothing remained, so
        that the file was removed. Raises OSError, and then the old file stands. The caller drops
        this pack, and then makes the change of names durable.
        """
        frames = self.frames()
        self.close()
        # The index goes first: it names the sources, and a resumed purge would not look for it.
        durable.remove(self.index_path)
        before, remaining = self._bytes(), dict[bytes, Frame]()
        with contextlib.suppress(_Empty):
            with durable.replacing(
                self.path, written="blob.rewritten", name_is_durable=False
            ) as file:
                file.write(new_header())
                at = _HEADER.size
                for sha256, frame in frames:
                    data = before[frame.offset + _FRAME.size : frame.end]
                    if keep(sha256, data):
                        file.write(framed(sha256, data))
                        remaining[sha256] = Frame(at, frame.length)
                        at = remaining[sha256].end
                if not remaining:
                    raise _Empty
            return self._replaced(remaining, at)
        reach("blob.rewritten")
        disk.unlink(self.path)
        return None

    def _replaced(self, frames: dict[bytes, Frame], end: int) -> Pack:
        """Returns the pack of these frames that has taken the place of this one."""
        new = Pack(self.path)
        new._new, new._end, new._indexed_end, new._is_loaded = frames, end, _HEADER.size, True
        with contextlib.suppress(OSError):
            new.save_index()
        return new

    def save_index(self) -> None:
        """Writes the index if it lacks many bytes of the pack. Raises OSError.

        A pack that this process has not read has got nothing new.
        """
        if not self._is_loaded or self.end - self._indexed_end < _UNINDEXED_BYTES:
            return
        entries = [_ENTRY.pack(sha256, *astuple(frame)) for sha256, frame in self._new.items()]
        old = self._indexed
        entries += [old[at : at + _ENTRY.size] for at in range(0, len(old), _ENTRY.size)]
        joined = b"".join(sorted(entries))
        head = _INDEX.pack(_INDEX_MAGIC, self.id, self._end, zlib.crc32(joined))
        durable.replace(
            self.index_path, head + joined, written="upkeep.indexed", name_is_durable=False
        )
        # `_new` is emptied last, because other threads look into it first.
        self._indexed, self._indexed_end = joined, self._end
        self._new = {}

    def close(self) -> None:
        """Returns the room that was not used, and closes the file."""
        if self._fd >= 0:
            if self._room_end > self._end:
                self._cut()
            disk.close(self._fd)
            self._fd = -1


class _Empty(Exception):
    """Nothing remains to be written."""


class _PackScan(Struct, frozen=True):
    """The content of a file: its frames, the end of the last one, and its damage.

    `damaged`: sha256s of frames whose bytes are not what they say. `has_gap`: True if there are
    bytes between frames that are none.
    """

    frames: list[tuple[bytes, Frame]]
    end: int
    damaged: list[bytes]
    has_gap: bool


def _scanned(data: bytes | mmap.mmap, start: int) -> _PackScan:
    """Returns the frames from `start` on."""
    frames: list[tuple[bytes, Frame]] = []
    damaged: list[bytes] = []
    has_gap, at, end, searched = False, start, start, 0
    written = start + len(data[start:].rstrip(b"\0"))
    while at < written and searched < _SEARCHED_BYTES:
        frame, sha256 = _frame_at(data, at)
        if frame is None:
            at += 1
            continue
        if hashes.sha256(data[at + _FRAME.size : frame.end]).digest() != sha256:
            at, searched = at + 1, searched + frame.length
            continue
        if at > end:
            before, name = _frame_at(data, end)
            if before is not None and before.end == at:  # its bytes are damaged, not its head
                frames.append((name, before))
                damaged.append(name)
            else:
                has_gap = True
        frames.append((sha256, frame))
        at = end = frame.end
    return _PackScan(frames, end, damaged, has_gap)


def _frame_at(data: bytes | mmap.mmap, at: int) -> tuple[Frame | None, bytes]:
    """Returns the frame that may begin there, unchecked, and its sha256."""
    if at + _FRAME.size > len(data):
        return None, b""
    length, sha256 = _FRAME.unpack_from(data, at)
    frame = Frame(at, length)
    is_possible = length <= SMALL_BYTES and frame.end <= len(data)
    return (frame if is_possible else None), sha256


def is_file(path: Path) -> bool:
    """Returns True for a regular file; a symlink to one is none."""
    try:
        return stat.S_ISREG(os.lstat(path).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False


def numbered(folder: Path) -> list[Path]:
    """Returns the pack files of a folder, the oldest first.

    A file without a whole header holds nothing: the power failed while it was made.
    """
    paths = [path for path in listed(folder, "", ".pack") if path.stem.isdecimal()]
    return [path for path in paths if not is_file(path) or path.stat().st_size >= _HEADER.size]


def create(folder: Path, number: int) -> Pack:
    """Makes an empty pack, whose name is durable. Raises OSError."""
    path = folder / name_of(number)
    with durable.replacing(path) as file:
        file.write(new_header())
    return Pack(path)
