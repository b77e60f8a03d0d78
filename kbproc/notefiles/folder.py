"""An agent's folder of Markdown: what is in it.

Owns: which of its files are notes, `<slug>.md` directly in it; what else is skipped
and why; reading without following links; a note's title.
Refuses to know: what was recorded of it, and how a note is written (noteedit.py).
A folder that can't be looked at is Unavailable, never empty.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import stat
import time
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec

from kbproc.base import paths
from kbproc.base.errors import KbprocError
from kbproc.base.values import FORBIDDEN_IN_NAMES, SLUG

MOST_BYTES = 64 * 1024
MOST_TITLE = 300  # characters
# Two changes of a file may bear the same time: FAT counts in two seconds. What was first
# seen longer ago than this cannot change any more without its stat changing.
SETTLED_NS = 3_000_000_000

# What stands in the folder while noteedit.py works, or after it died: see notehidden.py.
_NAME = "[a-z0-9][a-z0-9-]{0,62}[a-z0-9]"
PART = re.compile(rf"\.{_NAME}\.\d+\.kbproc-part")
KEPT = re.compile(rf"\.({_NAME})\.([0-9a-f]{{32}}|-)\.([0-9a-f]{{32}})\.\d+\.kbproc")

Stat = tuple[int, int, int, int]  # mtime_ns, size in bytes, inode, ctime_ns


class Unavailable(KbprocError):
    """The folder can't be looked at, so nothing is known of its notes.

    `code`: missing, not_a_folder, unreadable, vanished.
    """

    def __init__(self, folder: Path, code: str, what: str) -> None:
        super().__init__(
            "store.io",
            f"The notes folder {paths.printable(folder)} {what}.",
            hint="Check the folder; the notes that are recorded stay as they are.",
            detail={"folder": paths.printable(folder), "code": code},
        )
        self.code = code


class Seen(msgspec.Struct, frozen=True):
    """A note's file. `since`: when this stat was first seen, monotonic; `settled`: if
    the stat is unchanged, so are the bytes."""

    sha256: str
    size: int
    stat: Stat
    since: int
    settled: bool


class Skipped(msgspec.Struct, frozen=True):
    """A file that is there and is no note as it stands.

    `slug`: the note that it is, or would be once renamed; None if its name gives none.
    `code`: symlink, special, name, large, encoding, nul, blank, unreadable.
    """

    name: str
    slug: str | None
    code: str
    reason: str


class Scan(msgspec.Struct, frozen=True):
    """`seen` by slug. `unfinished`: names that notehidden.leftovers has something to do with."""

    seen: dict[str, Seen]
    skipped: list[Skipped]
    unfinished: frozenset[str]

    def gone(self, slugs: Iterable[str]) -> set[str]:
        """Those with no file at all; what is skipped is there."""
        return set(slugs) - self.seen.keys() - {skipped.slug for skipped in self.skipped}


class Unfit(Exception):
    """What is there can't be taken for a note; carries a code and the end of a sentence."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def file_name(slug: str) -> str:
    """Raises input.invalid_params: only a slug is safe in a path."""
    if not re.fullmatch(SLUG, slug) or "\n" in slug:
        raise KbprocError("input.invalid_params", f"{slug!r} is no slug.", field="slug")
    return f"{slug}.md"


# ------------------------------------------------------------------ looking at it


def scan(
    folder: Path,
    known: Mapping[str, Seen] | None = None,
    *,
    clock: Callable[[], int] = time.monotonic_ns,
) -> Scan:
    """What is in the folder now; `known` is `seen` of the last scan, `clock` nanoseconds.

    Only files whose stat has changed, or is too fresh to be trusted, are read.
    Raises Unavailable, also if the folder goes away meanwhile.
    """
    known = known or {}
    seen: dict[str, Seen] = {}
    unfit: list[tuple[str, Unfit]] = []
    with opened(folder) as fd:
        names, unfinished = _listed(folder, fd)
        for name, status in names:
            slug = name.removesuffix(".md")
            try:
                _require_slug(name, slug)
                found = _seen(fd, name, status, known.get(slug), clock)
            except FileNotFoundError:
                continue
            except Unfit as why:
                unfit.append((name, why))
            except OSError as error:
                unfit.append((name, _unread(error)))
            else:
                seen[slug] = found
        _require_same(folder, fd)
    skipped = [_skipped(name, why, seen) for name, why in unfit]
    return Scan(seen=seen, skipped=skipped, unfinished=unfinished)


@contextmanager
def opened(folder: Path) -> Iterator[int]:
    """A descriptor of the folder, which may be a link that its user has named."""
    try:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
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
    """Raises Unavailable where that can't be told."""
    try:
        return folder.exists()
    except OSError as error:
        raise _unreadable(folder, error) from None


def _unreadable(folder: Path, error: OSError) -> Unavailable:
    return Unavailable(folder, "unreadable", f"can't be read: {error.strerror}")


Listed = list[tuple[str, os.stat_result | OSError]]


def _listed(folder: Path, fd: int) -> tuple[Listed, frozenset[str]]:
    """Every name that may be meant for a note, in order; and those of unfinished work."""
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
    """A folder that was deleted or moved while it was read has told less than there was."""
    try:
        same = os.path.samestat(folder.stat(), os.fstat(fd))
    except OSError:
        same = False
    if not same:
        raise Unavailable(folder, "vanished", "went away while it was read")


def _seen(
    folder: int,
    name: str,
    status: os.stat_result | OSError,
    before: Seen | None,
    clock: Callable[[], int],
) -> Seen:
    if isinstance(status, OSError):
        raise status
    if before and before.settled and before.stat == _stat(status):
        return before
    require_file(status)
    found, data, at = _read(folder, name, clock)
    sha256 = digest(data)
    same = before is not None and before.stat == found and before.sha256 == sha256
    since = before.since if before and same else at
    return Seen(sha256, len(data), found, since, at - since >= SETTLED_NS)


