"""Stores the bytes of sources, each distinct source once, by sha256.

A small source lives in a pack (see packs.py), a larger one in the file
`STORE/sources/large/abcd…`. Both are durable before a record of the log names them, unless the
record holds the same text:

1. `put` returns a new source. It holds a small source's bytes in memory; a larger one is written
   and synced at once, outside of the store's lane, under a temporary name.
2. The writer's decision names the source. A refused write ends here: the object goes, and a file
   under a temporary name goes with it.
3. `adding` appends the small sources of all records that are about to be written to a pack, with
   one sync, and gives the larger ones their names. Then the log is written. If the log refuses,
   the pack is cut back to where it ended.

If the record holds it, the log's sync is the only one of the write. `sync` comes before the catalog
takes such a record in. So a source that a power failure has lost belongs to a record that the
catalog lacks, and `restore` stores it again with the record's text.

So a process that dies leaves at most sources that no record names, at the end of a pack.
`compact` drops those, and `erase` drops the sources of a purge: the pack is written anew beside
the old one, and replaces it by renaming. A pack has no other way to lose bytes.
"""

from __future__ import annotations

import contextlib
import io
import os
import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, Protocol

from msgspec import Struct

from kbproc.base import disk, durable, hashes
from kbproc.base.errors import KbprocError
from kbproc.base.failpoints import reach
from kbproc.base.paths import open_regular
from kbproc.engine.sources import packs
from kbproc.engine.sources.packs import SMALL_BYTES, Frame, Pack, is_file

# The share of a pack's bytes that no record names from which on the pack is written anew.
DEAD_SHARE = 0.25
_BLOCK = 1 << 20


def digest(data: bytes) -> str:
    return hashes.sha256(data).hexdigest()


def erased_error() -> KbprocError:
    """Returns the error for earlier content that store.compact has erased."""
    return KbprocError(
        "resource.not_found",
        "The document's content of that time is gone: store.compact has erased it.",
        hint="Only backups that were made before still have it.",
    )


@contextlib.contextmanager
def _as_store_io() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        message = f"The source could not be stored: {error.strerror}."
        raise KbprocError("store.io", message) from error


class SharedSources(Protocol):
    """A place that several machines put sources into and get them from. Raises store.io."""

    def put(self, name: str, data: bytes) -> None: ...

    def get(self, name: str) -> bytes | None: ...


class StoredSource(Struct, frozen=True):
    """The size of a source in bytes, and a function that opens it."""

    size: int
    open: Callable[[], BinaryIO]


class _SourcePlace(Struct, frozen=True):
    """The place of a stored source: a frame of a pack, or a file of its own."""

    path: Path
    pack: bytes = b""  # the pack's id, which a pack that is written anew does not keep
    frame: Frame | None = None

    @property
    def size(self) -> int:
        """The source's size; raises OSError if its file is gone."""
        size = self.path.stat().st_size
        return size if self.frame is None else self.frame.length

    def read(self) -> bytes:
        """Returns the bytes, unchecked. Raises OSError, also for a symlink."""
        if self.frame is not None:
            return packs.read(self.path, self.frame)
        with self.open() as file:
            return file.read()

    def open(self) -> BinaryIO:
        """Opens the source. Raises OSError."""
        if self.frame is not None:
            return io.BytesIO(self.read())
        return open(open_regular(self.path), "rb")  # noqa: PTH123


class NewSource:
    """A source that no record names yet.

    `data`: a small source's bytes. `file`: a larger one's file, which goes with this object unless
    it gets the source's name. A source that was stored already has neither. `is_in_record`: the
    chunks of the record that will name it are the same text.
    """

    def __init__(
        self,
        name: str,
        data: bytes | None = None,
        file: Path | None = None,
        *,
        is_in_record: bool = False,
    ) -> None:
        self.name = name
        self.data = data
        self.file = file
        self.is_in_record = is_in_record
        if file is not None:
            import weakref

            weakref.finalize(self, _remove, file)


