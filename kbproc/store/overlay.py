"""The folder in which a store that can't be written is opened.

Owns: a temporary folder with views, vectors and a lease of its own, and with links to
all that is only read.
Refuses to know: how a store is opened (store.py).

Such a store is shown as it was when it was opened, and nothing of it is ever written.
Every process has an overlay of its own, which goes when it closes the store.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path

from kbproc.base.errors import KbprocError
from kbproc.log import file
from kbproc.log.lease import FileLease, Lease
from kbproc.store.folder import check_links, is_read_only, take_folder

_PREFIX = "kbproc-overlay-"


def take(store: Path, pid: int) -> tuple[Path, Lease]:
    """The folder to open the store in, and the lease on it, which this process holds then.

    That is the store's own, or an empty overlay; see `fill`. Raises store.io, store.locked.
    """
    check_links(store)
    folder = _made(store, pid) if is_read_only(store) else store
    return folder, take_folder(folder, pid)


def _made(store: Path, pid: int) -> Path:
    """Removes what killed processes have left of theirs. Raises store.io."""
    import tempfile  # which few stores need

    try:
        _remove_leftovers(Path(tempfile.gettempdir()), pid)
        return Path(tempfile.mkdtemp(prefix=_PREFIX))
    except OSError as error:
        raise KbprocError(
            "store.io",
            f"The store {store} is read-only, and its views have no place: {error.strerror}.",
            hint="Let TMPDIR name a folder that can be written.",
        ) from error


def fill(overlay: Path, store: Path) -> None:
    """Whatever an open store may write to is copied, the rest linked.

    The lease is held: until there is a log, nobody takes the overlay for a leftover.
    Raises OSError, and store.io where there is no store.
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
    for name in ("store.toml", "blobs", "notes"):
        if (store / name).exists():
            (overlay / name).symlink_to(store / name)


def _log_of(store: Path) -> Path:
    """The log's folder; where a repair was decided and cut off, the one that it has made."""
    repaired = sorted(store.glob("damaged/[0-9]*/repaired"))
    return repaired[0] if repaired else store / "log"


def remove(overlay: Path) -> None:
    """What its links lead to stays."""
    shutil.rmtree(overlay, ignore_errors=True)


def _remove_leftovers(folder: Path, pid: int) -> None:
    for found in folder.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            if found.lstat().st_uid == os.getuid() and (found / "log").is_dir():
                _remove_unless_held(found, pid)


def _remove_unless_held(overlay: Path, pid: int) -> None:
    """Raises OSError."""
    lease = FileLease(overlay)
    try:
        lease.take(pid)
    except KbprocError:  # a process has it open
        return
    remove(overlay)
    lease.release()