def _read(folder: int, name: str, clock: Callable[[], int]) -> tuple[Stat, bytes, int]:
    """The stat is taken before the bytes: what changes later will not match it."""
    fd = open_file(folder, name)
    try:
        found = _stat(os.fstat(fd))
        for _ in range(3):  # half of what an editor is just saving is no revision
            at = clock()
            data = content(fd)
            before, found = found, _stat(os.fstat(fd))
            if before == found:
                break
    finally:
        os.close(fd)
    require_text(data)
    return before, data, at


def _stat(status: os.stat_result) -> Stat:
    return status.st_mtime_ns, status.st_size, status.st_ino, status.st_ctime_ns


# ------------------------------------------------------------------ one file


def read(folder: Path, slug: str) -> bytes:
    """A note's bytes: UTF-8, at most 64 KiB, not blank; links are not followed.

    Raises resource.not_found; operation.failed, with `detail.code` as in Skipped;
    Unavailable.
    """
    name = file_name(slug)
    with opened(folder) as fd:
        try:
            require_file(os.stat(name, dir_fd=fd, follow_symlinks=False))
            return _read(fd, name, time.monotonic_ns)[1]
        except FileNotFoundError:
            raise KbprocError("resource.not_found", f"There is no file {folder / name}.") from None
        except Unfit as unfit:
            raise KbprocError(
                "operation.failed",
                f"{folder / name} is no note as it stands: {unfit.reason}.",
                detail={"code": unfit.code},
            ) from None
        except OSError as error:
            raise KbprocError(
                "store.io", f"{folder / name} could not be read: {error.strerror}."
            ) from None


def open_file(folder: int, name: str) -> int:
    """A descriptor to read from; a pipe is not waited for. Raises FileNotFoundError, Unfit."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        fd = os.open(name, flags, dir_fd=folder)
    except FileNotFoundError:
        raise
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise Unfit("symlink", _SYMLINK) from None
        raise _unread(error) from None
    try:
        require_file(os.fstat(fd))
    except (Unfit, OSError):
        os.close(fd)
        raise
    return fd


def _unread(error: OSError) -> Unfit:
    return Unfit("unreadable", f"it can't be read ({error.strerror})")


_SYMLINK = "it is a symbolic link, and links are not followed; copy the file here instead"


def require_file(status: os.stat_result) -> None:
    if stat.S_ISLNK(status.st_mode):
        raise Unfit("symlink", _SYMLINK)
    if not stat.S_ISREG(status.st_mode):
        raise Unfit("special", "it is no regular file")
    if status.st_size > MOST_BYTES:
        raise Unfit("large", "it is over 64 KiB, the most that a note may hold; split it")


def content(fd: int) -> bytes:
    """All of it, or one byte more than a note may hold."""
    data = bytearray()
    os.lseek(fd, 0, os.SEEK_SET)
    while more := os.read(fd, MOST_BYTES + 1 - len(data)):
        data += more
    return bytes(data)


def require_text(data: bytes) -> None:
    """Raises Unfit: what a note's bytes must be, from whoever they come."""
    if len(data) > MOST_BYTES:
        raise Unfit("large", "it is over 64 KiB, the most that a note may hold; split it")
    if b"\0" in data:
        raise Unfit("nul", "it holds NUL bytes, so it is no text")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        where = f"see byte {error.start + 1}"
        raise Unfit("encoding", f"it is not UTF-8 ({where}); save it as UTF-8") from None
    if not text.strip("\ufeff \t\r\n\f\v"):
        raise Unfit("blank", "it holds no text; delete it if it is no longer wanted")


# ------------------------------------------------------------------ names


def _require_slug(name: str, slug: str) -> None:
    # The suffix may be .MD, and $ would let a newline pass.
    if slug == name or "\n" in slug or not re.match(SLUG, slug):
        raise Unfit("name", "")


def _skipped(name: str, unfit: Unfit, seen: Mapping[str, Seen]) -> Skipped:
    shown = paths.printable(Path(name))
    slug: str | None = name.removesuffix(".md")
    reason = unfit.reason
    if unfit.code == "name":
        slug = suggested(name)
        reason = "a note's name is 2 to 64 lower-case letters, digits and hyphens"
        if slug is not None:
            better = f"{slug[:62]}-2" if slug in seen else slug
            reason = f"its name is no slug; rename it to {better}.md"
    return Skipped(shown, slug, unfit.code, f"{shown} is skipped: {reason}.")


def suggested(name: str) -> str | None:
    """The slug most like a file's name: "Gitea Hooks.md" → gitea-hooks."""
    plain = unicodedata.normalize("NFKD", name[:-3])
    plain = "".join(c for c in plain if not unicodedata.combining(c)).lower()
    slug = re.sub("[^a-z0-9]+", "-", plain).strip("-")[:64].strip("-")
    return slug if len(slug) >= 2 else None


_FENCE = re.compile(r" {0,3}(`{3,}(?=[^`]*$)|~{3,})")


def title_of(text: str, slug: str) -> str:
    """The first line that starts with "# ", outside of fenced code; else the slug in words.

    At most 300 characters, none that names may not hold.
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
        elif line.startswith("# ") and (title := _cleaned(line[2:])):
            return title
    words = slug.replace("-", " ")
    return words[:1].upper() + words[1:]


def _cleaned(title: str) -> str:
    words = FORBIDDEN_IN_NAMES.sub("", title).split()
    return " ".join(words)[:MOST_TITLE].rstrip()
