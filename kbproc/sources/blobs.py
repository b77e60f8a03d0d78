"""The sources' bytes, kept once by their sha256.

Owns: STORE/blobs/ab/abcd…, written atomically, and durable before a record names them. Stores of
before have them one folder deeper.
Refuses to know: which document a blob belongs to.

Whoever puts a source holds it. Small ones are nowhere else until `settle`, which the store calls
before it writes a record: so those of many writes share their syncs. They go into the journal then
(see base/checksums/journal.py), and are read from memory until their files are made, many together.
A larger source is stored at once. What nobody holds any more and no record has named is erased.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import logging
import os
import stat
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple, Protocol

from kbproc.base import durable
from kbproc.base.checksums.journal import Journal
from kbproc.base.errors import KbprocError
from kbproc.base.failpoints import reach
from kbproc.base.threads import Held, Holding, at_once

_SMALL_BYTES = 64 << 10
_WRITERS = 8  # a disk syncs so many files in little more time than one
_MANY = 64  # files that are worth a sync of all that any process has written

_logger = logging.getLogger(__name__)


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _read(path: Path) -> bytes:
    """Raises OSError, for a symlink, too."""
    with open(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW), "rb") as file:  # noqa: PTH123
        return file.read()


def forgotten() -> KbprocError:
    """What a content of the past is answered with once store.compact has erased it."""
    return KbprocError(
        "resource.not_found",
        "What the document held then is forgotten: store.compact has erased it.",
        hint="Only backups that were made before still have it.",
    )


@contextlib.contextmanager
def _as_store_io() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        message = f"The source could not be stored: {error.strerror}."
        raise KbprocError("store.io", message) from error


def _is_file(place: str) -> bool:
    try:
        return stat.S_ISREG(os.lstat(place).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False


class _Places:
    """Which file is whose: a folder for each first two digits of a sha256."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._flat: set[str] = set()  # folders without folders in them

    def folder(self, sha256: str) -> str:
        return f"{self._root}/{sha256[:2]}"

    def new(self, sha256: str) -> str:
        return f"{self.folder(sha256)}/{sha256}"

    def found(self, sha256: str) -> str | None:
        """Where its file is; a link is none."""
        folder, places = self.folder(sha256), [self.new(sha256)]
        try:
            places += [] if self._is_flat(folder) else [f"{folder}/{sha256[2:4]}/{sha256}"]
        except FileNotFoundError:
            return None
        return next(filter(_is_file, places), None)

    def _is_flat(self, folder: str) -> bool:
        """Raises FileNotFoundError."""
        if folder in self._flat:
            return True
        try:
            with os.scandir(folder) as entries:
                if any(entry.is_dir() for entry in entries):
                    return False
        except FileNotFoundError:
            raise
        except OSError:
            return False
        self._flat.add(folder)
        return True

    def makes_folder(self, sha256: str) -> bool:
        """Whether it was not there."""
        try:
            Path(self.folder(sha256)).mkdir(mode=0o700)
        except FileExistsError:
            return False
        return True

    def write(self, source: tuple[str, bytes]) -> set[str]:
        """The folders that hold new names, which are not durable yet."""
        sha256, data = source
        changed = {self.folder(sha256)}
        if self.makes_folder(sha256):
            changed.add(self._root)
        target = Path(self.new(sha256))
        durable.replace(target, data, written="blob.written", name_is_durable=False)
        return changed

    def write_journaled(self, source: tuple[str, bytes]) -> str:
        """As `put_journaled`, and durable."""
        self.put_journaled(source)
        durable.sync_file(self.new(source[0]))
        return self.folder(source[0])

    def put_journaled(self, source: tuple[str, bytes]) -> None:
        """Under its name at once: a file that is cut off is made again from the journal."""
        sha256, data = source
        self.makes_folder(sha256)
        target = self.new(sha256)
        try:
            durable.write_new(target, data)
        except FileExistsError:  # another process has died meanwhile, or it is no regular file
            if not (_is_file(target) and _read(Path(target)) == data):
                self.write(source)
        reach("blob.written")

    def make(self, journaled: dict[str, bytes]) -> None:
        """All of them are durable when it returns. Raises OSError."""
        try:
            if len(journaled) >= _MANY and durable.syncs_filesystem(self._root):
                self._make_many(journaled)
                return
            folders = at_once(self.write_journaled, journaled.items(), _WRITERS)
        except OSError:  # the kernel may have dropped what it could not write
            at_once(self.write, journaled.items(), _WRITERS)
            folders = [self.folder(sha256) for sha256 in journaled]
        reach("blob.named")
        at_once(durable.sync_folder, {self._root, *folders}, _WRITERS)

    def _make_many(self, journaled: dict[str, bytes]) -> None:
        """One sync of all takes a tenth of the time that one for each takes."""
        fd = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for source in journaled.items():
                self.put_journaled(source)
            reach("blob.named")
            durable.sync_filesystem(fd)
        finally:
            os.close(fd)


