"""Writing and removing notes in a folder that people edit, too.

Owns: that no text is overwritten which the caller has not seen, at any moment and after any
crash; and that what is written is durable.
Refuses to know: what the caller does with a text that it had not seen.

The new file and the old one change names; only then the old text, which lies under a hidden name
where no editor looks, is read and deleted, or put back. Where two files can't change names, an
edit in the instant between the last look and the rename is lost.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from kbproc.agents.notefiles import rename
from kbproc.agents.notefiles.file import NotANote, digest, file_name, open_file, require_text
from kbproc.agents.notefiles.hidden import (
    FileState,
    as_store_io,
    inspect,
    locked,
    move_aside,
    stage,
    unlink,
)
from kbproc.base.errors import KbprocError
from kbproc.base.failpoints import reach

_ROUNDS = 20  # of putting the old text back, while an editor keeps saving


class EditedMeanwhile(KbprocError):
    """The file does not hold what the caller expected, and stays as it is.

    `data`: what the file holds, maybe no valid note; None: there is no file. Record that text
    and the leftovers, then try again.
    """

    def __init__(self, path: Path, data: bytes | None) -> None:
        what = "was removed" if data is None else "was edited"
        super().__init__(
            "resource.conflict",
            f"{path} {what} meanwhile, and is left as it is.",
            hint="Run note.sync, read the note again, then repeat the change.",
        )
        self.data = data


# ------------------------------------------------------------------ the two changes


def write(folder: Path, slug: str, data: bytes, expected: str | None) -> None:
    """Makes the note's file hold `data`, durably; a new file gets mode 0600.

    `expected`: sha256 of what the file holds now; None: there is no such file. A file that
    holds `data` already is left as it is. Raises EditedMeanwhile; resource.conflict for what
    is no regular file, or too large; input.*; store.io, with the old text in place;
    Unavailable.
    """
    name = file_name(slug)
    _require_text(data)
    path = folder / name
    with locked(folder) as fd, as_store_io(path):
        found = inspect(fd, name)
        if found is not None and found.identity == digest(data):
            _sync(fd, name)
            return
        if (found and found.identity) != expected:
            raise _conflict(path, found)
        part = stage(fd, slug, data, found.mode if found else 0o600)
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
    """Removes the note's file, durably; that there is none is no error.

    Raises what `write` raises.
    """
    name = file_name(slug)
    path = folder / name
    with locked(folder) as fd, as_store_io(path):
        found = inspect(fd, name)
        if found is None:
            return
        if found.identity != expected:
            raise _conflict(path, found)
        reach("note.remove")
        _take_away(fd, path, expected)


def _take_away(fd: int, path: Path, expected: str) -> None:
    kept = move_aside(fd, path.stem, path.name, "-", expected)
    if kept is None:
        return
    try:
        reach("note.removed")
        if not _drop_if_known(fd, kept, expected):
            raise _move_back(fd, kept, path)
    except OSError:
        _move_back(fd, kept, path)
        raise


def _create(fd: int, part: str, path: Path, new: str) -> None:
    try:
        rename.move(fd, part, path.name)
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
    kept = move_aside(fd, path.stem, part, new, expected)
    if kept is None:
        raise OSError(0, "its temporary file was deleted")
    try:
        rename.swap(fd, kept, path.name)
    except rename.Unsupported:
        _overwrite(fd, kept, path, expected)
        return
    except OSError as error:
        unlink(fd, kept)
        if isinstance(error, FileNotFoundError):
            raise EditedMeanwhile(path, None) from None
        raise
    try:
        reach("note.exchanged")
        if _drop_if_known(fd, kept, expected):
            return
    except OSError:
        _put_back(fd, kept, path.name, new)
        raise
    _put_back(fd, kept, path.name, new)
    os.fsync(fd)
    raise _conflict(path, inspect(fd, path.name))


def _drop_if_known(fd: int, kept: str, expected: str) -> bool:
    """Deletes the text that was moved aside if it is the one that the caller knows.

    False if it is another one. A file that a program still holds open for writing stays, for
    `leftovers` to look at again.
    """
    found = inspect(fd, kept)
    if found is not None and found.identity != expected:
        return False
    os.fsync(fd)
    reach("note.placed")
    if found is not None and not found.has_writer:
        unlink(fd, kept)
    return True


def _put_back(fd: int, kept: str, name: str, new: str) -> None:
    """The newest text that people have saved meanwhile ends up under `name`.

    Changing names back takes our text out again if nobody has touched it, and then it is
    deleted. If somebody saved over ours, their text goes back in, and the text before it
    stays under the hidden name.
    """
    theirs: str | None = _identity(fd, kept)
    there: str | None = new
    for _ in range(_ROUNDS):
        try:
            rename.swap(fd, kept, name)
        except OSError:  # deleted meanwhile, or the disk refuses: the text stays a leftover
            return
        found = inspect(fd, kept)
        taken_out = found.identity if found else None
        if taken_out == there:
            if found and taken_out == new and not found.has_writer:
                unlink(fd, kept)
            return
        theirs, there = taken_out, theirs


def _overwrite(fd: int, kept: str, path: Path, expected: str) -> None:
    """Where files can't change names: an edit between this look and the rename is lost."""
    found = inspect(fd, path.name)
    if (found and found.identity) != expected:
        unlink(fd, kept)
        raise _conflict(path, found)
    os.rename(kept, path.name, src_dir_fd=fd, dst_dir_fd=fd)
    reach("note.placed")
    os.fsync(fd)


def _move_back(fd: int, kept: str, path: Path) -> KbprocError:
    """Gives the text that was moved aside its name back; it stays a leftover if that is taken."""
    with suppress(OSError):
        rename.move(fd, kept, path.name)
        os.fsync(fd)
    return _conflict(path, inspect(fd, path.name))


# ------------------------------------------------------------------ steps


def _require_text(data: bytes) -> None:
    try:
        require_text(data)
    except NotANote as why:
        kind = "input.too_large" if why.code == "large" else "input.invalid_params"
        raise KbprocError(kind, f"The note can't be kept: {why.reason}.") from None


def _identity(fd: int, name: str) -> str | None:
    found = inspect(fd, name)
    return None if found is None else found.identity


def _conflict(path: Path, found: FileState | None) -> KbprocError:
    if found is None:
        return EditedMeanwhile(path, None)
    if found.problem is None:
        return EditedMeanwhile(path, found.data)
    return KbprocError(
        "resource.conflict",
        f"{path} is left as it is: {found.problem}.",
        hint="Repair that file or move it away, then repeat the change.",
    )


def _sync(fd: int, name: str) -> None:
    with suppress(FileNotFoundError, NotANote):  # changed since it was looked at
        opened = open_file(fd, name)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)
    os.fsync(fd)
