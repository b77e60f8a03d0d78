"""Says what a difference between an agent's folder and the log means."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from kbproc.engine.store.state import SeenStore
from kbproc.knowledge.agents.notes.diff import Diff, folder_is_gone


class FolderRules:
    """The rules of a sync whose folder alone has the notes.

    A missing file means that a person removed the note. A node of a cluster has other rules; see
    knowledge/cluster/notes.py.
    """

    gather_s = 0.0  # how long a sync waits, so that it takes in several writes at once

    def judge(
        self, store: SeenStore, agent: str, diff: Diff, with_renames: Callable[[Diff], Diff]
    ) -> Diff:
        """Returns the diff as a sync carries it out; `with_renames` finds renamed files in it."""
        return with_renames(diff)

    def check_missing(self, folder: Path, agent: str, note_count: int) -> None:
        """Raises Unavailable if a person may have removed the folder of so many notes."""
        if note_count:
            raise folder_is_gone(folder, agent, note_count)

    def replace_missing(self, make: Callable[[], None]) -> None:
        """Calls `make` for a missing folder that a sync fills again; here a sync fills none."""

    def is_earlier_text(self, store: SeenStore, agent: str, slug: str, sha256: str) -> bool:
        """Returns True if a revision from another folder has replaced that text of the note."""
        return False

    def follow_change(self, sync_all: Callable[[], None]) -> None:
        """Calls `sync_all` after a change of the store if that may come from elsewhere."""