def sweep(folder: Path) -> None:
    """Removes what a process was writing among these blobs when it died; raises OSError."""
    for deep in ("*/*.tmp", "*/*/*.tmp"):
        for path in folder.glob(deep):
            path.unlink(missing_ok=True)


class Elsewhere(Protocol):
    """Where other machines leave sources and find them. Raises store.io."""

    def put(self, name: str, data: bytes) -> None: ...

    def get(self, name: str) -> bytes | None: ...


class Stored(NamedTuple):
    """How many bytes there are, and what reads them."""

    size: int
    open: Callable[[], BinaryIO]


class Blobs:
    """A folder of blobs; `folder` is made on first use. Any thread may use it.

    `origin`: the store that they are of, if `folder` does not lie in it: nothing is written then.
    `check` raises store.io where the folder is another one by now.
    """

    def __init__(
        self,
        folder: Path,
        elsewhere: Elsewhere | None = None,
        *,
        origin: Path | None = None,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        self.folder = folder
        self.elsewhere = elsewhere
        self._read_only = origin not in (None, folder.parent)
        self._check = check
        self._root = os.fspath(folder)
        self._places = _Places(self._root)
        self._holding = Holding(self._erase)
        self._journal = Journal((origin or folder.parent) / f"{folder.name}.journal")
        self._journaled: dict[str, bytes] = {}  # what the journal holds, and no file yet
        self._is_new = True
        self._has_journal = False  # it is ours, and what was in it is known
        self.going: frozenset[str] = frozenset()  # being purged: nobody fetches them here again

    def path(self, sha256: str) -> Path:
        """Where it is, or will be once its file is made."""
        return Path(self._places.found(sha256) or self._places.new(sha256))

    def paths(self) -> list[Path]:
        """All that lie here, sorted. Raises store.io."""
        self.sync()
        found = [path for deep in ("*/*", "*/*/*") for path in self.folder.glob(deep)]
        return sorted(path for path in found if path.is_file() and path.suffix != ".tmp")

    def put(self, data: bytes) -> Held:
        """A record may name it after `settle`, as long as it is held.

        Equal bytes are stored once. Raises store.io with nothing kept.
        """
        sha256, is_small = digest(data), len(data) <= _SMALL_BYTES
        if self.elsewhere is not None:
            self.elsewhere.put(sha256, data)
        with _as_store_io():
            reach("blob.write")
        held = self._holding.hold(sha256, data if is_small else None)
        if self._is_stored(sha256):
            return held
        if is_small:
            self._holding.wait(sha256)
            return held
        with self._holding.turn():
            if not self._is_stored(sha256):  # else another has stored it, and a record may name it
                self._holding.leave([sha256])
                self._store({sha256: data})
        return held

    def settle(self, names: Collection[str]) -> None:
        """Before a record that names these sources: they and all others that wait are durable.

        Raises store.io: what waits then goes on waiting; also for a large source that has been
        erased since it was put, with another document of the same bytes.
        """
        holding = self._holding
        with holding.turn(), holding.waiting() as waiting:
            self._keep_unnamed(waiting, names)
        held = [one for name in names if (one := holding.get(name)) is not None]
        if not all(one.data is not None or self._is_stored(one.name) for one in held):
            raise KbprocError(
                "store.io",
                "The source was erased meanwhile, with another document of the same bytes.",
                hint="Send the request again.",
            )

    def named(self, names: Iterable[str]) -> None:
        """A record that names them is written: they stay."""
        self._holding.keep(names)

    def _keep_unnamed(self, waiting: Collection[str], names: Collection[str]) -> None:
        """Those of them that are held, small and not stored are durable when it returns.

        What had a file when it was put may have been erased since; and what had none may have one.
        """
        absent = (name for name in {*waiting, *names} if not self._is_stored(name))
        held = [one for name in absent if (one := self._holding.get(name)) is not None]
        new = {one.name: one.data for one in held if one.data is not None}
        if not new:
            return
        self._holding.leave(new)
        if not self._is_journaled(new):
            self._store(new)
            return
        reach("blob.journaled")
        self._journaled |= new

    def _is_stored(self, sha256: str) -> bool:
        return sha256 in self._journaled or self._places.found(sha256) is not None

    def _is_journaled(self, sources: dict[str, bytes]) -> bool:
        """False for the first ones: a process that writes once needs no journal."""
        is_new, self._is_new = self._is_new or not self._has_journal, False
        if not is_new and not self._journal.fits(sources.values()):
            self._sync()
        if is_new or not self._journal.fits(sources.values()):
            return False
        try:
            self._journal.add(sources.values())
        except OSError:  # what refuses the files, too, is told
            _logger.warning("no journal of sources can be written", exc_info=True)
            return False
        return True

    def _store(self, sources: dict[str, bytes]) -> None:
        """The bytes are synced before their name appears: a blob that can be seen is whole."""
        self._check()
        with _as_store_io():
            durable.make_folder(self.folder)
            renamed = at_once(self._places.write, sources.items(), _WRITERS)
            reach("blob.named")
            at_once(durable.sync_folder, set().union(*renamed), _WRITERS)

    def sync(self) -> None:
        """All files are durable, and nothing is left in the journal. Raises store.io."""
        with self._holding.turn():
            self._sync()

    def _sync(self) -> None:
        if self._read_only or (self._journal.is_clean and not self._journaled):
            return
        self._check()
        with _as_store_io():
            if self._journaled:
                durable.make_folder(self.folder)
                self._places.make(self._journaled)
            self._check()  # what was made elsewhere meanwhile is no file of this store
            self._journal.clear()
        self._journaled = {}

    def close(self) -> None:
        """Raises store.io, and leaves the journal to the next start."""
        with self._holding.turn():
            self._sync()
            if self._has_journal:
                with _as_store_io():
                    self._journal.remove()

    def heal(self, sha256: str, data: bytes) -> None:
        """Stores `data`, which a record names, again if its blob is lost; raises store.io."""
        self.named([sha256])
        if not self._is_stored(sha256):
            with self._holding.turn():
                if sha256 not in self.going:
                    self._store({sha256: data})

    def erase(self, sha256: str) -> int:
        """Removes the bytes for good, and returns how many there were; raises OSError."""
        with self._holding.turn():
            return self._erase(sha256)

    def _erase(self, sha256: str) -> int:
        self._check()
        if sha256 in self._journaled:
            self._sync()
        self._journal.trim()
        path = self.path(sha256)
        if not path.exists():
            return 0
        size = path.stat().st_size
        path.unlink()
        durable.sync_folder(path.parent)
        return size

    def recall(self) -> None:
        """What another process has left in the journal is there as if put here. Raises store.io."""
        try:
            self._journaled = {digest(source): source for source in self._journal.read()}
            if self._journaled and not self._read_only:
                self._journal.sync()
        except OSError as error:
            if self._read_only and isinstance(error, PermissionError):
                return  # somebody else's, who has it open: what has its file can be read
            message = f"The store's journal of sources can't be read: {error.strerror}."
            raise KbprocError("store.io", message) from error
        self._has_journal = not self._read_only

    def stored(self, sha256: str) -> Stored | None:
        """None where it is not here; whether it is damaged is not looked at."""
        data, path = self._journaled.get(sha256), self.path(sha256)
        if data is not None:
            return Stored(len(data), lambda: io.BytesIO(data))
        if not path.exists():
            return None
        return Stored(path.stat().st_size, lambda: path.open("rb"))

    def get(self, sha256: str) -> bytes:
        """Raises store.corrupt if the blob is missing or is not what its name says.

        Raises resource.not_found for the empty name, under which nothing is kept.
        """
        if not sha256:
            raise forgotten()
        if (journaled := self._journaled.get(sha256)) is not None:
            return journaled
        try:
            data = _read(self.path(sha256))
        except FileNotFoundError as error:
            if sha256 in self.going:
                raise forgotten() from error
            data = b"" if self.elsewhere is None else self.elsewhere.get(sha256) or b""
            if digest(data) != sha256:
                raise KbprocError(
                    "store.corrupt",
                    f"The source {sha256[:12]}… is missing.",
                    detail={"blob": sha256},
                ) from error
            self.heal(sha256, data)
        except OSError as error:
            raise KbprocError(
                "store.io", f"The source {sha256[:12]}… could not be read: {error.strerror}."
            ) from error
        if digest(data) != sha256:
            raise KbprocError(
                "store.corrupt", f"The source {sha256[:12]}… is damaged.", detail={"blob": sha256}
            )
        return data

    def broken(self, wanted: Iterable[str], *, deep: bool) -> list[str]:
        """Those that are missing or, if `deep`, not what was stored."""
        return [sha256 for sha256 in wanted if not _is_there(self, sha256, deep=deep)]


def _is_there(blobs: Blobs, sha256: str, *, deep: bool) -> bool:
    if not deep:
        return blobs.elsewhere is not None or blobs.stored(sha256) is not None
    try:
        blobs.get(sha256)
    except KbprocError:
        return False
    return True
