"""The store's own two files: store.toml and the lock.

Owns: the format version, the model as configured, and that one process at a
time holds the store.
Refuses to know: what else lies in the folder.
"""

from __future__ import annotations

import fcntl
import json
import os
import tomllib
from pathlib import Path
from typing import Any

from kbproc.errors import KbprocError

FORMAT = 1
DEFAULT_MODEL = {"kind": "onnx", "name": "all-MiniLM-L6-v2"}


def take_lock(path: Path, pid: int) -> int:
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        holder = os.pread(fd, 20, 0).decode("ascii", "replace").strip()
        os.close(fd)
        raise KbprocError(
            "store.locked",
            f"The store {path.parent} is open in another process"
            + (f" (pid {holder})." if holder else "."),
            retry_after_ms=1000,
        ) from error
    os.ftruncate(fd, 0)
    os.pwrite(fd, f"{pid}\n".encode(), 0)
    return fd


def read_settings(path: Path, model: dict[str, Any] | None) -> dict[str, Any]:
    if not path.exists():
        _write_settings(path, model or DEFAULT_MODEL)
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


def _write_settings(path: Path, model: dict[str, Any]) -> None:
    lines = [f"format = {FORMAT}", "", "[model]"]
    lines += [f"{key} = {json.dumps(value)}" for key, value in model.items()]
    temporary = path.with_suffix(".tmp")
    temporary.write_text("\n".join(lines) + "\n", encoding="utf-8")
    temporary.chmod(0o600)
    temporary.replace(path)
