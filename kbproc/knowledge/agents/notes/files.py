"""Reads an agent's folder of Markdown, which people edit: scans it, and reads single notes.

Notes are the files `<slug>.md` directly in the folder. A scan lists other Markdown files as
skipped, with the reason. A folder that can't be read is Unavailable, and never counts as empty.
A file is read correctly also while an editor is saving it. The module knows no log.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import stat
import time
import unicodedata
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec

from kbproc.base import paths
from kbproc.base.errors import KbprocError
from kbproc.base.unseen import one_line
from kbproc.base.values import SLUG

# Two changes of a file may have the same time, because FAT counts in steps of two seconds. Once a
# stat was first seen longer ago than this, the file can't change without its stat changing.
SETTLED_NS = 3_000_000_000

# The hidden names of files that edit.py works with, and describes.
_NAME = "[a-z0-9][a-z0-9-]{0,62}[a-z0-9]"
PART = re.compile(rf"\.{_NAME}\.\d+\.kbproc-part")
SET_ASIDE = re.compile(rf"\.({_NAME})\.([0-9a-f]{{32}}|-)\.([0-9a-f]{{32}})\.\d+\.kbproc")


MOST_LOOKED_AT = 10_000  # entries of sub-folders
_HINTS = {
    "linked": "Find out who made the link; if it is meant, name the folder that it leads to with "
    "agent.update"
}
MOST_BYTES = 64 * 1024
MOST_TITLE = 300  # characters
_SYMLINK = "it is a symbolic link, and links are not followed; copy the file here instead"
_LARGE = "it is over 64 KiB, the most that a note may hold; split it"
_FENCE = re.compile(r" {0,3}(`{3,}(?=[^`]*$)|~{3,})")


class Stat(NamedTuple):
    """The parts of a file's status by which a change shows; equal as long as it is unchanged."""

    mtime_ns: int
    size: int
    inode: int
    ctime_ns: int

    @classmethod
    def of(cls, status: os.stat_result) -> Stat:
        return cls(status.st_mtime_ns, status.st_size, status.st_ino, status.st_ctime_ns)


class NotANote(Exception):
    """A file that is no note as it stands. `reason` is the end of a sentence.

    `code`: symlink, special, name, large, encoding, nul, blank, unreadable.
    """

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


class Unavailable(KbprocError):
    """The folder can't be read, so nothing is known of its notes.

    `code`: missing, not_a_folder, linked, unreadable, vanished.
    """

    def __init__(self, folder: Path, code: str, what: str) -> None:
        super().__init__(
            "store.io",
            f"The notes folder {paths.printable(folder)} {what}.",
            hint=f"{_HINTS.get(code, 'Check the folder')}; the notes that are recorded stay as "
            "they are.",
            detail={"folder": paths.printable(folder), "code": code},
        )
        self.code = code


class ScannedFile(msgspec.Struct, frozen=True):
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
    """The files of a folder: notes by slug, and skipped ones.

    `unfinished`: hidden names that edit.leftovers has to look into.
    """

    files: dict[str, ScannedFile]
    skipped: list[Skipped]
    unfinished: frozenset[str]

    def missing(self, slugs: Iterable[str]) -> set[str]:
        """Returns the slugs that have no file at all; a skipped file counts as a file."""
        return set(slugs) - self.files.keys() - {skipped.slug for skipped in self.skipped}


class NonNotes(msgspec.Struct, frozen=True):
    """Counts of Markdown files that are no notes: by their names, and by lying in sub-folders.

    `in_folders`: None if the sub-folders hold too much to count; `in_folders_at_least` is the
    number that was counted.
    """

    misnamed: int
    in_folders: int | None
    in_folders_at_least: int


# ------------------------------------------------------------------ the folder


def scan(
    folder: Path,
    last_files: Mapping[str, ScannedFile] | None = None,
    *,
    clock: Callable[[], int] = time.monotonic_ns,
) -> Scan:
    """Returns the files of the folder. `clock`: in nanoseconds.

    `last_files`: `files` of the last scan. A file is read only if its stat has changed, or is too
    fresh to be trusted. Raises Unavailable, also if the folder vanishes during the scan.
    """
    last_files = last_files or {}
    files: dict[str, ScannedFile] = {}
    rejected_names: list[tuple[str, NotANote]] = []
    with open_folder(folder) as fd:
        names, unfinished = _list_names(folder, fd)
        for name, status in names:
            slug = name.removesuffix(".md")
            try:
                _require_slug(name, slug)
                note_file = _note_file(fd, name, status, last_files.get(slug), clock)
            except FileNotFoundError:
                continue
            except NotANote as why:
                rejected_names.append((name, why))
            except OSError as error:
                rejected_names.append((name, unreadable(error)))
            else:
                files[slug] = note_file
        _require_same(folder, fd)
    skipped = [_skipped_file(name, why, files) for name, why in rejected_names]
    return Scan(files=files, skipped=skipped, unfinished=unfinished)


