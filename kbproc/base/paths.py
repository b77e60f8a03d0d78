"""Resolves the paths that a request names, and opens them safely.

It reads paths as people type them, checks them against the root, and opens files and folders that
must lie within a folder. It writes new files and reads regular files up to a limit.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterable
from pathlib import Path, PurePath

from kbproc.base.errors import KbprocError, is_lasting
from kbproc.base.wording import plural

# A root that contains nothing, for a process that was started without a folder.
NOWHERE = Path("/dev/null")
WITHIN = "!/"  # between the path of a source and that of a file within it
_FILE_URI = "file://"
_MOST_SHOWN = 200
_ABSENT = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP}  # nothing is there, or can be
_IN_URI = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-~/")
_REMOVED = "the working folder, where it starts, has been removed."
_GO_ELSEWHERE = "Name an absolute path, or change to a folder that exists."


def suffix_of(name: str) -> str:
    """Returns the suffix of a file's name in small letters: "a.PY" → ".py".

    It is pathlib's up to Python 3.13; a later one takes the last dot of "a." for a suffix.
    """
    if "/" in name:
        name = PurePath(name).name
    dot = name.rfind(".")  # a tenth of pathlib's time, for each text that is written
    return name[dot:].lower() if 0 < dot < len(name) - 1 else ""


def reason_of(error: OSError) -> str:
    """Returns why a call failed; an error that Python's own code raises has words but no number."""
    return error.strerror or str(next(iter(error.args), type(error).__name__))


def uri_path(path: Path) -> str:
    """Returns the path as it stands in a URI; urllib would be imported for that alone."""
    data = os.fsencode(path)
    return "".join(chr(byte) if byte in _IN_URI else f"%{byte:02X}" for byte in data)


def listed(folder: Path, first: str, last: str) -> list[Path]:
    """Returns the paths in a folder whose names begin and end so, sorted; none without a folder.

    Path.glob takes ten times as long, because it makes a regular expression.
    """
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        names = os.listdir(folder)  # noqa: PTH208  because a Path for each name takes long
        return [
            folder / name
            for name in sorted(names)
            if name.startswith(first) and name.endswith(last)
        ]
    return []


def from_uri(path: str) -> str:
    """Returns the path that a file:// URI means; any other path as it is.

    Raises ValueError for a URI of another machine.
    """
    if not path.lower().startswith(_FILE_URI):
        return path
    from urllib.parse import unquote, urlsplit  # imported here, because few paths are URIs

    try:
        parts = urlsplit(path)
    except ValueError:
        raise ValueError("that is no URI of a file") from None
    if parts.netloc not in {"", "localhost"} or not parts.path:
        raise ValueError("that is a file of another machine")
    return unquote(parts.path, errors="surrogateescape")


def _named(text: str, *, field: str) -> Path:
    """Returns the path that a text names, with `~` as a home. Raises input.invalid_params.

    The reasons are kbproc's own, because those of Python differ from version to version.
    """
    hint = "Name another path."
    try:
        path = from_uri(text)
        if "\0" in path:
            raise ValueError("it holds a NUL")
        os.fsencode(path)
        return Path(path).expanduser()
    except UnicodeEncodeError:
        why = "it holds half a character"
    except ValueError as error:
        why = str(error)
    except RuntimeError:
        why = f"{text.partition('/')[0]} is no user's home"
        hint = f"For a folder of that name, write ./{text}."
    raise _refused(text, f"{why}.", hint, field=field)


def _refused(text: str, why: str, hint: str, *, field: str) -> KbprocError:
    message = f"{field} is {text[:_MOST_SHOWN]!r}: {why}"
    return KbprocError("input.invalid_params", message, field=field, hint=hint)


def absolute(text: str, *, field: str) -> Path:
    """Returns the absolute path of a person's text: `~` is a home, and a relative path starts in
    the working folder.

    Symbolic links keep their names, except those before a `..`: libraries that shorten such a path
    by its text alone would open another file. Raises input.invalid_params.
    """
    named = _named(text, field=field)
    try:
        full = named.absolute()
        if ".." not in full.parts:
            return full
        plain, real = os.path.normpath(full), os.path.realpath(full)
        return Path(plain if os.path.realpath(plain) == real else real)
    except FileNotFoundError:
        raise _refused(text, _REMOVED, _GO_ELSEWHERE, field=field) from None


def existing_folder(text: str, *, field: str) -> Path:
    """Returns the absolute path of a folder; see `absolute`. Raises resource.not_found, too."""
    folder = absolute(text, field=field)
    if not folder.is_dir():
        raise KbprocError(
            "resource.not_found",
            f"There is no folder {folder}.",
            field=field,
            hint="Name a folder that exists.",
        )
    return folder


def working_folder() -> Path:
    """Returns the working folder; NOWHERE if it was removed, so that only relative paths fail."""
    try:
        return Path.cwd()
    except OSError:
        return NOWHERE


