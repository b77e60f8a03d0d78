"""Writes and removes notes in a folder that people edit, too.

At no moment, and after no crash, is a text overwritten that the caller has not seen. Changes are
durable.

The new file and the old one change names. Then the old text lies under a hidden name, where no
editor looks; there it is read, and deleted or put back. Where two files can't change names, an
edit in the instant between the last look and the rename is lost.

`.<slug>.<n>.kbproc-part` is an unfinished file of the store's own, and can always be deleted.
`.<slug>.<new>.<old>.<n>.kbproc` may hold a person's text, unless the text's digest is one of the
two in the name; `new` is `-` for a note that is being removed.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

import msgspec

from kbproc.base import paths
from kbproc.base.durable import lock, write_all
from kbproc.base.errors import KbprocError
from kbproc.base.failpoints import reach
from kbproc.base.renames import (
    Unsupported,
    is_there,
    is_written_to,
    move,
    swap_names,
    unlink,
)
from kbproc.knowledge.agents.notes.files import (
    MOST_BYTES,
    PART,
    SET_ASIDE,
    NotANote,
    all_bytes,
    digest,
    file_name,
    open_file,
    open_folder,
    require_file,
    require_text,
)

_ROUNDS = 20  # attempts to put the old text back while an editor keeps saving
_LOCK_SECONDS = 2.0  # short, because the waiting thread may hold the writers' lane


class FileState(msgspec.Struct, frozen=True):
    """The file that has a name. `problem`: why it is no note.

    `identity`: the digest of the bytes, or the inode of a file that can't be read. `has_writer`:
    a program holds the file open for writing.
    """

    identity: str
    data: bytes = b""
    mode: int = 0
    has_writer: bool = False
    problem: str | None = None


class Leftover(msgspec.Struct, frozen=True):
    """A text that an interrupted change had moved aside, and that the log does not have.

    `problem`: a sentence that says why the text can't become a revision, or its file can't
    be deleted; `data` is empty then.
    """

    slug: str
    name: str
    data: bytes
    problem: str | None = None


class EditedMeanwhile(KbprocError):
    """The file does not hold the text that the caller expected, and stays as it is.

    `data`: the bytes of the file, maybe no valid note; None if there is no file. The caller
    records that text and the leftovers, then tries again.
    """

    def __init__(self, path: Path, data: bytes | None) -> None:
        event = "was removed" if data is None else "was edited"
        super().__init__(
            "resource.conflict",
            f"{path} {event} since it was read; it was not changed.",
            hint="Run note.sync, read the note again, then repeat the change.",
        )
        self.data = data


# ------------------------------------------------------------------ the two changes


def write(folder: Path, slug: str, data: bytes, expected: str | None) -> None:
    """Writes `data` to the note's file, durably; a new file gets mode 0600.

    `expected`: sha256 of the file's present bytes; None if there is no file. A file that holds
    `data` already stays as it is. Raises EditedMeanwhile; resource.conflict for a file that is
    not regular or too large; input.*; store.io, with the old text in place; Unavailable.
    """
    name = file_name(slug)
    _require_text(data)
    path = folder / name
    with locked(folder) as fd, as_store_io(path):
        state = inspect(fd, name)
        if state is not None and state.identity == digest(data):
            _sync(fd, name)
            return
        if (state and state.identity) != expected:
            raise _conflict(path, state)
        part = stage(fd, slug, data, state.mode if state else 0o600)
        try:
            reach("note.staged")
            if expected is None:
                _create(fd, part, path, digest(data))
            else:
                _exchange(fd, part, path, digest(data), expected)
        except OSError:
            unlink(fd, part)
            raise


def remove(folder: Path, slug: str, expected: str) -> None:
    """Removes the note's file, durably; a missing file is no error.

    Raises what `write` raises.
    """
    name = file_name(slug)
    path = folder / name
    with locked(folder) as fd, as_store_io(path):
        state = inspect(fd, name)
        if state is None:
            return
        if state.identity != expected:
            raise _conflict(path, state)
        reach("note.remove")
        _take_away(fd, path, expected)


def _take_away(fd: int, path: Path, expected: str) -> None:
    hidden_name = move_aside(fd, path.stem, path.name, "-", expected)
    if hidden_name is None:
        return
    try:
        reach("note.removed")
        if not _delete_if_expected(fd, hidden_name, expected):
            raise _move_back(fd, hidden_name, path)
    except OSError:
        _move_back(fd, hidden_name, path)
        raise


def _create(fd: int, part: str, path: Path, new: str) -> None:
    try:
        move(fd, part, path.name)
    except FileExistsError:
        unlink(fd, part)
        raise _conflict(path, inspect(fd, path.name)) from None
    try:
        reach("note.placed")
        os.fsync(fd)
    except OSError:
        with suppress(OSError, KbprocError):
            _take_away(fd, path, new)
        raise


def _exchange(fd: int, part: str, path: Path, new: str, expected: str) -> None:
    hidden_name = move_aside(fd, path.stem, part, new, expected)
    if hidden_name is None:
        raise OSError(0, "its temporary file was deleted")
    try:
        swap_names(fd, hidden_name, path.name)
    except Unsupported:
        _overwrite(fd, hidden_name, path, expected)
        return
    except OSError as error:
        unlink(fd, hidden_name)
        if isinstance(error, FileNotFoundError):
            raise EditedMeanwhile(path, None) from None
        raise
    try:
        reach("note.exchanged")
        if _delete_if_expected(fd, hidden_name, expected):
            return
    except OSError:
        _put_back(fd, hidden_name, path.name, new)
        raise
    _put_back(fd, hidden_name, path.name, new)
    os.fsync(fd)
    raise _conflict(path, inspect(fd, path.name))


def _delete_if_expected(fd: int, hidden_name: str, expected: str) -> bool:
    """Deletes the text that was moved aside if it is the one that the caller expected.

    Returns False if it is another text. A file that a program still holds open for writing stays,
    and `leftovers` looks at it again.
    """
    state = inspect(fd, hidden_name)
    if state is not None and state.identity != expected:
        return False
    os.fsync(fd)
    reach("note.placed")
    if state is not None and not state.has_writer:
        unlink(fd, hidden_name)
    return True


def _put_back(fd: int, hidden_name: str, name: str, new: str) -> None:
    """Puts the newest text that people have saved back under `name`.

    The two files change names again. If that takes out the store's own text, untouched, it is
    deleted. If a person has saved over it, their text goes back in, and the text before it stays
    under the hidden name.
    """
    hidden_identity: str | None = _identity(fd, hidden_name)
    visible_identity: str | None = new
    for _ in range(_ROUNDS):
        try:
            swap_names(fd, hidden_name, name)
        except OSError:  # the file was deleted, or the disk refuses: the text stays a leftover
            return
        state = inspect(fd, hidden_name)
        identity = state.identity if state else None
        if identity == visible_identity:
            if state and identity == new and not state.has_writer:
                unlink(fd, hidden_name)
            return
        hidden_identity, visible_identity = identity, hidden_identity


def _overwrite(fd: int, hidden_name: str, path: Path, expected: str) -> None:
    """Replaces the file where two files can't change names.

    An edit between the look and the rename is lost.
    """
    state = inspect(fd, path.name)
    if (state and state.identity) != expected:
        unlink(fd, hidden_name)
        raise _conflict(path, state)
    os.rename(hidden_name, path.name, src_dir_fd=fd, dst_dir_fd=fd)
    reach("note.placed")
    os.fsync(fd)


def _move_back(fd: int, hidden_name: str, path: Path) -> KbprocError:
    """Renames the text that was moved aside back to its name, and returns the conflict.

    The text stays a leftover if another file has that name by now.
    """
    with suppress(OSError):
        move(fd, hidden_name, path.name)
        os.fsync(fd)
    return _conflict(path, inspect(fd, path.name))


# ------------------------------------------------------------------ steps of a change


def _require_text(data: bytes) -> None:
    try:
        require_text(data)
    except NotANote as why:
        kind = "input.too_large" if why.code == "large" else "input.invalid_params"
        raise KbprocError(kind, f"The note can't be kept: {why.reason}.") from None


def _identity(fd: int, name: str) -> str | None:
    state = inspect(fd, name)
    return None if state is None else state.identity


def _conflict(path: Path, state: FileState | None) -> KbprocError:
    if state is None:
        return EditedMeanwhile(path, None)
    if state.problem is None:
        return EditedMeanwhile(path, state.data)
    return KbprocError(
        "resource.conflict",
        f"{path} was not changed: {state.problem}.",
        hint="Repair that file or move it away, then repeat the change.",
    )


def _sync(fd: int, name: str) -> None:
    with suppress(FileNotFoundError, NotANote):  # the file has changed since the look at it
        note_fd = open_file(fd, name)
        try:
            os.fsync(note_fd)
        finally:
            os.close(note_fd)
    os.fsync(fd)


# ------------------------------------------------------------------ after a crash


def leftovers(folder: Path) -> list[Leftover]:
    """Returns the texts that the log lacks; the caller records each, then `clear`s it.

    Unfinished files of the store's own, and files with a known text, are deleted. A note that was
    edited while it was being removed gets its name back. Raises store.io, Unavailable.
    """
    texts: list[Leftover] = []
    with locked(folder) as fd, as_store_io(folder):
        for name in sorted(os.listdir(fd)):  # noqa: PTH208
            try:
                texts += _leftover_of(fd, name)
            except OSError as error:
                problem = f"{name} is left over and can't be cleared away: {error.strerror}."
                texts.append(Leftover(name.split(".")[1], name, b"", problem))
    return texts


def _leftover_of(fd: int, name: str) -> Iterator[Leftover]:
    """Yields the text that remains to be recorded, if any; other names are ignored."""
    if PART.fullmatch(name):
        unlink(fd, name)
    elif parts := SET_ASIDE.fullmatch(name):
        slug, new, old = parts.groups()
        yield from _unrecorded(fd, name, slug, new, old)


def _unrecorded(fd: int, name: str, slug: str, new: str, old: str) -> Iterator[Leftover]:
    state = inspect(fd, name)
    if state is None:
        return
    if state.identity[:32] in {new, old}:
        if not state.has_writer:
            unlink(fd, name)
        return
    if new == "-":
        with suppress(FileExistsError):
            move(fd, name, file_name(slug))
            return
    problem = state.problem
    if problem is None:
        try:
            require_text(state.data)
        except NotANote as why:
            if why.code == "blank" and not state.has_writer:
                unlink(fd, name)
                return
            problem = why.reason
    if problem:
        problem = f"{name} is left over from an interrupted change: {problem}."
    yield Leftover(slug, name, b"" if problem else state.data, problem)


def clear(folder: Path, leftover: Leftover) -> bool:
    """Deletes the leftover's file once its text is recorded.

    Returns False if the file has a problem, holds another text by now, or is being written to.
    Raises store.io, Unavailable.
    """
    with locked(folder) as fd, as_store_io(folder / leftover.name):
        state = inspect(fd, leftover.name)
        if state is None:
            return True
        if leftover.problem or state.problem or state.has_writer or state.data != leftover.data:
            return False
        unlink(fd, leftover.name)
    return True


# ------------------------------------------------------------------ hidden files


@contextmanager
def locked(folder: Path) -> Iterator[int]:
    """Locks the folder, because two stores may share it, and yields its descriptor.

    Raises store.io if another program holds the lock for too long; Unavailable.
    """
    with open_folder(folder) as fd:
        _lock(folder, fd)
        yield fd


def _lock(folder: Path, fd: int) -> None:
    try:
        lock(fd, _LOCK_SECONDS, is_needed=False)
    except BlockingIOError:
        raise KbprocError(
            "store.io",
            f"The notes folder {paths.printable(folder)} is locked by another program.",
            hint="Wait until that program is done, then repeat the change.",
        ) from None


@contextmanager
def as_store_io(path: Path) -> Iterator[None]:
    """Raises store.io for an OSError in the body."""
    try:
        yield
    except OSError as error:
        why = error.strerror or str(error)
        raise KbprocError("store.io", f"{path} could not be changed: {why}.") from error


def existing(folder: Path, slugs: Iterable[str]) -> set[str]:
    """Returns the slugs whose file names exist, as whatever kind. Raises store.io, Unavailable."""
    with open_folder(folder) as fd, as_store_io(folder):
        return {slug for slug in slugs if is_there(fd, file_name(slug))}


def inspect(fd: int, name: str) -> FileState | None:
    """Returns the state of the file that has the name; None if there is none. Raises OSError.

    A hidden file is checked for a writer before it is read, because a file without a writer stays
    as it is.
    """
    try:
        status = os.stat(name, dir_fd=fd, follow_symlinks=False)
        require_file(status)
        note_fd = open_file(fd, name)
    except FileNotFoundError:
        return None
    except NotANote as why:
        return FileState(f"{stat.S_IFMT(status.st_mode)}:{status.st_ino}", problem=why.reason)
    try:
        writer = name.startswith(".") and is_written_to(fd, note_fd)
        data = all_bytes(note_fd)
    finally:
        os.close(note_fd)
    large = len(data) > MOST_BYTES
    return FileState(
        digest(data),
        data,
        stat.S_IMODE(status.st_mode) & 0o777,
        writer,
        "it is over 64 KiB" if large else None,
    )


def stage(fd: int, slug: str, data: bytes, mode: int) -> str:
    """Writes the bytes to an unfinished file, durably, and returns its hidden name."""
    part, part_fd = _new_part(fd, slug)
    try:
        write_all(part_fd, data)
        os.fchmod(part_fd, mode)
        os.fsync(part_fd)
    except OSError:
        unlink(fd, part)
        raise
    finally:
        os.close(part_fd)
    return part


def _new_part(fd: int, slug: str) -> tuple[str, int]:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    for number in count():
        part = f".{slug}.{number}.kbproc-part"
        with suppress(FileExistsError):
            return part, os.open(part, flags, 0o600, dir_fd=fd)
    raise AssertionError


def move_aside(fd: int, slug: str, name: str, new: str, old: str) -> str | None:
    """Renames `name` to a hidden name with the digests of the two known texts.

    Returns the hidden name; None if no file has `name` any more.
    """
    for number in count():
        hidden_name = f".{slug}.{new[:32]}.{old[:32]}.{number}.kbproc"
        try:
            move(fd, name, hidden_name)
        except FileExistsError:
            continue
        except FileNotFoundError:
            return None
        return hidden_name
    raise AssertionError
