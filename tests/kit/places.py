"""Folders that lie at the same path on every machine, since recorded bytes name them."""

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
    """An empty folder at this path, for one test of one run at a time; nothing of it stays.

    What a run that was killed has left there is removed.
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
    """The lock file, held; whoever held it before may have removed it meanwhile."""
    while True:
        with suppress(FileNotFoundError):
            path.parent.mkdir(exist_ok=True)
            file = path.open("w")
            fcntl.flock(file, fcntl.LOCK_EX)
            with suppress(FileNotFoundError):
                if os.path.samestat(path.stat(), os.fstat(file.fileno())):
                    return file
            file.close()
