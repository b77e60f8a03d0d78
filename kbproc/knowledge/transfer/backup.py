"""Copies the store at one position while writes continue.

The copy has a temporary name, which no reader takes for a store, until it is complete and durable.
It is a store of the newest format: its small sources are in packs that hold those of the copied
log, each checked as it is copied, and nothing else.

Everything up to a published record is synced and never changes, so no writer has to wait; only
operations that rewrite files (a purge) must not run during a backup.
"""

from __future__ import annotations

import contextlib
import glob
import hashlib
import io
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path
from typing import BinaryIO

from msgspec import Struct

from kbproc.base import durable
from kbproc.base.errors import KbprocError, is_lasting
from kbproc.base.failpoints import reach
from kbproc.base.threads import map_ahead
from kbproc.engine.events import codec
from kbproc.engine.events.agent import AgentDeleted, AgentWritten
from kbproc.engine.events.document import DocDeleted, DocWritten
from kbproc.engine.events.event import Event
from kbproc.engine.events.upkeep import DocPurged
from kbproc.engine.log.record import START
from kbproc.engine.sources import packs
from kbproc.engine.sources.blobs import StoredSource, digest
from kbproc.engine.store.folder import hide_from_git, settings_without
from kbproc.engine.store.store import Store

# Stands for store.toml until the end, so that an incomplete copy can't be opened.
_UNFINISHED = b"format = 0  # a backup that was not finished; it may be removed\n"
_SETTINGS, _SETTINGS_TO_BE = "store.toml", "store.new"
_THREADS = 8
_BLOCK = 1 << 20

Check = Callable[[], None]
Tell = Callable[[int, int, str], None]


class BackupPart(Struct, frozen=True, kw_only=True):
    """A file of the backup: the first `size` bytes of what `open` reads.

    `source`: that file's name. `sha256`: the expected digest of its bytes, where it is known.
    """

    name: str
    source: str
    size: int
    open: Callable[[], BinaryIO]
    sha256: str | None = None

    def copy(self, path: Path) -> list[str]:
        """Copies the file durably; returns its source if that is damaged. Raises OSError."""
        copied = hashlib.sha256()
        with self.open() as source, durable.create(path) as file:
            remaining = self.size
            while remaining and (block := source.read(min(remaining, _BLOCK))):
                file.write(block)
                remaining -= len(block)
                copied.update(block)
            if remaining:
                raise OSError(f"{self.source} is shorter than it was")
        if self.sha256 in {None, copied.hexdigest()}:
            return []
        path.unlink()
        return [str(self.sha256)]


class BackupPack(Struct, frozen=True, kw_only=True):
    """A source pack of the backup, of the sources in `packed`, by sha256. `source`: its name."""

    name: str
    source: str
    packed: dict[str, StoredSource]

    @property
    def size(self) -> int:
        return packs.size_of(source.size for source in self.packed.values())

    def copy(self, path: Path) -> list[str]:
        """Writes the pack durably; returns damaged sources, which it lacks. Raises OSError."""
        damaged = []
        with durable.create(path) as file:
            file.write(packs.new_header())
            for sha256, source in self.packed.items():
                with source.open() as opened:
                    data = opened.read()
                if digest(data) == sha256:
                    file.write(packs.framed(bytes.fromhex(sha256), data))
                else:
                    damaged.append(sha256)
        return damaged


class Copied(Struct, frozen=True, kw_only=True):
    """The files of a finished backup. `damaged`: sources that it lacks because they are."""

    files: int
    bytes: int
    damaged: list[str]


class Inventory(Struct, frozen=True, kw_only=True):
    """The files of a backup at `seq`; `missing` are sources that the store has lost.

    `elsewhere`: agents whose notes are in a folder outside of the store.
    """

    seq: int
    parts: list[BackupPart | BackupPack]
    missing: list[str]
    elsewhere: list[str]

    @property
    def size(self) -> int:
        return sum(part.size for part in self.parts)


