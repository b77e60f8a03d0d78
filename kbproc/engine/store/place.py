"""Holds the folder that a store is opened in: its own, or an overlay of a read-only one.

The lease is held from before the store is opened until after it is closed. `prepare` puts the
folder in order before any part of the store is opened.

An overlay is a temporary folder with projections, vectors and a lease of its own, and with links
to all files that are only read. Readers see the store as it was when it was opened, and nothing in
it is ever written. Every process has an overlay of its own, and removes it when it closes the
store.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from kbproc.base.errors import KbprocError
from kbproc.engine.log import file
from kbproc.engine.log.lease import FileLease
from kbproc.engine.projections import soundness
from kbproc.engine.sources.blobs import Blobs
from kbproc.engine.store.folder import check_links, is_read_only, keep_private, take_folder

if TYPE_CHECKING:
    from kbproc.engine.log.lease import Lease


class StorePlace:
    """A folder that this process holds. `folder` is `origin` or an overlay of it."""

    def __init__(self, folder: Path, origin: Path, lease: Lease) -> None:
        self.folder = folder
        self.origin = origin
        self.read_only = folder != origin
        self.was_abandoned = False  # True if the last process to write may have been killed
        self.lease = lease

    @classmethod
    def take(cls, origin: Path, pid: int) -> StorePlace:
        """Takes the lease on a folder for the store: its own, or an empty overlay.

        Raises store.locked, store.io.
        """
        check_links(origin)
        folder = _new_overlay(origin, pid) if is_read_only(origin) else origin
        return cls(folder, origin, take_folder(folder, pid))

    def prepare(self, mend: Callable[[Path], object] = lambda folder: None) -> None:
        """Fills the overlay; or calls `mend`, then removes unusable files. Raises store.io."""
        try:
            if self.read_only:
                fill_overlay(self.folder, self.origin)
                return
            mend(self.folder)
            was_closed = soundness.were_closed(self.folder / "views")
            soundness.drop_damaged(self.folder / "views")
            if (self.folder / "views").is_dir():
                keep_private(self.folder / "views")
            self.was_abandoned = self.lease.was_abandoned or not was_closed
            if self.was_abandoned:
                Blobs(self.folder).sweep()
        except OSError as error:
            raise KbprocError(
                "store.io", f"The store {self.origin} could not be opened: {error.strerror}."
            ) from error

    def leave(self) -> None:
        """Removes the overlay and releases the lease.

        The files of the indexes are checked and remembered, so that the next process need not read
        them all again. The catalog is noted first: its rows have checksums, so that a
        file that this process has written need not be read whole.
        """
        if self.read_only:
            _remove(self.folder)
        else:
            with contextlib.suppress(OSError):
                soundness.note_closed(self.folder / "views")
                soundness.look(self.folder / "views")
        self.lease.release()


_PREFIX = "kbproc-overlay-"


def _new_overlay(store: Path, pid: int) -> Path:
    """Makes an empty overlay, and removes those of killed processes. Raises store.io."""
    import tempfile  # few stores need it

    try:
        _remove_leftovers(Path(tempfile.gettempdir()), pid)
        return Path(tempfile.mkdtemp(prefix=_PREFIX))
    except OSError as error:
        raise KbprocError(
            "store.io",
            f"The store {store} is read-only, and its views have no place: {error.strerror}.",
            hint="Let TMPDIR name a folder that can be written.",
        ) from error


def fill_overlay(overlay: Path, store: Path) -> None:
    """Copies the files that an open store may write to into the overlay, and links the rest.

    The caller holds the lease. An overlay without a log is not yet taken for a leftover.
    Raises OSError, and store.io if there is no store.
    """
    store = store.absolute()
    log = _log_of(store)
    if file.is_empty(log) or not (store / "store.toml").exists():
        raise KbprocError(
            "store.io",
            f"There is no store in {store}, and none can be made there: it is read-only.",
            hint="Name another folder with --store or KBPROC_STORE.",
        )
    file.overlay(log, overlay / "log")
    (overlay / "vectors").mkdir(mode=0o700)
    for path in (store / "vectors").glob("*.pack"):
        shutil.copyfile(path, overlay / "vectors" / path.name)
    for name in ("store.toml", "notes"):
        if (store / name).exists():
            (overlay / name).symlink_to(store / name)


def _log_of(store: Path) -> Path:
    """Returns the log's folder; after an interrupted repair, the repaired log's."""
    repaired = sorted(store.glob("damaged/[0-9]*/repaired"))
    return repaired[0] if repaired else store / "log"


def _remove(overlay: Path) -> None:
    """Removes the overlay; the targets of its links stay."""
    shutil.rmtree(overlay, ignore_errors=True)


def _remove_leftovers(folder: Path, pid: int) -> None:
    for overlay in folder.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            if overlay.lstat().st_uid == os.getuid() and (overlay / "log").is_dir():
                _remove_unless_held(overlay, pid)


def _remove_unless_held(overlay: Path, pid: int) -> None:
    """Removes an overlay that no process holds. Raises OSError."""
    lease = FileLease(overlay)
    try:
        lease.take(pid)
    except KbprocError:  # a process has it open
        return
    _remove(overlay)
    lease.release()
