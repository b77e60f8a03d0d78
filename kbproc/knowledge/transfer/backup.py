"""A copy of the store at one position, taken while writes go on.

Owns: what belongs to a backup, copying it under a name that nothing can mistake
for a store, and giving it its own name once it is whole and durable.
Refuses to know: who asks for it. Restoring is opening the folder: the views are
made from the log, as ever.

Everything up to a published record is synced and never changes, so no writer
has to wait; only what rewrites files (a purge) must not run beside a backup.
"""

from __future__ import annotations

import contextlib
import fcntl
import glob
import hashlib
import io
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import BinaryIO

from msgspec import Struct

from kbproc.base import durable
from kbproc.base.errors import KbprocError, is_lasting
from kbproc.base.failpoints import reach
from kbproc.events import codec
from kbproc.events.agent import AgentDeleted, AgentWritten
from kbproc.events.document import DocDeleted, DocWritten
from kbproc.events.event import Event
from kbproc.events.upkeep import DocPurged
from kbproc.log.record import START
from kbproc.settings import toml
from kbproc.sources.blobs import Stored
from kbproc.store.store import Store

# Stands for store.toml until the end: opening what is half there is refused.
_UNFINISHED = b"format = 0  # a backup that was not finished; it may be removed\n"
_SETTINGS, _SETTINGS_TO_BE = "store.toml", "store.new"
_AT_ONCE = 8
_BLOCK = 1 << 20

Check = Callable[[], None]
Tell = Callable[[int, int, str], None]


class Part(Struct, frozen=True, kw_only=True):
    """A file of the backup: the first `size` bytes of what `open` reads.

    `source`: that file's name. `sha256`: what its bytes must have, if that is known.
    """

    name: str
    source: str
    size: int
    open: Callable[[], BinaryIO]
    sha256: str | None = None


class Inventory(Struct, frozen=True, kw_only=True):
    """What a backup at `seq` consists of; `missing` are sources that the store has lost.

    `elsewhere`: agents whose notes lie in a folder outside of the store.
    """

    seq: int
    parts: list[Part]
    missing: list[str]
    elsewhere: list[str]

    @property
    def size(self) -> int:
        return sum(part.size for part in self.parts)


def take_stock(store: Store, check: Check) -> Inventory:
    """Reads the whole log, so that no damaged one is copied. Raises store.corrupt, store.io.

    `check` is called now and then and may raise.
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
    for sha256 in sources if store.log.is_shared else ():
        with contextlib.suppress(KbprocError):  # it is missing, then
            store.blobs.get(sha256)
    blobs = {sha256: store.blobs.stored(sha256) for sha256 in sources}
    parts = [
        _settings(store),
        *_log_parts(store, head.seq),
        *(_source(store, sha256, blob) for sha256, blob in blobs.items() if blob is not None),
        *(_part(store, path) for path in sorted((store.folder / "vectors").glob("*.pack"))),
        *notes.parts(store),
    ]
    missing = [sha256 for sha256, blob in blobs.items() if blob is None]
    return Inventory(seq=head.seq, parts=parts, missing=missing, elsewhere=notes.elsewhere)


class _Notes:
    """Notes as the log knows them, which is what a sync of the copy holds its files against."""

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

    def parts(self, store: Store) -> Iterator[Part]:
        """Files of the agents' own folders, made of the sources; those that are lost are not."""
        for note in self._live.values():
            agent, source = note.kb.partition("/")[2], store.blobs.stored(note.source_sha256)
            if self._folders.get(agent, "") is None and source is not None:
                yield Part(
                    name=f"notes/{agent}/{note.source_id}.md",
                    source=note.source_sha256,
                    size=note.size_bytes,
                    open=source.open,
                    sha256=note.source_sha256,
                )


def _part(store: Store, path: Path) -> Part:
    return Part(
        name=str(path.relative_to(store.folder)),
        source=path.name,
        size=path.stat().st_size,
        open=lambda: path.open("rb"),
    )


def _source(store: Store, sha256: str, blob: Stored) -> Part:
    path = store.blobs.path(sha256)
    return Part(
        name=str(path.relative_to(store.folder)),
        source=path.name,
        size=blob.size,
        open=blob.open,
        sha256=sha256,
    )


