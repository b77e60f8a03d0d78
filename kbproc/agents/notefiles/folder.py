"""What an agent's folder of Markdown holds.

Owns: which of its files are notes, `<slug>.md` directly in the folder; what else is skipped and
why; reading one note.
Refuses to know: what was recorded of the notes, and how a note is written (edit.py).

A folder that can't be read is Unavailable, and never counts as empty.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec

from kbproc.agents.notefiles.file import (
    NotANote,
    Stat,
    digest,
    file_name,
    read_stable,
    require_file,
    stat_of,
    suggested_slug,
    unreadable,
)
from kbproc.base import paths
from kbproc.base.errors import KbprocError
from kbproc.base.values import SLUG

# Two changes of a file may bear the same time: FAT counts in two seconds. Once a stat was first
# seen longer ago than this, the file cannot change any more without its stat changing.
SETTLED_NS = 3_000_000_000

# The hidden names that edit.py works with; hidden.py says what lies under them.
_NAME = "[a-z0-9][a-z0-9-]{0,62}[a-z0-9]"
PART = re.compile(rf"\.{_NAME}\.\d+\.kbproc-part")
KEPT = re.compile(rf"\.({_NAME})\.([0-9a-f]{{32}}|-)\.([0-9a-f]{{32}})\.\d+\.kbproc")


_DO = {
    "linked": "Find out who made the link; if it is meant, name the folder that it leads to with "
    "agent.update"
}


class Unavailable(KbprocError):
    """The folder can't be read, so nothing is known of its notes.

    `code`: missing, not_a_folder, linked, unreadable, vanished.
    """

    def __init__(self, folder: Path, code: str, what: str) -> None:
        super().__init__(
            "store.io",
            f"The notes folder {paths.printable(folder)} {what}.",
            hint=f"{_DO.get(code, 'Check the folder')}; the notes that are recorded stay as they "
            "are.",
            detail={"folder": paths.printable(folder), "code": code},
        )
        self.code = code


class NoteFile(msgspec.Struct, frozen=True):
    """A note's file. `since`: when its stat was first seen, by a monotonic clock.

    `settled`: as long as the stat is unchanged, the bytes are unchanged too.
    """

    sha256: str
    size: int
    stat: Stat
    since: int
    settled: bool


class Skipped(msgspec.Struct, frozen=True):
    """A file that is no note as it stands; `code` as in NotANote.

    `slug`: the note that the file is, or would be once renamed; None if its name gives none.
    """

    name: str
    slug: str | None
    code: str
    reason: str


class Scan(msgspec.Struct, frozen=True):
    """`files` by slug. `unfinished`: hidden names that hidden.leftovers has to look into."""

    files: dict[str, NoteFile]
    skipped: list[Skipped]
    unfinished: frozenset[str]

    def missing(self, slugs: Iterable[str]) -> set[str]:
        """Those of `slugs` that have no file at all; a skipped file counts as there."""
        return set(slugs) - self.files.keys() - {skipped.slug for skipped in self.skipped}


# ------------------------------------------------------------------ the folder


def scan(
    folder: Path,
    known: Mapping[str, NoteFile] | None = None,
    *,
    clock: Callable[[], int] = time.monotonic_ns,
) -> Scan:
    """What the folder holds now. `known`: `files` of the last scan; `clock`: in nanoseconds.

    A file is read only if its stat has changed, or is too fresh to be trusted. Raises
    Unavailable, also if the folder goes away meanwhile.
    """
    known = known or {}
    files: dict[str, NoteFile] = {}
    odd: list[tuple[str, NotANote]] = []
    with open_folder(folder) as fd:
        names, unfinished = _listed(folder, fd)
        for name, status in names:
            slug = name.removesuffix(".md")
            try:
                _require_slug(name, slug)
                found = _note_file(fd, name, status, known.get(slug), clock)
            except FileNotFoundError:
                continue
            except NotANote as why:
                odd.append((name, why))
            except OSError as error:
                odd.append((name, unreadable(error)))
            else:
                files[slug] = found
        _require_same(folder, fd)
    skipped = [_skipped(name, why, files) for name, why in odd]
    return Scan(files=files, skipped=skipped, unfinished=unfinished)


@contextmanager
def open_folder(folder: Path) -> Iterator[int]:
    """A descriptor of the folder, whose path is absolute; no symlink in that is followed.

    Else whoever may change a folder above it would choose what is read and written as notes.
    Raises Unavailable.
    """
    try:
        fd = paths.open_unlinked(folder)
    except FileNotFoundError:
        raise Unavailable(folder, "missing", "does not exist") from None
    except NotADirectoryError:
        raise Unavailable(folder, "not_a_folder", "is no folder") from None
    except OSError as error:
        raise _unreadable(folder, error) from None
    try:
        yield fd
    finally:
        os.close(fd)


def exists(folder: Path) -> bool:
    """Whether anything is there, be it a link. Raises Unavailable where that can't be told."""
    try:
        folder.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise _unreadable(folder, error) from None
    return True


