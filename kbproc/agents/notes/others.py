"""What other nodes have done to an agent's notes, and this node's files do not show yet.

Owns: telling a file that is behind the log from one that was edited here.
Refuses to know: writing files (sync.py).

A file is behind if it is missing, or holds an earlier text of its note. So where several nodes
share a store, a file that goes or gets another name says nothing.
"""

from __future__ import annotations

from msgspec.structs import replace

from kbproc.agents.notes.diff import Behind, Diff, FileChange
from kbproc.documents.earlier import deleted, had_text
from kbproc.store.state import SeenStore
from kbproc.views.catalog.reader import NOTES
from kbproc.views.catalog.rows import DocumentRow


def apart(store: SeenStore, agent: str, diff: Diff) -> Diff:
    """`found` keeps what was edited here; all else goes to `behind`."""
    found: list[FileChange] = []
    gone = [*diff.removed, *(one.row for one in diff.found if one.action == "renamed" and one.row)]
    behind = [Behind(row, str(row.source_id)) for row in gone]
    for one in diff.found:
        row = one.row if one.action == "changed" else None
        earlier = note_before(store, agent, one.slug, row, one.sha256)
        if earlier is None:
            found.append(one if row else FileChange("added", one.slug, one.sha256))
        else:
            behind.append(Behind(earlier, one.slug, one.sha256))
    return replace(diff, found=found, removed=[], held=False, behind=behind)


def note_before(
    store: SeenStore, agent: str, slug: str, row: DocumentRow | None, sha256: str
) -> DocumentRow | None:
    """The note, deleted or not, that this is an earlier text of; its last one if it is deleted."""
    if row is None:
        with store.reading() as snapshot:
            row = deleted(snapshot.queries, NOTES + agent, slug)
    return row if row is not None and had_text(store, row.id, sha256) else None
