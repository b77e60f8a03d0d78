"""Sources of a store that was written before there were packs.

Each is a file, `STORE/blobs/ab/abcd…` or one folder deeper, named by its sha256. The newest may be
in `STORE/blobs.journal` instead, which has the frames of a pack and may be ahead of the files.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from kbproc.base import disk, durable
from kbproc.engine.sources.packs import Pack, is_file


class OlderSources:
    """The files of an older store; none are ever added."""

    def __init__(self, store: Path) -> None:
        self._folder = store / "blobs"
        self._journal_path = store / "blobs.journal"
        self.may_hold_some = self._folder.is_dir()

    def journal(self) -> Pack | None:
        """Returns the journal, if there is one. Raises OSError."""
        return Pack(self._journal_path) if os.path.lexists(self._journal_path) else None

    def path(self, name: str) -> Path | None:
        """Returns the source's file; None if there is none. A symlink does not count."""
        if not self.may_hold_some:
            return None
        beside = self._folder / name[:2]
        return next(filter(is_file, (beside / name, beside / name[2:4] / name)), None)

    def files(self) -> Iterator[Path]:
        """Yields the files of all sources. Raises OSError."""
        for pattern in ("*/*", "*/*/*"):
            for path in self._folder.glob(pattern):
                if path.suffix != ".tmp" and is_file(path):
                    yield path

    def remove_folders(self) -> None:
        """Removes the folders that are empty."""
        for pattern in ("*/*/", "*/", ""):
            for folder in self._folder.glob(pattern) if pattern else [self._folder]:
                with contextlib.suppress(OSError):
                    disk.remove_folder(folder)
        with contextlib.suppress(OSError):
            durable.sync_folder(self._folder.parent)
        self.may_hold_some = self._folder.is_dir()

    def sweep(self) -> None:
        """Removes temporary files of processes that died while writing. Raises OSError."""
        for pattern in ("*/*.tmp", "*/*/*.tmp"):
            for path in self._folder.glob(pattern):
                durable.remove(path)