def from_here(path: Path) -> str:
    """Returns an absolute path as people type it: relative below the working folder."""
    with contextlib.suppress(ValueError, OSError):
        relative = str(path.relative_to(Path.cwd()))
        return str(path) if relative == "." else relative
    return str(path)


def locate(path: str, *, cwd: Path, root: Path | None, field: str) -> Path:
    """Returns an absolute path without symlinks, below `root` if there is one; it need not exist.

    Raises path.outside_root, input.invalid_params.
    """
    named = _named(path, field=field)
    full = Path(os.path.realpath(cwd / named))
    try:
        full.lstat()
    except OSError as error:
        if error.errno not in _ABSENT:
            why = f"{reason_of(error)}."
            raise _refused(path, why, "Name another path.", field=field) from None
    if cwd == NOWHERE and not named.is_absolute():
        raise _refused(path, _REMOVED, _GO_ELSEWHERE, field=field)
    if root == NOWHERE:
        raise KbprocError(
            "path.outside_root",
            f"{full} can't be used: no folder was named below which files may be used, and {cwd} "
            "is too much to be meant without a word.",
            field=field,
            hint="Start kbproc with --root FOLDER, or start the client in a project's folder.",
            detail={"root": None},
        )
    if root is not None and not full.is_relative_to(root):
        raise KbprocError(
            "path.outside_root",
            f"{full} lies outside {root}.",
            field=field,
            detail={"root": str(root)},
        )
    return full


def resolve(path: str, *, cwd: Path, root: Path | None, field: str) -> Path:
    """Returns `locate`'s path of an existing file; raises resource.not_found."""
    full = locate(path, cwd=cwd, root=root, field=field)
    if not full.exists():
        raise KbprocError(
            "resource.not_found",
            f"There is no file or folder {full}.",
            field=field,
            hint=f"Check the path; relative ones start at {cwd}.",
        )
    return full


def write_new(path: Path, parts: Iterable[bytes], *, field: str) -> None:
    """Writes a new, durable file of mode 0600, whole or not at all.

    Unlike durable.replace it never overwrites another file, and it never makes a folder.
    Raises resource.already_exists, resource.not_found, store.io.
    """
    from kbproc.base import durable  # not above: most processes write no new file of a person's

    temporary = path.with_name(f"{path.name[:100]}.partial-{os.urandom(4).hex()}")
    try:
        with durable.create(temporary) as file:
            file.writelines(parts)
        _name(temporary, path)
        durable.sync_folder(path.parent)
    except FileExistsError:
        raise KbprocError(
            "resource.already_exists", f"{path} exists and is not overwritten.", field=field
        ) from None
    except FileNotFoundError:
        raise KbprocError(
            "resource.not_found",
            f"There is no folder {path.parent}.",
            field=field,
            hint="Make that folder first, or name another.",
        ) from None
    except OSError as error:
        raise KbprocError(
            "store.io",
            f"{path} could not be written: {reason_of(error)}.",
            lasting=is_lasting(error),
        ) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def _name(temporary: Path, path: Path) -> None:
    """Gives the file its name with a link, which never replaces another file.

    Renames it instead where the file system has no links.
    """
    try:
        os.link(temporary, path)
    except FileExistsError:
        raise
    except OSError:
        if os.path.lexists(path):
            raise FileExistsError(str(path)) from None
        temporary.rename(path)


def mode_of(path: Path) -> int:
    """Returns the path's mode; 0 if it does not exist or can't be examined."""
    try:
        return path.stat().st_mode
    except OSError:
        return 0


def is_gone(path: str | Path) -> bool:
    """Returns True only if certainly nothing exists at the path; False if it can't be looked at."""
    try:
        os.stat(path)  # noqa: PTH116  a Path takes several times as long
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return False


