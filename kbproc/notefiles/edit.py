"""Notes written to and removed from a folder that people edit, too.

Owns: that no text is overwritten which the caller has not seen, at any moment and
after any crash; and that what is written is durable.
Refuses to know: what the caller does with a text that it had not seen.

The new text and the old one change places; only then the old one, out of everybody's
reach under a hidden name, is looked at and deleted, or put back. Where two files can't
change places, an edit in the instant between the last look and the rename would be lost.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from kbproc.base.errors import KbprocError
from kbproc.base.failpoints import reach
from kbproc.notefiles import folder as notefolder
from kbproc.notefiles import rename
from kbproc.notefiles.folder import Unfit, digest
from kbproc.notefiles.hidden import Look, aside, failing, locked, look, stage, unlink

_ROUNDS = 20  # of putting back while somebody keeps saving


class Unseen(KbprocError):
    """Somebody has changed the file since `expected`; it stands as they left it.

    `data`: what it holds, maybe no valid note; None: there is no file. Record that (and
    the leftovers), then try again.
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
    """The note's file holds `data`, durably; mode 0600 if new, else as before.

    `expected`: sha256 of what it holds now; None: there is no such file. If it holds
    `data` already, that will do. Raises Unseen; resource.conflict if what stands there
    is no file, or too large; input.*; store.io, with the old text in place;
    Unavailable.
    """
    name = notefolder.file_name(slug)
    _require_text(data)
    path = folder / name
    with locked(folder) as fd, failing(path):
        found = look(fd, name)
        if found is not None and found.mark == digest(data):
            _sync(fd, name)
            return
        if (found and found.mark) != expected:
            raise _conflict(path, found)
        part = stage(fd, slug, data, found.mode if found else 0o600)
        try:
            reach("note.staged")
            if expected is None:
                _appear(fd, part, path, digest(data))
            else:
                _switch(fd, part, path, digest(data), expected)
        except OSError:
            unlink(fd, part)
            raise


def remove(folder: Path, slug: str, expected: str) -> None:
    """The note's file is gone, durably; at once if it was gone before.

    Raises as `write` does.
    """
    name = notefolder.file_name(slug)
    path = folder / name
    with locked(folder) as fd, failing(path):
        found = look(fd, name)
        if found is None:
            return
        if found.mark != expected:
            raise _conflict(path, found)
        reach("note.remove")
        _take_away(fd, path, expected)


def _take_away(fd: int, path: Path, expected: str) -> None:
    kept = aside(fd, path.stem, path.name, "-", expected)
    if kept is None:
        return
    try:
        reach("note.removed")
        if not _settle(fd, kept, expected):
            raise _back(fd, kept, path)
    except OSError:
        _back(fd, kept, path)
        raise


def _appear(fd: int, part: str, path: Path, new: str) -> None:
    try:
        rename.place(fd, part, path.name)
    except FileExistsError:
        unlink(fd, part)
        raise _conflict(path, look(fd, path.name)) from None
    try:
        reach("note.placed")
        os.fsync(fd)
    except OSError:
        with suppress(OSError, KbprocError):
            _take_away(fd, path, new)
        raise


def _switch(fd: int, part: str, path: Path, new: str, expected: str) -> None:
    kept = aside(fd, path.stem, part, new, expected)
    if kept is None:
        raise OSError(0, "its temporary file was deleted")
    try:
        rename.swap(fd, kept, path.name)
    except rename.Unsupported:
        _replace(fd, kept, path, expected)
        return
    except OSError as error:
        unlink(fd, kept)
        if isinstance(error, FileNotFoundError):
            raise Unseen(path, None) from None
        raise
    try:
        reach("note.exchanged")
        if _settle(fd, kept, expected):
            return
    except OSError:
        _put_back(fd, kept, path.name, new)
        raise
    _put_back(fd, kept, path.name, new)
    os.fsync(fd)
    raise _conflict(path, look(fd, path.name))


def _settle(fd: int, kept: str, expected: str) -> bool:
    """Deletes what was moved away if it is what the caller knows; False if it isn't.

    What a program still holds open for writing stays, for `leftovers` to look at again.
    """
    came = look(fd, kept)
    if came is not None and came.mark != expected:
        return False
    os.fsync(fd)
    reach("note.placed")
    if came is not None and not came.writer:
        unlink(fd, kept)
    return True


def _put_back(fd: int, kept: str, name: str, new: str) -> None:
    """The newest of what people have saved meanwhile ends up under `name`.

    Changing places back takes out what we had put in, if nobody has touched it: then
    ours is deleted. Else somebody saved over ours: theirs goes back in, and the text
    before stays under the hidden name.
    """
    theirs: str | None = _mark(fd, kept)
    there: str | None = new
    for _ in range(_ROUNDS):
        try:
            rename.swap(fd, kept, name)
        except OSError:  # deleted meanwhile, or the disk refuses: it stays a leftover
            return
        came = look(fd, kept)
        mark = came.mark if came else None
        if mark == there:
            if came and mark == new and not came.writer:
                unlink(fd, kept)
            return
        theirs, there = mark, theirs


def _replace(fd: int, kept: str, path: Path, expected: str) -> None:
    """Without exchange: what is saved between this look and the rename is lost."""
    found = look(fd, path.name)
    if (found and found.mark) != expected:
        unlink(fd, kept)
        raise _conflict(path, found)
    os.rename(kept, path.name, src_dir_fd=fd, dst_dir_fd=fd)
    reach("note.placed")
    os.fsync(fd)


def _back(fd: int, kept: str, path: Path) -> KbprocError:
    """Puts back what was moved aside, unless something new stands there: then it is left over."""
    with suppress(OSError):
        rename.place(fd, kept, path.name)
        os.fsync(fd)
    return _conflict(path, look(fd, path.name))


# ------------------------------------------------------------------ steps


def _require_text(data: bytes) -> None:
    try:
        notefolder.require_text(data)
    except Unfit as unfit:
        kind = "input.too_large" if unfit.code == "large" else "input.invalid_params"
        raise KbprocError(kind, f"The note can't be kept: {unfit.reason}.") from None


def _mark(fd: int, name: str) -> str | None:
    found = look(fd, name)
    return None if found is None else found.mark


def _conflict(path: Path, found: Look | None) -> KbprocError:
    if found is None:
        return Unseen(path, None)
    if found.unfit is None:
        return Unseen(path, found.data)
    return KbprocError(
        "resource.conflict",
        f"{path} is left as it is: {found.unfit}.",
        hint="Repair that file or move it away, then repeat the change.",
    )


def _sync(fd: int, name: str) -> None:
    with suppress(FileNotFoundError, Unfit):  # changed since it was looked at
        opened = notefolder.open_file(fd, name)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)
    os.fsync(fd)