def take_stock(store: Store, check: Check) -> Inventory:
    """Lists the files to copy. Raises store.corrupt, store.io.

    Reads the whole log, so that a damaged log is not copied. `check` is called once per record
    and may raise.
    """
    head = store.published.head.position
    sources: dict[str, None] = {}
    notes = _Notes()
    last = START
    for record in store.log.read(to_seq=head.seq):
        check()
        last = record.position
        for event in codec.decode(record.events):
            if isinstance(event, DocWritten) and event.forgotten is None:
                sources[event.source_sha256] = None
            notes.follow(event)
    if last != head:
        raise KbprocError(
            "store.corrupt",
            f"The log does not hold record {head.seq} as readers see it.",
            detail={"expected_seq": head.seq, "last_seq": last.seq},
        )
    store.blobs.fetch(sources)
    blobs = {sha256: store.blobs.stored(sha256) for sha256 in sources}
    parts = [
        _settings(store),
        *_log_parts(store, head.seq),
        *_source_parts({sha256: blob for sha256, blob in blobs.items() if blob is not None}),
        *(_part(store, path) for path in sorted((store.folder / "vectors").glob("*.pack"))),
        *notes.parts(store),
    ]
    missing = [sha256 for sha256, blob in blobs.items() if blob is None]
    return Inventory(seq=head.seq, parts=parts, missing=missing, elsewhere=notes.elsewhere)


class _Notes:
    """The notes according to the log, with which a sync of the copy compares its files."""

    def __init__(self) -> None:
        self._live: dict[int, DocWritten] = {}
        self._folders: dict[str, str | None] = {}

    def follow(self, event: Event) -> None:
        match event:
            case DocWritten() if event.doc_type == "note":
                self._live[event.id] = event
            case DocDeleted() | DocPurged():
                for id in event.concerns().documents:
                    self._live.pop(id, None)
            case AgentWritten():
                self._folders[event.slug] = event.folder
            case AgentDeleted():
                self._folders.pop(event.slug, None)

    @property
    def elsewhere(self) -> list[str]:
        return sorted(slug for slug, folder in self._folders.items() if folder is not None)

    def parts(self, store: Store) -> Iterator[BackupPart]:
        """Yields the files of the agents' own folders, made from the sources that are not lost."""
        for note in self._live.values():
            agent, source = note.kb.partition("/")[2], store.blobs.stored(note.source_sha256)
            if self._folders.get(agent, "") is None and source is not None:
                yield BackupPart(
                    name=f"notes/{agent}/{note.source_id}.md",
                    source=note.source_sha256,
                    size=note.size_bytes,
                    open=source.open,
                    sha256=note.source_sha256,
                )


def _part(store: Store, path: Path) -> BackupPart:
    return BackupPart(
        name=str(path.relative_to(store.folder)),
        source=path.name,
        size=path.stat().st_size,
        open=lambda: path.open("rb"),
    )


def _source_parts(sources: dict[str, StoredSource]) -> Iterator[BackupPart | BackupPack]:
    """Yields a file for each larger source, and packs of the small ones."""
    packed: dict[str, StoredSource] = {}
    size, number = 0, count(1)
    for sha256, source in sources.items():
        if source.size > packs.SMALL_BYTES:
            yield BackupPart(
                name=f"sources/large/{sha256}",
                source=sha256,
                size=source.size,
                open=source.open,
                sha256=sha256,
            )
            continue
        packed[sha256] = source
        size += source.size
        if size >= packs.PACK_BYTES:
            yield _pack(next(number), packed)
            packed, size = {}, 0
    if packed:
        yield _pack(next(number), packed)


def _pack(number: int, packed: dict[str, StoredSource]) -> BackupPack:
    name = packs.name_of(number)
    return BackupPack(name=f"sources/{name}", source=name, packed=packed)


def _settings(store: Store) -> BackupPart:
    """Returns the settings without the shared log, so that a copy never joins the cluster."""
    data = settings_without(store.folder / _SETTINGS, "log")
    return BackupPart(
        name=_SETTINGS, source=_SETTINGS, size=len(data), open=lambda: io.BytesIO(data)
    )