def _settings(store: Store) -> Part:
    """What is opened from a backup goes on alone, though the store shares its log."""
    if not store.settings.get("log"):
        return _part(store, store.folder / _SETTINGS)
    told = toml.with_table(store.folder / _SETTINGS, "log", {}, {})
    return Part(name=_SETTINGS, source=_SETTINGS, size=len(told), open=lambda: io.BytesIO(told))


def _log_parts(store: Store, seq: int) -> list[Part]:
    return [
        Part(name=f"log/{file.name}", source=file.name, size=file.size, open=file.open)
        for file in store.log.as_files(seq)
    ]


def copy(inventory: Inventory, target: Path, *, tell: Tell, check: Check) -> list[str]:
    """Copies to `target`, which appears whole or not at all; returns damaged sources.

    A damaged source is left out, as a missing one is. `tell` gets bytes copied, bytes
    in all and a file's name; `check` may raise. Raises store.io with nothing left
    behind, resource.already_exists.
    """
    try:
        _remove_leftovers(target)
        with unfinished(target) as folder:
            damaged = _copy_all(inventory, folder, tell, check)
            reach("backup.copied")
            _finish(folder, target)
    except OSError as error:
        raise KbprocError(
            "store.io",
            f"The backup {target} could not be written: {error.strerror or error}.",
            lasting=is_lasting(error),
        ) from error
    return damaged


@contextlib.contextmanager
def unfinished(target: Path) -> Iterator[Path]:
    """A new folder beside `target`, held by a lock for as long as this process lives."""
    folder = Path(tempfile.mkdtemp(prefix=f"{target.name[:100]}.partial-", dir=target.parent))
    held = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        durable.replace(folder / _SETTINGS, _UNFINISHED)
        yield folder
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    finally:
        os.close(held)


def _remove_leftovers(target: Path) -> None:
    """Of backups to the same place whose process died; never what merely has such a name."""
    for found in target.parent.glob(f"{glob.escape(target.name[:100])}.partial-*"):
        if not _is_unfinished(found):
            continue
        held = os.open(found, os.O_RDONLY | os.O_CLOEXEC)
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(found, ignore_errors=True)
        os.close(held)


def _is_unfinished(folder: Path) -> bool:
    try:
        with (folder / _SETTINGS).open("rb") as file:
            return file.read(len(_UNFINISHED) + 1) == _UNFINISHED
    except OSError:
        return False


def _copy_all(inventory: Inventory, folder: Path, tell: Tell, check: Check) -> list[str]:
    """Some files at once: the disk takes longer over syncing small ones than over writing."""
    for part in inventory.parts:
        _make_folder((folder / part.name).parent)
    done, damaged = 0, []
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="backup") as pool:
        try:
            copies = pool.map(partial(_copy, folder), inventory.parts)
            for part, sha256 in zip(inventory.parts, copies, strict=True):
                check()
                if part.sha256 not in {None, sha256}:
                    (folder / part.name).unlink()
                    damaged.append(str(part.sha256))
                done += part.size
                tell(done, inventory.size, part.source)
            for _ in pool.map(
                durable.sync_folder, [Path(below) for below, _, _ in os.walk(folder)]
            ):
                check()
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return damaged


def _copy(folder: Path, part: Part) -> str | None:
    """Durable when it returns the sha256 of what was copied, where it matters."""
    copied = folder / (part.name if part.name != _SETTINGS else _SETTINGS_TO_BE)
    digest = None if part.sha256 is None else hashlib.sha256()
    with part.open() as source, durable.create(copied) as file:
        left = part.size
        while left and (block := source.read(min(left, _BLOCK))):
            file.write(block)
            left -= len(block)
            if digest is not None:
                digest.update(block)
        if left:
            raise OSError(f"{part.source} is shorter than it was")
    return None if digest is None else digest.hexdigest()


def _make_folder(folder: Path) -> None:
    """mkdir's own `parents` would leave those open to others."""
    if not folder.is_dir():
        _make_folder(folder.parent)
        folder.mkdir(mode=0o700)


def _finish(folder: Path, target: Path) -> None:
    """From here on it is a store, and then it gets its name."""
    if os.path.lexists(target):
        raise KbprocError(
            "resource.already_exists",
            f"{target} exists and is not overwritten.",
            field="$.params.path",
        )
    durable.rename(folder / _SETTINGS_TO_BE, folder / _SETTINGS)
    durable.rename(folder, target)
