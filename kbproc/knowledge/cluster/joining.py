"""Recovers a store whose change to a stream was interrupted.

A mark in the folder records the change. An interrupted store becomes a new one again.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from kbproc.base.durable import replace, sync_folder

_MARK = "joining"


def begin(folder: Path) -> None:
    """Sets the mark: from now on the log and the projections may differ. Raises OSError."""
    replace(folder / _MARK, b"")


def end(folder: Path) -> None:
    """Removes the mark. Raises OSError."""
    (folder / _MARK).unlink()
    sync_folder(folder)


def finish(folder: Path) -> None:
    """Removes the log and the projections of an interrupted change. Raises OSError.

    No records are lost, because all of them are in the stream.
    """
    if (folder / _MARK).exists():
        for name in ("views", "log", "log.joining"):
            shutil.rmtree(folder / name, ignore_errors=True)
        sync_folder(folder)
        end(folder)
