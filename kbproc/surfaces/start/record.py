"""Remembers what starts have done outside of their stores, so that it can be undone.

The record is written before the act: an undo after a kill finds more than was done, never less.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from kbproc.base.values import decoder
from kbproc.surfaces.setup.change import InstallationRecord

_decoder = decoder(dict[str, Any])


class StartRecord:
    """The acts of the starts of one folder: kind → names, in their order."""

    def __init__(self, records: Path, folder: Path) -> None:
        """`records`: kbproc's own folder of settings."""
        self.folder = folder
        self._file = InstallationRecord(path=records / "started.json", decoder=_decoder)

    @property
    def token(self) -> str:
        """Returns the beginning of the tokens of this folder's starts."""
        return f"start-{hashlib.blake2b(str(self.folder).encode(), digest_size=6).hexdigest()}-"

    @property
    def path(self) -> Path:
        return self._file.path

    @property
    def is_there(self) -> bool:
        return self._file.of(self.folder) is not None

    def names(self, kind: str) -> list[str]:
        members = self._file.of(self.folder)
        names = members.get(kind, []) if isinstance(members, dict) else []
        return [str(name) for name in names] if isinstance(names, list) else []

    def note(self, kind: str, name: str) -> None:
        """Adds a name to a kind, once."""
        members = self._file.of(self.folder)
        members = members if isinstance(members, dict) else {}
        names = self.names(kind)
        if name not in names:
            self._file.keep(self.folder, {**members, kind: [*names, name]})

    def note_folders(self, path: Path) -> None:
        """Adds the folders above a file that are not there yet, the uppermost first."""
        for folder in reversed([each for each in path.parents if not each.exists()]):
            self.note("folders", str(folder))

    def drop(self) -> None:
        self._file.keep(self.folder, None)
