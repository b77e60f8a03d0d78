"""Paths that a request names.

Owns: paths against the root, new files, reading a bounded regular file, a path as text.
Refuses to know: what is in the files, and walking folders.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from kbproc.base.errors import KbprocError, is_lasting
from kbproc.base.wording import plural


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
            "resource.not_found",
            f"There is no folder {path.parent}.",
            field=field,
            hint="Make that folder first, or name another.",
        ) from None
    except OSError as error:
        raise KbprocError(
            "store.io",
            f"{path} could not be written: {error.strerror}.",
            lasting=is_lasting(error),
        ) from None


def is_gone(path: Path) -> bool:
    """True if it is certain that nothing is there; what can't be looked at is not gone."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return False


def printable(path: Path) -> str:
    """The path as text; Linux takes any bytes for a name."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def read_file(path: Path, most: int) -> bytes:
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