def printable(path: Path) -> str:
    """Returns the path as text; Linux allows any bytes in a name."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


# O_PATH needs no permission to list the folders on the way; macOS has no such flag.
_ON_THE_WAY = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# O_NONBLOCK, because opening a pipe would block its reader for ever.
_FILE = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_NOCTTY | os.O_CLOEXEC
_FOLLOWED = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_LASTING = {errno.ELOOP, errno.EINVAL}
_STEP = 64 << 10  # bytes to read at once from a file that does not report its size


def open_regular(name: str | Path, *, folder: int | None = None) -> int:
    """Returns a descriptor of a regular file in the folder; never follows a link.

    Raises OSError for a link, a device or a pipe, with a `strerror` that completes "it can't be
    read: …".
    """
    # A device is not even opened, because some act on opening.
    _require_regular(os.stat(name, dir_fd=folder, follow_symlinks=False))
    fd = os.open(name, _FILE, dir_fd=folder)
    try:
        _require_regular(os.fstat(fd))
    except OSError:
        os.close(fd)
        raise
    return fd


def open_followed(path: str | Path, flags: int = _FOLLOWED, folder: int | None = None) -> int:
    """Opens a regular file, also over a link; opening a pipe would block. Raises OSError."""
    fd = os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY, dir_fd=folder)
    mode = os.fstat(fd).st_mode
    if stat.S_ISREG(mode):
        return fd
    os.close(fd)
    if stat.S_ISDIR(mode):
        raise OSError(errno.EISDIR, os.strerror(errno.EISDIR))
    raise OSError(errno.EINVAL, "It is no regular file")


def _require_regular(status: os.stat_result) -> None:
    if stat.S_ISLNK(status.st_mode):
        raise OSError(errno.ELOOP, "it is a symbolic link")
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "it is no regular file")


def open_file(path: Path, *, within: Path | None = None) -> int:
    """Returns a descriptor of the regular file at `path`. Raises as `open_folder` does."""
    return _opened(path, within, lambda name, folder: open_regular(name, folder=folder))


def open_folder(path: Path, *, within: Path | None = None) -> int:
    """Returns a descriptor of the folder at `path`, which must lie within `within`.

    Symlinks are resolved first, and the target is checked. The target is then opened name by name,
    without following links, so that a link that is put there later has no effect, not even in the
    place of `within`. Raises path.outside_root, OSError.
    """
    return _opened(path, within, _open_listed)


def _opened(path: Path, within: Path | None, open_last: Callable[[str, int], int]) -> int:
    real = Path(os.path.realpath(path, strict=True))
    start = within or Path(real.anchor)
    if not real.is_relative_to(start):
        message = f"{printable(path)} leads out of {printable(start)}."
        raise KbprocError("path.outside_root", message)
    return _descend(real, open_last)


def open_unlinked(folder: Path) -> int:
    """Returns a descriptor of the folder at an absolute path that holds no symlink.

    Raises OSError; for a link ELOOP, with a `strerror` that names it.
    """
    try:
        return _descend(folder, _open_listed)
    except OSError as error:
        for path in (*reversed(folder.parents), folder):
            if path.is_symlink():
                why = f"{printable(path)} is a symlink, which is not followed"
                raise OSError(errno.ELOOP, why) from error
        raise


def _open_listed(name: str, folder: int) -> int:
    return os.open(name, _FOLDER, dir_fd=folder)


def _descend(path: Path, open_last: Callable[[str, int], int]) -> int:
    """Returns the result of `open_last` for the last name of an absolute path; the others must be
    folders, not links.
    """
    *folders, last = path.parts[1:] or (".",)
    current = os.open(path.anchor, _ON_THE_WAY)
    try:
        for name in folders:
            below = os.open(name, _ON_THE_WAY | os.O_NOFOLLOW, dir_fd=current)
            os.close(current)
            current = below
        return open_last(last, current)
    finally:
        os.close(current)


def read_file(path: Path, most: int, *, within: Path | None = None) -> bytes:
    """Returns a file's bytes. Raises path.outside_root, input.too_large, operation.failed."""
    return _whole(path, most, lambda: open_file(path, within=within))


class PathReading:
    """Reads one file after another; it keeps the last one's folder open for the next."""

    def __init__(self) -> None:
        self._at: tuple[Path, Path | None] | None = None
        self._folder = -1

    def read(self, path: Path, most: int, *, within: Path | None = None) -> bytes:
        """See `read_file`."""

        def opened() -> int:
            with contextlib.suppress(OSError, KbprocError):
                return open_regular(path.name, folder=self._of(path.parent, within))
            return open_file(path, within=within)  # follows a link, or raises the reason

        return _whole(path, most, opened)

    def _of(self, folder: Path, within: Path | None) -> int:
        if self._at != (folder, within):
            self.close()
            self._folder = open_folder(folder, within=within)
            self._at = folder, within
        return self._folder

    def close(self) -> None:
        if self._at is not None:
            self._at = None
            os.close(self._folder)


def _whole(path: Path, most: int, opened: Callable[[], int]) -> bytes:
    try:
        fd = opened()
        try:
            data = _read(fd, most + 1)
        finally:
            os.close(fd)
    except OSError as error:
        raise KbprocError(
            "operation.failed",
            f"{path.name} can't be read: {error.strerror}.",
            passing=error.errno not in _LASTING,
        ) from error
    if len(data) > most:
        raise KbprocError(
            "input.too_large",
            f"{path.name} has more than {plural(most, 'byte')}.",
            hint="Raise max_file_bytes, or split the file.",
        )
    return data


def _read(fd: int, most: int) -> bytes:
    """Returns up to `most` bytes, also of a file whose reported size is 0."""
    parts, remaining, step = [], most, max(os.fstat(fd).st_size, _STEP)
    while part := os.read(fd, min(step, remaining)):
        parts.append(part)
        remaining -= len(part)
    return b"".join(parts)
