"""Says what a difference between an agent's folder and the log means on a node.

Other nodes have folders of the same notes. A file is stale if it is missing, or holds an earlier
text of its note; else it was edited here. So a file that was deleted or renamed does not change a
note.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from msgspec.structs import replace

from kbproc.engine.projections.catalog.reader import NOTES
from kbproc.engine.projections.catalog.rows import DocumentRow
from kbproc.engine.store.state import SeenStore
from kbproc.knowledge.agents.notes.diff import Diff, FileChange, StaleNoteFile
from kbproc.knowledge.agents.notes.rules import FolderRules
from kbproc.knowledge.documents.lookup import had_text, newest_deleted


class NodeFolderRules(FolderRules):
    """The rules of a sync on a node; see FolderRules."""

    gather_s = 0.2

    def judge(
        self, store: SeenStore, agent: str, diff: Diff, with_renames: Callable[[Diff], Diff]
    ) -> Diff:
        return with_stale_files(store, agent, diff)

    def check_missing(self, folder: Path, agent: str, note_count: int) -> None:
        """Raises nothing: the folder may have been on another node alone."""

    def replace_missing(self, make: Callable[[], None]) -> None:
        make()

    def is_earlier_text(self, store: SeenStore, agent: str, slug: str, sha256: str) -> bool:
        with store.reading() as snapshot:
            row = snapshot.queries.note(agent, slug)
        return note_before(store, agent, slug, row, sha256) is not None

    def follow_change(self, sync_all: Callable[[], None]) -> None:
        sync_all()


def with_stale_files(store: SeenStore, agent: str, diff: Diff) -> Diff:
    """Returns the diff with the edits of this node in `changes`, all else in `stale_files`."""
    changes: list[FileChange] = []
    rows = [
        *diff.removed,
        *(change.row for change in diff.changes if change.action == "renamed" and change.row),
    ]
    stale_files = [StaleNoteFile(row, str(row.source_id)) for row in rows]
    for change in diff.changes:
        row = change.row if change.action == "changed" else None
        earlier = note_before(store, agent, change.slug, row, change.sha256)
        if earlier is None:
            changes.append(change if row else FileChange("added", change.slug, change.sha256))
        else:
            stale_files.append(StaleNoteFile(earlier, change.slug, change.sha256))
    return replace(diff, changes=changes, removed=[], was_held_back=False, stale_files=stale_files)


def note_before(
    store: SeenStore, agent: str, slug: str, row: DocumentRow | None, sha256: str
) -> DocumentRow | None:
    """Returns the note, live or deleted, that has or had that text; None if there is none."""
    if row is None:
        with store.reading() as snapshot:
            row = newest_deleted(snapshot.queries, NOTES + agent, slug)
    return row if row is not None and had_text(store, row.id, sha256) else None
