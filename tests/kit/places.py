"""Folders at the same path on every machine, because recorded bytes contain the path."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO


@contextmanager
def alone_at(path: Path) -> Iterator[Path]:
    """Makes an empty folder at this path, for one test at a time, and removes it at the end.

    Remains of a killed run are removed first.
    """
    lock = _locked(path.with_name(f"{path.name}.lock"))
    try:
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir()
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        Path(lock.name).unlink()
        lock.close()


def _locked(path: Path) -> TextIO:
    """Returns the locked lock file; retries if its previous holder removed it."""
    while True:
        with suppress(FileNotFoundError):
            path.parent.mkdir(exist_ok=True)
            file = path.open("w")
            fcntl.flock(file, fcntl.LOCK_EX)
            with suppress(FileNotFoundError):
                if os.path.samestat(path.stat(), os.fstat(file.fileno())):
                    return file
            file.close()
