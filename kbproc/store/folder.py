"""The store's own two files: store.toml and the lock.

Owns: the format version, the model as configured, and that one process at a
time holds the store.
Refuses to know: what else lies in the folder.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
from pathlib import Path
from typing import Any

from kbproc.base.durable import replace
from kbproc.base.errors import KbprocError

FORMAT = 1
DEFAULT_MODEL = {"kind": "onnx", "name": "all-MiniLM-L6-v2"}


def take_folder(folder: Path, pid: int) -> int:
    """Makes the folder if need be and locks it; returns the lock's descriptor.

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
    try:
        return take_lock(folder / "lock", pid)
    except OSError as error:
        raise KbprocError(
            "store.io", f"The store {folder} could not be opened: {error.strerror}."
        ) from error


def size_of(folder: Path) -> int:
    """Bytes of all files below; one that goes meanwhile counts nothing."""
    total = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(FileNotFoundError):
            found = path.stat()
            total += found.st_size if stat.S_ISREG(found.st_mode) else 0
    return total


def take_lock(path: Path, pid: int) -> int:
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(fd)
        owner = holder(path.parent)[0]
        raise KbprocError(
            "store.locked",
            f"The store {path.parent} is open in another process"
            + (f" (pid {owner})." if owner else "."),
            retry_after_ms=1000,
        ) from error
    os.ftruncate(fd, 0)
    os.pwrite(fd, f"{pid}\n".encode(), 0)
    return fd


def sign_lock(fd: int, pid: int, socket: Path) -> None:
    """Says in the lock file who holds it and where that process listens."""
    data = f"{pid}\n".encode() + os.fsencode(socket) + b"\n"
    os.ftruncate(fd, 0)
    os.pwrite(fd, data, 0)


def holder(folder: Path) -> tuple[str, Path | None]:
    """The pid and the socket that the lock file names, whether they are alive or not."""
    try:
        pid, _, rest = (folder / "lock").read_bytes().partition(b"\n")
    except OSError:
        return "", None
    path, ended, _ = rest.partition(b"\n")
    return pid.decode("ascii", "replace").strip(), Path(os.fsdecode(path)) if ended else None


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
