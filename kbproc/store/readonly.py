"""Stores that can't be written: a backup on read-only media, another user's folder.

Owns: telling that a store is one, and the overlay in which it is opened: a temporary
folder with views, vectors and a lock of its own, and with links to all that is only read.
Refuses to know: how a store is opened (store.py), and which methods write.

Such a store is shown as it was when it was opened, and nothing of it is ever written.
Every process has an overlay of its own, which goes when it closes the store.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from pathlib import Path

import msgspec

from kbproc.base.errors import KbprocError
from kbproc.store.folder import take_folder

_PREFIX = "kbproc-overlay-"
_REFUSED = {errno.EROFS, errno.EACCES, errno.EPERM}
_ELSEWHERE = "Copy the folder to where you can write, and name the copy with --store."


def is_read_only(folder: Path) -> bool:
    """Whether this folder, or the lock in it, can't be written; False where there is none."""
    try:
        os.close(os.open(folder / "lock", os.O_RDWR | os.O_CLOEXEC))
    except OSError as error:
        if error.errno in _REFUSED:
            return True
    return folder.is_dir() and not os.access(folder, os.W_OK | os.X_OK)


def refusal(store: Path) -> KbprocError:
    """What every write to such a store is answered."""
    error = KbprocError(
        "store.io",
        f"The store {store} is read-only.",
        hint=f"{_ELSEWHERE} Opening a copy is restoring it.",
        detail={"read_only": True},
    )
    # No later try will do better, as it may when a disk was full.
    error.row = msgspec.structs.replace(error.row, retryable=False)
    return error


def take(store: Path, pid: int) -> tuple[Path, int]:
    """The folder to open the store in, locked, and the lock's descriptor.

    That is the store's own, or an empty overlay; see `fill`. Raises store.io, store.locked.
    """
    folder = _make_overlay(store) if is_read_only(store) else store
    return folder, take_folder(folder, pid)


def _make_overlay(store: Path) -> Path:
    """Removes what killed processes have left of theirs. Raises store.io."""
    import tempfile  # takes longer than whoever attaches to an owner has

    try:
        _remove_leftovers(Path(tempfile.gettempdir()))
        return Path(tempfile.mkdtemp(prefix=_PREFIX))
    except OSError as error:
        raise KbprocError(
            "store.io",
            f"The store {store} is read-only, and its views have no place: {error.strerror}.",
            hint="Let TMPDIR name a folder that can be written.",
        ) from error


def fill(overlay: Path, store: Path) -> None:
    """Whatever an open store may write to is copied, the rest linked.

    The lock is held: until there is a log, nobody takes the overlay for a leftover.
    Raises OSError, and store.io where there is no store.
    """
    import shutil

    store = store.absolute()
    segments = [path for path in _log_of(store) if path.stat().st_size]
    if not segments or not (store / "store.toml").exists():
        raise KbprocError(
            "store.io",
            f"There is no store in {store}, and none can be made there: it is read-only.",
            hint="Name another folder with --store or KBPROC_STORE.",
        )
    for name in ("log", "vectors"):
        (overlay / name).mkdir(mode=0o700)
    *whole, last = segments
    for path in whole:
        (overlay / "log" / path.name).symlink_to(path)
    shutil.copyfile(last, overlay / "log" / last.name)
    for path in (store / "vectors").glob("*.pack"):
        shutil.copyfile(path, overlay / "vectors" / path.name)
    for name in ("store.toml", "blobs", "notes"):
        if (store / name).exists():
            (overlay / name).symlink_to(store / name)


def _log_of(store: Path) -> list[Path]:
    """The segments; of a repair that was decided and cut off, those that it has made."""
    repaired = sorted(store.glob("damaged/[0-9]*/repaired"))
    return sorted((repaired[0] if repaired else store / "log").glob("[0-9]*.ndjson"))


def remove_overlay(overlay: Path) -> None:
    """What its links lead to stays."""
    import shutil

    shutil.rmtree(overlay, ignore_errors=True)


def _remove_leftovers(folder: Path) -> None:
    for found in folder.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            if found.lstat().st_uid == os.getuid() and (found / "log").is_dir():
                _remove_unless_held(found)


def _remove_unless_held(overlay: Path) -> None:
    """Raises OSError if a process holds its lock."""
    lock = os.open(overlay / "lock", os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        remove_overlay(overlay)
    finally:
        os.close(lock)
