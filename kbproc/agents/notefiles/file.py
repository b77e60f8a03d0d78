"""One note's file: what it must be to be a note, its bytes, its name and its title.

Owns: which files are notes and why others are not; reading one while an editor may be saving
it; the slug that a file's name gives, and the title that its text gives.
Refuses to know: what else is in the folder, and what was recorded of the note.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import stat
import unicodedata
from collections.abc import Callable

from kbproc.base.errors import KbprocError
from kbproc.base.values import FORBIDDEN_IN_NAMES, SLUG

MOST_BYTES = 64 * 1024
MOST_TITLE = 300  # characters

_SYMLINK = "it is a symbolic link, and links are not followed; copy the file here instead"
_LARGE = "it is over 64 KiB, the most that a note may hold; split it"
_FENCE = re.compile(r" {0,3}(`{3,}(?=[^`]*$)|~{3,})")

Stat = tuple[int, int, int, int]  # mtime_ns, size in bytes, inode, ctime_ns


class NotANote(Exception):
    """A file that is no note as it stands. `reason` is the end of a sentence.

    `code`: symlink, special, name, large, encoding, nul, blank, unreadable.
    """

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


# ------------------------------------------------------------------ its bytes


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def read_stable(folder: int, name: str, clock: Callable[[], int]) -> tuple[Stat, bytes, int]:
    """The file's stat, its bytes, and when they were read by `clock`.

    The stat is taken before the bytes, so that a later change does not match it. Raises
    FileNotFoundError, NotANote, OSError.
    """
    fd = open_file(folder, name)
    try:
        found = stat_of(os.fstat(fd))
        for _ in range(3):  # an editor may have saved half of the text so far
            at = clock()
            data = all_bytes(fd)
            before, found = found, stat_of(os.fstat(fd))
            if before == found:
                break
    finally:
        os.close(fd)
    require_text(data)
    return before, data, at


def stat_of(status: os.stat_result) -> Stat:
    return status.st_mtime_ns, status.st_size, status.st_ino, status.st_ctime_ns


def open_file(folder: int, name: str) -> int:
    """A descriptor to read from; a pipe is not waited for.

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
    """The whole file, or one byte more than a note may hold."""
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


# ------------------------------------------------------------------ its name and title


def file_name(slug: str) -> str:
    """Raises input.invalid_params for anything but a slug: nothing else is safe in a path."""
    if not re.match(SLUG, slug):
        raise KbprocError("input.invalid_params", f"{slug!r} is no slug.", field="slug")
    return f"{slug}.md"


def suggested_slug(name: str) -> str | None:
    """The slug most like a file's name: "Gitea Hooks.md" → gitea-hooks."""
    plain = unicodedata.normalize("NFKD", name[:-3])
    plain = "".join(c for c in plain if not unicodedata.combining(c)).lower()
    slug = re.sub("[^a-z0-9]+", "-", plain).strip("-")[:64].strip("-")
    return slug if len(slug) >= 2 else None


def title_of(text: str, slug: str) -> str:
    """The first line that starts with "# ", outside of fenced code; else the slug in words.

    It has at most 300 characters, and none that names may not hold.
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
    words = re.sub(FORBIDDEN_IN_NAMES, "", title).split()
    return " ".join(words)[:MOST_TITLE].rstrip()
