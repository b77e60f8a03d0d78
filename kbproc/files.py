"""Which files an ingest means.

Owns: paths against the root, walking folders, what is skipped: hidden files,
git's ignored ones, symlinks that lead out.
Refuses to know: formats, and what becomes of a file.
"""

from __future__ import annotations

import fnmatch
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from kbproc import gitignore
from kbproc.errors import KbprocError
from kbproc.gitignore import Ignores
from kbproc.words import plural


def locate(path: str, *, cwd: Path, root: Path | None, field: str) -> Path:
    """An absolute path without symlinks, below `root` if there is one; it need not exist.

    Raises path.outside_root, input.invalid_params.
    """
    try:
        full = Path(os.path.realpath(cwd / Path(path).expanduser()))
        full.exists()
    except (ValueError, OSError, RuntimeError) as error:
        raise KbprocError(
            "input.invalid_params", f"{field} is no usable path: {error}.", field=field
        ) from None
    if root is not None and not full.is_relative_to(root):
        raise KbprocError(
            "path.outside_root",
            f"{full} lies outside {root}.",
            field=field,
            detail={"root": str(root)},
        )
    return full


def resolve(path: str, *, cwd: Path, root: Path | None, field: str) -> Path:
    """Like `locate`, of something that exists; raises resource.not_found."""
    full = locate(path, cwd=cwd, root=root, field=field)
    if not full.exists():
        raise KbprocError(
            "resource.not_found",
            f"There is no file or folder {full}.",
            field=field,
            hint=f"Check the path; relative ones start at {cwd}.",
        )
    return full


def write_new(path: Path, data: bytes, *, field: str) -> None:
    """Never over an existing file, nor into a folder that isn't there.

    Raises resource.already_exists, resource.not_found, store.io.
    """
    try:
        with path.open("xb") as file:
            file.write(data)
    except FileExistsError:
        raise KbprocError(
            "resource.already_exists", f"{path} exists and is not overwritten.", field=field
        ) from None
    except FileNotFoundError:
        raise KbprocError(
            "resource.not_found", f"There is no folder {path.parent}.", field=field,
            hint="Make that folder first, or name another.",
        ) from None  # fmt: skip
    except OSError as error:
        raise KbprocError("store.io", f"{path} could not be written: {error.strerror}.") from None


def walk(
    start: Path,
    *,
    root: Path | None,
    recursive: bool = True,
    glob: str | None = None,
    exclude: Sequence[str] = (),
) -> Iterator[Path]:
    """The regular files below `start` in path order; `start` itself if it is a file.

    A symlink is followed only if what it leads to stays below `start` (or `root`); a
    folder that is a store is passed over.
    """
    if not start.is_dir():
        yield start
        return
    ignores = _ignores_above(start)
    yield from _walk(start, start, root or start, ignores, recursive, glob, exclude)


def _walk(
    folder: Path,
    start: Path,
    limit: Path,
    ignores: list[Ignores],
    recursive: bool,
    glob: str | None,
    exclude: Sequence[str],
) -> Iterator[Path]:
    ignores = [*ignores, *gitignore.read(folder)]
    for entry in sorted(_entries(folder), key=lambda entry: entry.name):
        path = folder / entry.name
        if entry.name.startswith(".") or _excluded(path, start, exclude):
            continue
        if entry.is_symlink() and not _stays(path, limit):
            continue
        is_folder = entry.is_dir()
        if gitignore.ignored(path, is_folder, ignores):
            continue
        if is_folder:
            # A link to a folder above would never end.
            if recursive and not entry.is_symlink() and not is_store(path):
                yield from _walk(path, start, limit, ignores, recursive, glob, exclude)
        elif entry.is_file() and (glob is None or _matches(path, start, glob)):
            yield path


def is_store(folder: Path) -> bool:
    return (folder / "store.toml").is_file() and (folder / "log").is_dir()


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:  # unreadable or gone meanwhile: nothing to ingest there
        return []


def _stays(path: Path, limit: Path) -> bool:
    return Path(os.path.realpath(path)).is_relative_to(limit)


def _matches(path: Path, start: Path, pattern: str) -> bool:
    relative = path.relative_to(start).as_posix()
    return fnmatch.fnmatch(relative, pattern) or fnmatch.fnmatch(path.name, pattern)


def _excluded(path: Path, start: Path, patterns: Sequence[str]) -> bool:
    return any(_matches(path, start, pattern.rstrip("/")) for pattern in patterns)


def _ignores_above(start: Path) -> list[Ignores]:
    """The .gitignore files between the repository's top and `start`."""
    above = list(start.parents)
    tops = [i for i, folder in enumerate(above) if (folder / ".git").exists()]
    if (start / ".git").exists() or not tops:
        return []
    return [found for folder in reversed(above[: tops[0] + 1]) for found in gitignore.read(folder)]


def is_gone(path: Path) -> bool:
    """True if it is certain that nothing is there; what can't be looked at is not gone."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return False


def shown(path: Path) -> str:
    """The path as text; Linux takes any bytes for a name."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def read(path: Path, most: int) -> bytes:
    """Raises input.too_large, operation.failed with the reason."""
    try:
        # A pipe that is opened to be waited for would hold up the ingest for ever.
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(fd, "rb") as file:  # noqa: PTH123
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise KbprocError("operation.failed", f"{path.name} is no regular file.")
            data = file.read(most + 1)
    except OSError as error:
        raise KbprocError(
            "operation.failed", f"{path.name} can't be read: {error.strerror}."
        ) from error
    if len(data) > most:
        raise KbprocError(
            "input.too_large",
            f"{path.name} has more than {plural(most, 'byte')}.",
            hint="Raise max_file_bytes, or split the file.",
        )
    return data


def sync_folder(folder: Path) -> None:
    """Makes the names in it durable. Raises OSError."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
