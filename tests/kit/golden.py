"""Golden transcripts as files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode

from tests.kit.talk import REPO


class Transcripts(SingleFileSnapshotExtension):
    """One plain file a conversation, below golden/."""

    _write_mode = WriteMode.TEXT
    file_extension = "txt"

    @classmethod
    def dirname(cls, *, test_location: Any) -> str:
        return str(REPO / "golden" / Path(test_location.filepath).stem)

    def delete_snapshots(self, *, snapshot_location: str, snapshot_names: set[str]) -> None:
        """Never: a conversation that fails on its way is not one that is gone."""
