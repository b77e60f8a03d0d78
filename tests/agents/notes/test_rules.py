"""A missing file means a removed note where the folder is alone, and a stale file on a node."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from kbproc.engine.projections.catalog.rows import DocumentRow
from kbproc.knowledge.agents.notes.diff import Diff, FileChange, StaleNoteFile
from kbproc.knowledge.agents.notes.files import Unavailable
from kbproc.knowledge.agents.notes.rules import FolderRules
from kbproc.knowledge.cluster.notes import NodeFolderRules, note_before, with_stale_files
from tests.kit import knowledge
from tests.kit.talk import Session

STORE: Any = None


def note(id: int, slug: str, text: str = "") -> DocumentRow:
    facts: dict[str, Any] = dict.fromkeys(DocumentRow.__struct_fields__)
    facts |= {"id": id, "type": "note", "source_id": slug, "sha256": knowledge.sha256(text)}
    return DocumentRow(**{**facts, "origin": "agent"})


def diff(*changes: FileChange, removed: tuple[DocumentRow, ...] = ()) -> Diff:
    return Diff(note_count=3, changes=[*changes], removed=[*removed], unchanged=0, skipped=[])


def test_alone_a_sync_is_carried_out_with_the_renames_in_it() -> None:
    rules, before, after = FolderRules(), diff(), diff(removed=(note(1, "a"),))
    assert rules.judge(STORE, "gull", before, lambda one: after if one is before else one) is after
    assert not rules.is_earlier_text(STORE, "gull", "a", "0" * 64)
    assert (rules.gather_s, NodeFolderRules().gather_s) == (0.0, 0.2)


def test_alone_a_missing_folder_with_notes_is_an_error(tmp_path: Path) -> None:
    rules = FolderRules()
    rules.check_missing(tmp_path, "gull", 0)
    with pytest.raises(Unavailable) as refusal:
        rules.check_missing(tmp_path, "gull", 2)
    error = refusal.value
    assert (error.type, error.code) == ("store.io", "missing")
    assert error.message == f"The notes folder {tmp_path} is gone, and the log has 2 notes."
    assert error.hint is not None and "notes of gull again" in error.hint
    NodeFolderRules().check_missing(tmp_path, "gull", 2)


def test_only_a_node_makes_a_missing_folder_and_follows_changes_of_others() -> None:
    calls: list[str] = []
    for rules in (FolderRules(), NodeFolderRules()):
        rules.replace_missing(lambda: calls.append("made"))
        rules.follow_change(lambda: calls.append("synced"))
        if isinstance(rules, NodeFolderRules):
            assert calls == ["made", "synced"]
        else:
            assert calls == []


def test_a_node_writes_missing_files_again_and_keeps_edits(session: Session) -> None:
    store = session.store
    earlier, now = "# First\n", "# Second\n"
    id = knowledge.note(store, "gitea", "tides", earlier)
    event = knowledge.written(
        store, "tides", now, kb="notes/gitea", doc_type="note", source_id="tides"
    )
    replaced = msgspec.structs.replace(event, id=id, revision=2)
    knowledge.put(store, replaced, actor="gitea", method="note.put")
    (store.folder / "notes/gitea/tides.md").write_text(now)
    with store.reading() as snapshot:
        row = snapshot.queries.note("gitea", "tides")
    assert row is not None
    old, new, other = map(knowledge.sha256, (earlier, now, "# Third\n"))
    assert note_before(store, "gitea", "tides", row, old) == row
    assert note_before(store, "gitea", "tides", row, other) is None
    assert note_before(store, "gitea", "never", None, old) is None
    rules = NodeFolderRules()
    assert rules.is_earlier_text(store, "gitea", "tides", old)
    assert not rules.is_earlier_text(store, "gitea", "tides", other)

    stale = with_stale_files(store, "gitea", diff(FileChange("changed", "tides", old, row)))
    assert (stale.changes, stale.stale_files) == ([], [StaleNoteFile(row, "tides", old)])
    edit = FileChange("changed", "tides", other, row)
    edited = with_stale_files(store, "gitea", diff(edit, removed=(row,)))
    assert (edited.changes, edited.removed) == ([edit], [])
    assert edited.stale_files == [StaleNoteFile(row, "tides")], "the missing file is written again"
    renamed = FileChange("renamed", "new-name", new, row)
    judged = rules.judge(store, "gitea", diff(renamed), lambda one: one)
    assert judged.changes == [FileChange("added", "new-name", new)]
    assert judged.stale_files == [StaleNoteFile(row, "tides")]