def _log_parts(store: Store, seq: int) -> list[BackupPart]:
    return [
        BackupPart(name=f"log/{file.name}", source=file.name, size=file.size, open=file.open)
        for file in store.log.as_files(seq)
    ]


def copy(inventory: Inventory, target: Path, *, tell: Tell, check: Check) -> Copied:
    """Copies to `target`, which appears complete or not at all.

    A damaged source is left out, as a missing one is. `tell` gets bytes copied, bytes in all and
    a file's name; `check` may raise. Raises store.io, resource.already_exists; then no files
    remain.
    """
    try:
        _remove_leftovers(target)
        with unfinished(target) as folder:
            copied = _copy_all(inventory, folder, tell, check)
            reach("backup.copied")
            _finish(folder, target)
    except OSError as error:
        raise KbprocError(
            "store.io",
            f"The backup {target} could not be written: {error.strerror or error}.",
            lasting=is_lasting(error),
        ) from error
    return copied


@contextlib.contextmanager
def unfinished(target: Path) -> Iterator[Path]:
    """Yields a new folder beside `target`, locked until it gets its name or the process ends."""
    folder = Path(tempfile.mkdtemp(prefix=f"{target.name[:100]}.partial-", dir=target.parent))
    fd = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        durable.lock(fd)
        durable.replace(folder / _SETTINGS, _UNFINISHED)
        yield folder
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    finally:
        os.close(fd)


def _remove_leftovers(target: Path) -> None:
    """Removes unfinished backups to the same target whose process died.

    Other folders with such a name stay.
    """
    for folder in target.parent.glob(f"{glob.escape(target.name[:100])}.partial-*"):
        if not _is_unfinished(folder):
            continue
        fd = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
        with contextlib.suppress(BlockingIOError):
            durable.lock(fd)
            shutil.rmtree(folder, ignore_errors=True)
        os.close(fd)


def _is_unfinished(folder: Path) -> bool:
    try:
        with (folder / _SETTINGS).open("rb") as file:
            return file.read(len(_UNFINISHED) + 1) == _UNFINISHED
    except OSError:
        return False


def _copy_all(inventory: Inventory, folder: Path, tell: Tell, check: Check) -> Copied:
    """Copies several files at once, because syncing small files takes longer than writing them."""
    for part in inventory.parts:
        _make_folder((folder / part.name).parent)
    done, damaged = 0, list[str]()
    copies = map_ahead(partial(_copy, folder), inventory.parts, threads=_THREADS, name="backup")
    with contextlib.closing(copies):
        for part, lost in zip(inventory.parts, copies, strict=True):
            check()
            damaged += lost
            done += part.size
            tell(done, inventory.size, part.source)
    folders = (Path(below) for below, _, _ in os.walk(folder))
    synced = map_ahead(durable.sync_folder, folders, threads=_THREADS, name="backup")
    with contextlib.closing(synced):
        for _ in synced:
            check()
    copied = [path for part in inventory.parts if (path := _path_of(folder, part)).exists()]
    sizes = [path.stat().st_size for path in copied]
    return Copied(files=len(sizes), bytes=sum(sizes), damaged=damaged)


def _copy(folder: Path, part: BackupPart | BackupPack) -> list[str]:
    return part.copy(_path_of(folder, part))


def _path_of(folder: Path, part: BackupPart | BackupPack) -> Path:
    return folder / (part.name if part.name != _SETTINGS else _SETTINGS_TO_BE)


def _make_folder(folder: Path) -> None:
    """Makes a folder and its parents with mode 0700, which mkdir's `parents` would not."""
    if not folder.is_dir():
        _make_folder(folder.parent)
        folder.mkdir(mode=0o700)


def _finish(folder: Path, target: Path) -> None:
    """Turns the copy into a store, and then gives it its name."""
    if os.path.lexists(target):
        raise KbprocError(
            "resource.already_exists",
            f"{target} exists and is not overwritten.",
            field="$.params.path",
        )
    hide_from_git(folder)
    durable.rename(folder / _SETTINGS_TO_BE, folder / _SETTINGS)
    durable.rename(folder, target)