def make(folder: Path, *, above: bool) -> None:
    """Makes the folder, mode 0700, durably and through no symlink; it may be there.

    `above`: the folders above it, too. Raises OSError.
    """
    try:
        fd = paths.open_unlinked(folder.parent)
    except FileNotFoundError:
        if not above:
            raise
        make(folder.parent, above=True)
        fd = paths.open_unlinked(folder.parent)
    try:
        os.mkdir(folder.name, 0o700, dir_fd=fd)
        os.fsync(fd)
    except FileExistsError:
        if not stat.S_ISDIR(folder.lstat().st_mode):
            raise
    finally:
        os.close(fd)


def _unreadable(folder: Path, error: OSError) -> Unavailable:
    if error.errno == errno.ELOOP:
        return Unavailable(folder, "linked", f"is not looked into: {error.strerror}")
    return Unavailable(folder, "unreadable", f"can't be read: {error.strerror}")


Listed = list[tuple[str, os.stat_result | OSError]]


def _listed(folder: Path, fd: int) -> tuple[Listed, frozenset[str]]:
    """Every name that may be meant for a note, in order; and the names of unfinished changes."""
    found: Listed = []
    unfinished: set[str] = set()
    try:
        with os.scandir(fd) as entries:
            for entry in entries:
                if entry.name.startswith((".", "~", "#")):
                    if PART.fullmatch(entry.name) or KEPT.fullmatch(entry.name):
                        unfinished.add(entry.name)
                elif entry.name.lower().endswith(".md"):
                    found.append((entry.name, _status(entry)))
    except OSError as error:
        raise _unreadable(folder, error) from None
    return sorted(found, key=lambda pair: pair[0]), frozenset(unfinished)


def _status(entry: os.DirEntry[str]) -> os.stat_result | OSError:
    try:
        return entry.stat(follow_symlinks=False)
    except OSError as error:
        return error


def _require_same(folder: Path, fd: int) -> None:
    """Of a folder that was deleted or moved meanwhile, only a part may have been read."""
    try:
        with open_folder(folder) as now:
            same = os.path.samestat(os.fstat(now), os.fstat(fd))
    except Unavailable:
        same = False
    if not same:
        raise Unavailable(folder, "vanished", "went away while it was read")


def _note_file(
    folder: int,
    name: str,
    status: os.stat_result | OSError,
    before: NoteFile | None,
    clock: Callable[[], int],
) -> NoteFile:
    if isinstance(status, OSError):
        raise status
    if before and before.settled and before.stat == stat_of(status):
        return before
    require_file(status)
    found, data, at = read_stable(folder, name, clock)
    sha256 = digest(data)
    same = before is not None and before.stat == found and before.sha256 == sha256
    since = before.since if before and same else at
    return NoteFile(sha256, len(data), found, since, at - since >= SETTLED_NS)


# ------------------------------------------------------------------ one file


def read(folder: Path, slug: str) -> bytes:
    """A note's bytes: UTF-8, at most 64 KiB, not blank; links are not followed.

    Raises resource.not_found; operation.failed, with `detail.code` as in Skipped;
    Unavailable.
    """
    name = file_name(slug)
    with open_folder(folder) as fd:
        try:
            require_file(os.stat(name, dir_fd=fd, follow_symlinks=False))
            return read_stable(fd, name, time.monotonic_ns)[1]
        except FileNotFoundError:
            raise KbprocError("resource.not_found", f"There is no file {folder / name}.") from None
        except NotANote as why:
            raise KbprocError(
                "operation.failed",
                f"{folder / name} is no note as it stands: {why.reason}.",
                detail={"code": why.code},
            ) from None
        except OSError as error:
            raise KbprocError(
                "store.io", f"{folder / name} could not be read: {error.strerror}."
            ) from None


# ------------------------------------------------------------------ names


def _require_slug(name: str, slug: str) -> None:
    if slug == name or not re.match(SLUG, slug):  # the suffix may be .MD
        raise NotANote("name", "")


def _skipped(name: str, why: NotANote, files: Mapping[str, NoteFile]) -> Skipped:
    shown = paths.printable(Path(name))
    slug: str | None = name.removesuffix(".md")
    reason = why.reason
    if why.code == "name":
        slug = suggested_slug(name)
        reason = "a note's name is 2 to 64 lower-case letters, digits and hyphens"
        if slug is not None:
            better = f"{slug[:62]}-2" if slug in files else slug
            reason = f"its name is no slug; rename it to {better}.md"
    return Skipped(shown, slug, why.code, f"{shown} is skipped: {reason}.")
