"""A store's folder: its file store.toml, taking it, and whether it can be written.

Owns: the format version, the model as configured, what a write to a read-only store is
answered, and the bytes that a store takes on disk.
Refuses to know: what else lies in the folder.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from pathlib import Path
from typing import Any

import msgspec

from kbproc.base.durable import replace
from kbproc.base.errors import KbprocError
from kbproc.log.lease import FileLease, Lease

FORMAT = 1
DEFAULT_MODEL = {"kind": "onnx", "name": "all-MiniLM-L6-v2"}


def take_folder(folder: Path, pid: int) -> Lease:
    """Makes the folder if need be; returns the lease on it, which this process holds then.

    Raises store.io, store.locked.
    """
    if folder.exists() and not folder.is_dir():
        raise KbprocError(
            "store.io",
            f"The store {folder} is a file, not a folder.",
            hint="Name a folder with --store or KBPROC_STORE.",
        )
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise KbprocError(
            "store.io",
            f"There is no store in {folder}, and none can be made there: {error.strerror}.",
            hint="Name another folder with --store or KBPROC_STORE.",
        ) from error
    lease = FileLease(folder)
    try:
        lease.take(pid)
    except OSError as error:
        raise KbprocError(
            "store.io", f"The store {folder} could not be opened: {error.strerror}."
        ) from error
    return lease


def size_of(folder: Path) -> int:
    """Bytes of all files below; one that goes meanwhile counts nothing."""
    total = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(FileNotFoundError):
            found = path.stat()
            total += found.st_size if stat.S_ISREG(found.st_mode) else 0
    return total


def read_settings(path: Path, model: dict[str, Any] | None) -> dict[str, Any]:
    import tomllib  # not above: attached processes read no settings

    if not path.exists():
        write_settings(path, model or DEFAULT_MODEL)
    try:
        settings = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise KbprocError(
            "store.corrupt", f"{path} can't be read: {error}.", hint=f"Correct {path.name} by hand."
        ) from error
    if settings.get("format") != FORMAT:
        raise KbprocError(
            "store.incompatible",
            f"The store has format {settings.get('format')}; this kbproc reads format {FORMAT}.",
        )
    return settings


def write_settings(path: Path, model: dict[str, Any]) -> None:
    """Names the model, atomically and durably. Raises OSError."""
    import json

    lines = [f"format = {FORMAT}", "", "[model]"]
    lines += [f"{key} = {json.dumps(value)}" for key, value in model.items()]
    replace(path, ("\n".join(lines) + "\n").encode())


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
