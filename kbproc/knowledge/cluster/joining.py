"""A store that begins to follow a stream, and was cut off while its log was exchanged.

Owns: the mark that says so, and making the store one that nobody has written to again.
Refuses to know: which stream, and how its records come.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from kbproc.base.durable import replace, sync_folder

_MARK = "joining"


def begin(folder: Path) -> None:
    """From here on the log and the views may be of two stores. Raises OSError."""
    replace(folder / _MARK, b"")


def end(folder: Path) -> None:
    """Raises OSError."""
    (folder / _MARK).unlink()
    sync_folder(folder)


def finish(folder: Path) -> None:
    """What was cut off leaves no record: all of them are the stream's. Raises OSError."""
    if (folder / _MARK).exists():
        for name in ("views", "log", "log.joining"):
            shutil.rmtree(folder / name, ignore_errors=True)
        sync_folder(folder)
        end(folder)
