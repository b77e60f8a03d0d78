"""Bytes and names that are on the disk when a call returns.

Owns: writing all of them, new files, files that take another's place, folders, renames; and the
mark beside a file that may be ahead of the disk.
Refuses to know: what the bytes mean, and how a surface tells of a disk that refuses: every
function here raises OSError.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from kbproc.base.failpoints import reach


def write_all(fd: int, data: bytes | memoryview) -> None:
    """Writes the whole of `data`; raises BrokenPipeError if nobody reads."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]


def write_all_at(fd: int, data: bytes, offset: int) -> None:
    """Writes the whole of `data` from `offset` on."""
    rest = memoryview(data)
    while rest:
        done = os.pwrite(fd, rest, offset)
        rest, offset = rest[done:], offset + done


def sync_data(fd: int) -> None:
    """The file's bytes are durable, and its size if it has grown. macOS knows only the whole."""
    (os.fdatasync if hasattr(os, "fdatasync") else os.fsync)(fd)


def sync_file(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def sync_folder(folder: Path) -> None:
    """Makes the names in it durable."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def make_folder(folder: Path) -> None:
    """Makes it with its parents, mode 0700, each durable before anything is put in it."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
    folder.mkdir(mode=0o700, exist_ok=True)
    sync_folder(folder.parent)


def rename(old: Path, new: Path) -> None:
    """What `old` names is called `new` from now on; a file that had this name is gone."""
    old.rename(new)
    sync_folder(new.parent)
    if old.parent != new.parent:
        sync_folder(old.parent)


@contextlib.contextmanager
def create(path: Path, *, synced: bool = True) -> Iterator[BinaryIO]:
    """A new file of mode 0600; its bytes are durable once the block has ended, its name is not.

    `synced` False: its bytes are not, either. Nothing is left of a file whose block fails.
    Raises FileExistsError.
    """
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(fd, "wb") as file:
            yield file
            file.flush()
            if synced:
                os.fsync(fd)
    except BaseException:
        _remove(path)
        raise


@contextlib.contextmanager
def replacing(
    path: Path,
    *,
    beside: Path | None = None,
    written: str | None = None,
    named: str | None = None,
    synced: bool = True,
    name_is_durable: bool = True,
) -> Iterator[BinaryIO]:
    """A new file that takes the place of `path` once the block has ended; else all is as before.

    `beside`: the new file's name until then, in the same folder. The default one is good for
    one writer at a time. `written` and `named`: the failpoints before and after the renaming.
    `name_is_durable` False: after a power failure the old file may be there again. `synced`
    False: or the new one without its bytes.
    """
    temporary = beside or path.with_name(f"{path.name}.tmp")
    temporary.unlink(missing_ok=True)  # of a process that died while it wrote
    try:
        with create(temporary, synced=synced) as file:
            yield file
        _reach(written)
        temporary.replace(path)
    finally:
        _remove(temporary)
    _reach(named)
    if name_is_durable:
        sync_folder(path.parent)


def replace(
    path: Path,
    data: bytes,
    *,
    beside: Path | None = None,
    written: str | None = None,
    named: str | None = None,
    synced: bool = True,
    name_is_durable: bool = True,
) -> None:
    """The file holds `data` and nothing else, mode 0600; see `replacing`."""
    with replacing(
        path,
        beside=beside,
        written=written,
        named=named,
        synced=synced,
        name_is_durable=name_is_durable,
    ) as file:
        write_all(file.fileno(), data)


# As long as the machine runs, what was written is there, whoever dies. So a file that can be made
# again need not be synced at every step: after a power failure its mark says that it is no good.
_BOOT = Path("/proc/sys/kernel/random/boot_id")


def boot() -> str:
    """Another one after each start of the machine; "" where it does not say."""
    try:
        return _BOOT.read_text().strip()
    except OSError:
        return ""


def mark(path: Path) -> None:
    """From now on the file may be ahead of the disk."""
    replace(_mark_of(path), boot().encode())


def sync(path: Path, *beside: str) -> None:
    """The file is on the disk, with those whose names go on as `beside`, and its mark goes."""
    for file in (path, *(path.with_name(path.name + end) for end in beside)):
        if file.exists():
            sync_file(file)
    sync_folder(path.parent)
    _mark_of(path).unlink(missing_ok=True)


def is_synced(path: Path) -> bool:
    """False for what may not have reached the disk before the machine stopped."""
    try:
        return _mark_of(path).read_text() == boot()
    except FileNotFoundError:
        return True
    except (OSError, UnicodeDecodeError):
        return False


def _mark_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.boot")


def _reach(failpoint: str | None) -> None:
    if failpoint is not None:
        reach(failpoint)


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink(missing_ok=True)