def count_non_notes(folder: Path) -> NonNotes:
    """Counts files that are no notes for their names or places, and reads none of them.

    Raises Unavailable.
    """
    with open_folder(folder) as fd:
        names, _ = _list_names(folder, fd)
    misnamed = sum(
        not re.match(SLUG, name.removesuffix(".md")) or not name.endswith(".md")
        for name, status in names
        if not isinstance(status, OSError) and stat.S_ISREG(status.st_mode)
    )
    count, is_exact = _count_below(folder)
    return NonNotes(misnamed, count if is_exact else None, count)


def _count_below(folder: Path) -> tuple[int, bool]:
    """Returns the number of Markdown files in sub-folders, and True if that is all of them.

    Hidden folders, symlinks and folders that can't be read are skipped.
    """
    count = 0
    remaining = MOST_LOOKED_AT
    queue = deque([folder])
    while queue:
        current = queue.popleft()
        with contextlib.suppress(OSError), _entries(current) as entries:
            for entry in entries:
                is_folder = entry.is_dir(follow_symlinks=False)
                # The folder's own files are no cost: each of them may be a note.
                remaining -= is_folder or current != folder
                if remaining < 0:
                    return count, False
                if entry.name.startswith((".", "~", "#")):
                    continue
                if is_folder:
                    queue.append(current / entry.name)
                elif current != folder and entry.name.lower().endswith(".md"):
                    count += entry.is_file(follow_symlinks=False)
    return count, True


@contextmanager
def _entries(folder: Path) -> Iterator[Iterator[os.DirEntry[str]]]:
    """Yields the entries of a folder, following no symlink in its path. Raises OSError."""
    fd = paths.open_unlinked(folder)
    try:
        with os.scandir(fd) as entries:
            yield entries
    finally:
        os.close(fd)


@contextmanager
def open_folder(folder: Path) -> Iterator[int]:
    """Yields a descriptor of the folder, whose path is absolute; no symlink in it is followed.

    Otherwise a user who may change a folder above it could choose which files are read and
    written as notes. Raises Unavailable.
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
    """Returns True if the path exists, also as a symlink. Raises Unavailable if it can't tell."""
    try:
        folder.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise _unreadable(folder, error) from None
    return True


def make(folder: Path, *, above: bool) -> None:
    """Makes the folder, mode 0700, durably and through no symlink; it may exist already.

    `above`: also makes the folders above it. Raises OSError.
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


NameStatuses = list[tuple[str, os.stat_result | OSError]]


def _list_names(folder: Path, fd: int) -> tuple[NameStatuses, frozenset[str]]:
    """Returns the sorted names that may be meant as notes, and the names of unfinished changes."""
    candidates: NameStatuses = []
    unfinished: set[str] = set()
    try:
        with os.scandir(fd) as entries:
            for entry in entries:
                if entry.name.startswith((".", "~", "#")):
                    if PART.fullmatch(entry.name) or SET_ASIDE.fullmatch(entry.name):
                        unfinished.add(entry.name)
                elif entry.name.lower().endswith(".md"):
                    candidates.append((entry.name, _status(entry)))
    except OSError as error:
        raise _unreadable(folder, error) from None
    return sorted(candidates, key=lambda pair: pair[0]), frozenset(unfinished)


def _status(entry: os.DirEntry[str]) -> os.stat_result | OSError:
    try:
        return entry.stat(follow_symlinks=False)
    except OSError as error:
        return error


def _require_same(folder: Path, fd: int) -> None:
    """Raises Unavailable if the path leads to another folder by now.

    The folder was then deleted or moved during the scan, which may have read a part of it only.
    """
    try:
        with open_folder(folder) as current:
            is_same = os.path.samestat(os.fstat(current), os.fstat(fd))
    except Unavailable:
        is_same = False
    if not is_same:
        raise Unavailable(folder, "vanished", "went away while it was read")


def _note_file(
    folder: int,
    name: str,
    status: os.stat_result | OSError,
    before: ScannedFile | None,
    clock: Callable[[], int],
) -> ScannedFile:
    if isinstance(status, OSError):
        raise status
    if before and before.settled and before.stat == Stat.of(status):
        return before
    require_file(status)
    file_stat, data, read_at = read_stable(folder, name, clock)
    sha256 = digest(data)
    is_same = before is not None and before.stat == file_stat and before.sha256 == sha256
    since = before.since if before and is_same else read_at
    return ScannedFile(sha256, len(data), file_stat, since, read_at - since >= SETTLED_NS)


# ------------------------------------------------------------------ one file


def read(folder: Path, slug: str) -> bytes:
    """Returns a note's bytes: UTF-8, at most 64 KiB, not blank; links are not followed.

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


# ------------------------------------------------------------------ names in a scan


def _require_slug(name: str, slug: str) -> None:
    if slug == name or not re.match(SLUG, slug):  # the suffix may be .MD
        raise NotANote("name", "")