class Blobs:
    """The sources of a store. Its folder is made on first use. Any thread may use it.

    `check` raises store.io if the store's folder has been replaced by another one.
    """

    def __init__(
        self,
        store: Path,
        elsewhere: SharedSources | None = None,
        *,
        read_only: bool = False,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        self.folder = store / "sources"
        self.elsewhere = elsewhere
        self._large = self.folder / "large"
        self._read_only = read_only
        self._check = check
        self._packs: list[Pack] = []  # replaced and never changed, because any thread reads it
        self._changing = threading.RLock()
        self._unsynced: dict[str, bytes] = {}  # sources at the end of `_unsynced_pack`
        self._unsynced_pack: Pack | None = None  # None after a failed sync
        # Sources of a purge that is under way: they must not be fetched here again.
        self.being_purged: frozenset[str] = frozenset()

    def load(self, *, is_synced: bool = False) -> None:
        """Finds the packs; makes durable what an earlier process left in them. Raises store.io.

        `is_synced`: the earlier process has synced everything, and was closed.
        """
        try:
            self._packs = [Pack(path) for path in packs.numbered(self.folder)]
            if not (self._read_only or is_synced):
                for pack in self._packs[-1:]:
                    pack.sync()
        except OSError as error:
            if self._read_only and isinstance(error, PermissionError):
                return  # the owner of the store has it open; the other sources can be read
            message = f"The store's sources can't be read: {error.strerror}."
            raise KbprocError("store.io", message) from error

    # ------------------------------------------------------------------ adding

    def put(self, data: bytes, *, is_in_record: bool = False) -> NewSource:
        """Returns the source for a record to name; see `adding` and NewSource. Raises store.io.

        A source that is refused later leaves nothing behind.
        """
        name = digest(data)
        if self.elsewhere is not None:
            self.elsewhere.put(name, data)
        with _as_store_io():
            reach("blob.write")
            if len(data) <= SMALL_BYTES or self._read_only:
                return NewSource(name, data, is_in_record=is_in_record)
            if self._place(name) is not None:
                return NewSource(name)
            return self._written(name, data)

    def _written(self, name: str, data: bytes) -> NewSource:
        """Writes a larger source under a temporary name, durably. Raises OSError."""
        self._check()
        durable.make_folder(self._large)
        path = self._large / f"{os.urandom(8).hex()}.tmp"
        with durable.create(path) as file:
            file.write(data)
            reach("blob.written")
        return NewSource(name, file=path)

    @contextlib.contextmanager
    def adding(self, sources: Iterable[NewSource], *, may_wait: bool = False) -> Iterator[None]:
        """Stores sources durably, for records that are written within the block.

        `may_wait`: sources whose text the records hold are not synced, because the caller calls
        `sync` before the catalog takes the records in.

        If the block fails, it takes back those that it has stored. Raises store.io, and then
        stores nothing; also for a source that was stored when it was put and is erased now.
        """
        with self._changing:
            with _as_store_io():
                new = {source.name: source for source in sources if not self._has(source)}
                small = {n: source.data for n, source in new.items() if source.data is not None}
                large = {n: source.file for n, source in new.items() if source.file is not None}
            if len(small) + len(large) < len(new):
                raise KbprocError(
                    "store.io",
                    "The source was erased while it was being added, with another document of the "
                    "same bytes.",
                    hint="Send the request again.",
                )
            waits = may_wait and all(source.is_in_record for source in new.values())
            with self._appended(small, synced=not waits), self._named(large):
                yield

    @contextlib.contextmanager
    def _appended(self, sources: dict[str, bytes], *, synced: bool = True) -> Iterator[None]:
        """Appends sources to the last pack; cuts them off again if the block fails."""
        if not sources:
            yield
            return
        with _as_store_io():
            pack = self._last_pack()
            with self._syncing(pack) if synced else contextlib.nullcontext():
                added = pack.append(_by_key(sources), synced=synced)
        try:
            yield
        except BaseException:
            pack.take_back(added)
            raise
        if not synced:
            self._unsynced |= sources
            self._unsynced_pack = pack

    def sync(self) -> None:
        """Makes the sources durable that `adding` has not synced. Raises store.io."""
        with self._changing, _as_store_io():
            if not self._unsynced:
                return
            pack = self._last_pack()
            with self._syncing(pack):
                pack.sync()

    @contextlib.contextmanager
    def _syncing(self, pack: Pack) -> Iterator[None]:
        """Notes that the block makes a pack durable.

        After a failed sync it is unknown which bytes the disk has, so that the sources that were
        waiting for it are appended to another pack; see `_last_pack`.
        """
        try:
            yield
        except OSError:
            pack.is_full = pack.is_full or bool(self._unsynced)
            self._unsynced_pack = None
            raise
        self._unsynced, self._unsynced_pack = {}, None

    @contextlib.contextmanager
    def _named(self, files: dict[str, Path]) -> Iterator[None]:
        """Gives files the names of their sources; removes them if the block fails."""
        try:
            if files:
                with _as_store_io():
                    for name, file in files.items():
                        disk.rename(file, self._large / name)
                    reach("blob.named")
                    durable.sync_folder(self._large)
            yield
        except BaseException:
            for name in files:
                _remove(self._large / name)
            raise

    def _last_pack(self) -> Pack:
        """Returns the pack to append to, which is a new one if the last one is full.

        It has all sources that are not synced.
        """
        pack = self._pack_with_room()
        if self._unsynced and self._unsynced_pack is not pack:
            pack.append(_by_key(self._unsynced))
            self._unsynced = {}
        return pack

    def _pack_with_room(self) -> Pack:
        last = self._packs[-1] if self._packs else None
        if last is not None and not last.is_full and last.end < packs.PACK_BYTES:
            return last
        self._check()
        durable.make_folder(self.folder)
        number = 1
        if last is not None:
            last.close()
            last.save_index()
            number = int(last.path.stem) + 1
        pack = packs.create(self.folder, number)
        self._packs = [*self._packs, pack]
        return pack

    def heal(self, name: str, data: bytes) -> None:
        """Stores `data`, which a record names, again if its source is lost. Raises store.io."""
        with _as_store_io():
            if self._read_only or self._place(name) is not None:
                return
            is_small = len(data) <= SMALL_BYTES
            source = NewSource(name, data) if is_small else self._written(name, data)
        with self._changing:
            if name not in self.being_purged:
                with self.adding([source]):
                    pass

    def is_sound(self, name: str) -> bool:
        """Returns False if the source is missing, or was damaged when its pack was read."""
        key = bytes.fromhex(name)
        is_there = self._place(name) is not None  # this reads the packs
        return is_there and not any(key in pack.damaged for pack in self._packs)

    def restore(self, lost: dict[str, bytes]) -> None:
        """Stores sources again that a power failure has lost. Raises store.io.

        What it left of them at the end of the last pack goes.
        """
        with self._changing, _as_store_io():
            self._check()
            keys = {bytes.fromhex(name) for name in lost}
            for pack in self._packs[-1:]:
                if pack.is_torn and pack.damaged <= keys:
                    self._rewrite(pack, lambda key, data: hashes.sha256(data).digest() == key)
            with self._appended(lost):
                pass

    # ------------------------------------------------------------------ reading

    def _place(self, name: str) -> _SourcePlace | None:
        """Returns where the source is stored; None if it is not."""
        place = self._place_in_pack(name)
        if place is None and is_file(large := self._large / name):
            return _SourcePlace(large)
        return place

    def _place_in_pack(self, name: str) -> _SourcePlace | None:
        key = bytes.fromhex(name)
        for pack in reversed(self._packs):
            if (frame := pack.find(key)) is not None:
                return _SourcePlace(pack.path, pack.id, frame)
        return None

    def _has(self, source: NewSource) -> bool:
        """Returns True if the source is stored. One that is in memory is small, and in a pack."""
        find = self._place if source.data is None else self._place_in_pack
        return find(source.name) is not None

    def stored(self, name: str) -> StoredSource | None:
        """Returns the stored source, without a check for damage; None if it is not here."""
        with contextlib.suppress(FileNotFoundError):
            if (place := self._place(name)) is not None:
                return StoredSource(place.size, place.open)
        return None

    def _read(self, name: str) -> bytes:
        """Returns the source's bytes. Raises store.corrupt for damaged ones, OSError.

        It looks up the place again, because another thread may have moved the source; so may the
        owner of a store that is only read here.
        """
        data, before = None, None
        while (place := self._place(name)) is not None and place != before:
            with contextlib.suppress(FileNotFoundError):
                data = place.read()
                if digest(data) == name:
                    return data
            before = place
            if self._read_only:
                self.load()
        if data is None or place is None:
            return _SourcePlace(self._large / name).read()  # raises an error that tells why
        raise KbprocError(
            "store.corrupt", f"The source {name[:12]}… is damaged.", detail={"blob": name}
        )

    def get(self, name: str) -> bytes:
        """Returns the source's bytes. Raises store.corrupt if they are missing or damaged.

        Raises resource.not_found for the empty name, which stands for erased content, and for a
        missing source that is being purged. Raises store.io.
        """
        if not name:
            raise erased_error()
        try:
            data = self._read(name)
        except FileNotFoundError as error:
            if name in self.being_purged:
                raise erased_error() from error
            data = b"" if self.elsewhere is None else self.elsewhere.get(name) or b""
            if digest(data) != name:
                raise KbprocError(
                    "store.corrupt", f"The source {name[:12]}… is missing.", detail={"blob": name}
                ) from error
            self.heal(name, data)
        except OSError as error:
            raise KbprocError(
                "store.io", f"The source {name[:12]}… could not be read: {error.strerror}."
            ) from error
        return data

    def fetch(self, names: Iterable[str]) -> None:
        """Brings sources here that lie elsewhere only; one that can't be brought stays missing."""
        for sha256 in names if self.elsewhere is not None else ():
            with contextlib.suppress(KbprocError):
                self.get(sha256)

    def broken(self, names: Iterable[str], *, deep: bool) -> list[str]:
        """Returns the names of sources that are missing or, if `deep`, damaged."""
        return [name for name in names if not _is_there(self, name, deep=deep)]

    def names(self) -> list[str]:
        """Returns the names of all sources that are stored here, sorted. Raises store.io."""
        with _as_store_io(), self._changing:
            keys = {key for pack in self._packs for key, _ in pack.frames()}
            files = self._large_files()
        return sorted({*(key.hex() for key in keys), *(path.name for path in files)})

    def _large_files(self) -> list[Path]:
        if not self._large.is_dir():
            return []
        return [path for path in self._large.iterdir() if path.suffix != ".tmp" and is_file(path)]

    # ------------------------------------------------------------------ erasing

    def erase(self, names: Collection[str]) -> int:
        """Removes the bytes and the names for good; returns how many bytes. Raises OSError."""
        with self._changing:
            self._check()
            sizes = [source.size for name in names if (source := self.stored(name)) is not None]
            keys = {bytes.fromhex(name) for name in names}
            for pack in self._packs:
                if any(pack.find(key) is not None for key in keys):
                    # A frame whose name is damaged may hold the bytes as well.
                    self._rewrite(
                        pack,
                        lambda key, data: not keys & {key, hashes.sha256(data).digest()},
                    )
            for name in names:
                while (place := self._place(name)) is not None:
                    disk.unlink(place.path)
                    durable.sync_folder(place.path.parent)
            return sum(sizes)

    def _rewrite(self, pack: Pack, keep: Callable[[bytes, bytes], bool]) -> None:
        """Replaces a pack by one that has what `keep` returns True for. Raises OSError."""
        self.sync()
        new = pack.rewrite(keep)
        replaced = (new if one is pack else one for one in self._packs)
        self._packs = [one for one in replaced if one is not None]
        # Last, because the new file is the one that is there, whether this fails or not.
        durable.sync_folder(self.folder)

    def compact(self, named: Collection[str]) -> None:
        """Writes packs anew of which more than DEAD_SHARE are sources not in `named`.

        A source that is twice there counts once. A pack with damage stays as it is. Call it while
        no record is written. Raises OSError.
        """
        with self._changing:
            self._check()
            live = {bytes.fromhex(name) for name in named}
            for pack in self._packs:
                places = ((key, self._place(key.hex())) for key, _ in pack.frames() if key in live)
                here = {key for key, place in places if place and place.path == pack.path}
                used = sum(frame.end - frame.offset for key, frame in pack.frames() if key in here)
                if used < pack.end * (1 - DEAD_SHARE) and pack.survey() == ([], False):
                    reach("upkeep.compacting")
                    self._rewrite(pack, lambda key, data, here=here: key in here)  # type: ignore[misc]

    # ------------------------------------------------------------------ upkeep

    def tidy(self) -> None:
        """Saves the index of the last pack, if that has grown much. Raises store.io."""
        self.sync()
        with self._changing, _as_store_io():
            if not self._read_only and self._packs:
                self._check()
                self._packs[-1].save_index()

    def close(self) -> None:
        """Closes the packs. Raises store.io."""
        self.sync()
        with self._changing, _as_store_io():
            for pack in self._packs:
                pack.close()
        self.tidy()

    # ------------------------------------------------------------------ damage

    def damaged(self) -> list[str]:
        """Returns the names of damaged sources, and of packs with bytes that are no source's.

        Reads everything. Raises OSError.
        """
        names = [path.name for path in self._damaged_files()]
        for pack in self._packs:
            keys, has_gap = pack.survey()
            names += [key.hex() for key in keys]
            names += [pack.path.name] if has_gap else []
        return names

    def _damaged_files(self) -> list[Path]:
        files = self._large_files()
        alone = (path for path in files if self._place(path.name) == _SourcePlace(path))
        return [path for path in alone if _sha256_of(path) != path.name]

    def set_aside(self, folder: Path) -> None:
        """Moves damaged sources to `folder`, and copies there a pack with bytes that are none.

        Raises OSError.
        """
        for file in self._damaged_files():
            durable.rename(file, folder / file.name)
        for pack in self._packs:
            damaged, has_gap = pack.survey()
            if has_gap:
                durable.replace(folder / pack.path.name, pack.path.read_bytes())
            frames = dict(pack.frames())
            for key in damaged:
                durable.replace(folder / key.hex(), pack.read(frames[key]))
            if damaged or has_gap:
                self._rewrite(pack, lambda key, data: hashes.sha256(data).digest() == key)

    def sweep(self) -> None:
        """Removes temporary files of processes that died while writing. Raises OSError."""
        for path in (*self.folder.glob("*.tmp"), *self._large.glob("*.tmp")):
            durable.remove(path)


def _by_key(sources: dict[str, bytes]) -> Iterator[tuple[bytes, bytes]]:
    return ((bytes.fromhex(name), data) for name, data in sources.items())


def _is_there(blobs: Blobs, name: str, *, deep: bool) -> bool:
    if not deep:
        return blobs.elsewhere is not None or blobs.stored(name) is not None
    try:
        blobs.get(name)
    except KbprocError:
        return False
    return True


def _sha256_of(path: Path) -> str:
    hashed = hashes.sha256()
    with open(open_regular(path), "rb") as file:  # noqa: PTH123
        while block := file.read(_BLOCK):
            hashed.update(block)
    return hashed.hexdigest()


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        durable.remove(path)
