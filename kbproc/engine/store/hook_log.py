"""Notes what went wrong in hooks, in a file of the store that stays small.

A hook prints no error, because its output stands in an agent's prompt; `doctor` shows this file.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import msgspec
from msgspec import Struct

from kbproc.base.durable import write_all
from kbproc.base.values import NOT_READABLE, decoder
from kbproc.engine.store.folder import is_store

FOLDER = "hooks"
_FILE = "log.ndjson"
MOST_BYTES = 1 << 16
_MOST_CHARACTERS = 500  # each problem is cut to this length
_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


class HookFailure(Struct, frozen=True, kw_only=True):
    """A hook that ended without output, and why."""

    ts: str
    event: str
    problem: str


_decode = decoder(HookFailure).decode


def folder_of(store: Path) -> int:
    """Returns a descriptor of the store's folder for hooks, which is made if it is missing.

    The folder is opened through no link, because another user may have made one. Raises OSError;
    FileNotFoundError for a folder that is no store.
    """
    if not is_store(store):
        raise FileNotFoundError(f"There is no store in {store}.")
    path = store / FOLDER
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700)
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)


def note(store: Path, failure: HookFailure) -> None:
    """Adds a line to the log; the older half goes once the file is full. Raises OSError."""
    problem = failure.problem[:_MOST_CHARACTERS]
    line = msgspec.json.encode(msgspec.structs.replace(failure, problem=problem)) + b"\n"
    add_line(store, _FILE, line, MOST_BYTES)


def add_line(store: Path, name: str, line: bytes, most: int) -> None:
    """Adds a line to a file of the store's folder for hooks; before it has more than `most` bytes
    its older half goes. Raises OSError.
    """
    folder = folder_of(store)
    try:
        if _size(folder, name) + len(line) > most:
            replace_in(folder, name, _newer_half(folder, name, most))
        fd = os.open(name, _APPEND, 0o600, dir_fd=folder)
        try:
            write_all(fd, line)
        finally:
            os.close(fd)
    finally:
        os.close(folder)


def failures(store: Path) -> list[HookFailure]:
    """Returns the failures in the log, oldest first; lines that can't be read are left out."""
    try:
        fd = os.open(store / FOLDER / _FILE, _READ)
    except OSError:
        return []
    try:
        data = os.read(fd, MOST_BYTES)
    except OSError:
        return []
    finally:
        os.close(fd)
    entries: list[HookFailure] = []
    for line in data.splitlines():
        with contextlib.suppress(*NOT_READABLE):
            entries.append(_decode(line))
    return entries


def replace_in(folder: int, name: str, data: bytes) -> None:
    """Replaces a small file of the folder, mode 0600, whole or not at all. Raises OSError.

    Unlike durable.replace it takes no path, which a link of another user could lead elsewhere, and
    syncs nothing: after a power failure the older file may be there.
    """
    temporary = f".{name}.{os.getpid()}.tmp"
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        fd = os.open(temporary, flags, 0o600, dir_fd=folder)
        try:
            write_all(fd, data)
        finally:
            os.close(fd)
        os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary, dir_fd=folder)
        raise


def read_in(folder: int, name: str, most: int) -> bytes | None:
    """Returns a small file of the folder; None if it is missing, too long or no file."""
    try:
        fd = os.open(name, _READ, dir_fd=folder)
    except OSError:
        return None
    try:
        data = os.read(fd, most + 1)
    except OSError:
        return None
    finally:
        os.close(fd)
    return data if len(data) <= most else None


def _size(folder: int, name: str) -> int:
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False).st_size
    except FileNotFoundError:
        return 0


def _newer_half(folder: int, name: str, most: int) -> bytes:
    data = read_in(folder, name, most) or b""
    return data[len(data) // 2 :].partition(b"\n")[2]