def _skipped_file(name: str, why: NotANote, files: Mapping[str, ScannedFile]) -> Skipped:
    printable = paths.printable(Path(name))
    slug: str | None = name.removesuffix(".md")
    reason = why.reason
    if why.code == "name":
        slug = suggested_slug(name)
        reason = "a note's name is 2 to 64 lower-case letters, digits and hyphens"
        if slug is not None:
            better = f"{slug[:62]}-2" if slug in files else slug
            reason = f"its name is no slug; rename it to {better}.md"
    return Skipped(printable, slug, why.code, f"{printable} is skipped: {reason}.")


# ------------------------------------------------------------------ bytes of one file


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def read_stable(folder: int, name: str, clock: Callable[[], int]) -> tuple[Stat, bytes, int]:
    """Returns the file's stat, its bytes, and the time by `clock` when they were read.

    The stat is taken before the bytes, so that a later change does not match it. Raises
    FileNotFoundError, NotANote, OSError.
    """
    fd = open_file(folder, name)
    try:
        latest = Stat.of(os.fstat(fd))
        for _ in range(3):  # an editor may have saved half of the text so far
            read_at = clock()
            data = all_bytes(fd)
            before, latest = latest, Stat.of(os.fstat(fd))
            if before == latest:
                break
    finally:
        os.close(fd)
    require_text(data)
    return before, data, read_at


def open_file(folder: int, name: str) -> int:
    """Returns a descriptor to read from, without waiting for a pipe's writer.

    Raises FileNotFoundError, NotANote, OSError.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        fd = os.open(name, flags, dir_fd=folder)
    except FileNotFoundError:
        raise
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise NotANote("symlink", _SYMLINK) from None
        raise unreadable(error) from None
    try:
        require_file(os.fstat(fd))
    except (NotANote, OSError):
        os.close(fd)
        raise
    return fd


def unreadable(error: OSError) -> NotANote:
    return NotANote("unreadable", f"it can't be read ({error.strerror})")


def require_file(status: os.stat_result) -> None:
    """Raises NotANote for a link, a special file, or one that is too large."""
    if stat.S_ISLNK(status.st_mode):
        raise NotANote("symlink", _SYMLINK)
    if not stat.S_ISREG(status.st_mode):
        raise NotANote("special", "it is no regular file")
    if status.st_size > MOST_BYTES:
        raise NotANote("large", _LARGE)


def all_bytes(fd: int) -> bytes:
    """Returns the whole file, or one byte more than a note may hold."""
    data = bytearray()
    os.lseek(fd, 0, os.SEEK_SET)
    while more := os.read(fd, MOST_BYTES + 1 - len(data)):
        data += more
    return bytes(data)


def require_text(data: bytes) -> None:
    """Raises NotANote for bytes that no note may hold, wherever they come from."""
    if len(data) > MOST_BYTES:
        raise NotANote("large", _LARGE)
    if b"\0" in data:
        raise NotANote("nul", "it holds NUL bytes, so it is no text")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        where = f"see byte {error.start + 1}"
        raise NotANote("encoding", f"it is not UTF-8 ({where}); save it as UTF-8") from None
    if not text.strip("\ufeff \t\r\n\f\v"):
        raise NotANote("blank", "it holds no text; delete it if it is no longer wanted")


# ------------------------------------------------------------------ slug and title


def file_name(slug: str) -> str:
    """Returns the name of the note's file.

    Raises input.invalid_params for anything but a slug, because nothing else is safe in a path.
    """
    if not re.match(SLUG, slug):
        raise KbprocError("input.invalid_params", f"{slug!r} is no slug.", field="slug")
    return f"{slug}.md"


def suggested_slug(name: str) -> str | None:
    """Returns the slug most like a file's name: "Gitea Hooks.md" → gitea-hooks."""
    plain = unicodedata.normalize("NFKD", name[:-3])
    plain = "".join(c for c in plain if not unicodedata.combining(c)).lower()
    slug = re.sub("[^a-z0-9]+", "-", plain).strip("-")[:64].strip("-")
    return slug if len(slug) >= 2 else None


def may_have_head(text: str) -> bool:
    """Returns True for a text that may begin with front matter, in a language that parsers read."""
    return text.removeprefix("\ufeff").startswith(("---", "+++", "{"))


def words_of(slug: str) -> str:
    """Returns the slug as a title."""
    words = slug.replace("-", " ")
    return words[:1].upper() + words[1:]


def title_of(text: str, slug: str) -> str:
    """Returns the first line that starts with "# ", outside of fenced code; else the slug in words.

    The title has at most 300 characters, and none that are forbidden in names.
    """
    fence = ""
    for line in re.split(r"\r\n|\n|\r", text.removeprefix("\ufeff")):
        if fence:
            marks = line.strip()
            # CommonMark: closed by at least as many of the same mark, and nothing else.
            if marks.startswith(fence) and not marks.strip(fence[0]):
                fence = ""
        elif opening := _FENCE.match(line):
            fence = opening.group(1)
        elif line.startswith("# ") and (title := cleaned_title(line[2:])):
            return title
    return words_of(slug)


def cleaned_title(title: str) -> str:
    """Returns at most 300 characters of the title, those that can't be seen left out."""
    return one_line(title, MOST_TITLE)
