"""Which document a new file continues."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kbproc.engine.projections.catalog.rows import DocumentRow
from kbproc.knowledge.documents.moves import FormerFiles, holders, is_gone, is_held, lies_below
from tests.kit.talk import Session

NOW = "2026-01-01T00:00:00.000Z"


def document(id: int, path: str | None, sha256: str = "aa", **more: Any) -> DocumentRow:
    members: dict[str, Any] = dict.fromkeys(DocumentRow.__struct_fields__)
    members |= {"id": id, "kb": "default", "title": "T", "type": "text", "path": path}
    return DocumentRow(**{**members, "sha256": sha256, "touched": 1, **more})


def test_holders_are_the_files_around_a_file() -> None:
    assert holders("/a/b.zip!/c.zip!/d.txt") == ["/a/b.zip", "/a/b.zip!/c.zip"]
    assert holders("/a/b.txt") == []


def test_a_folder_may_end_with_an_exclamation_mark(tmp_path: Path) -> None:
    (tmp_path / "a!").mkdir()
    assert not is_held(f"{tmp_path}/a!/b.txt")
    assert is_held(f"{tmp_path}/a.zip!/b.txt")


def test_a_file_in_an_archive_is_gone_with_the_archive(tmp_path: Path) -> None:
    inside = f"{tmp_path}/a.zip!/b.txt"
    assert is_gone(inside)
    (tmp_path / "a.zip").write_bytes(b"")
    assert not is_gone(inside)
    assert is_gone(f"{tmp_path}/b.txt")


@pytest.mark.parametrize(
    "path, below",
    [
        ("/a/b/c.txt", True),
        ("/a/b", True),
        ("/a/bc/d.txt", False),
        ("/a/b.zip!/c.txt", False),
        ("/x.zip!/c.txt", True),
        ("/x.zip.txt", False),
    ],
)
def test_a_file_lies_below_a_folder_or_a_named_archive(path: str, below: bool) -> None:
    assert lies_below(path, [Path("/a/b"), Path("/x.zip")]) == below


def test_a_file_with_the_same_bytes_continues_a_document_whose_file_is_gone(tmp_path: Path) -> None:
    (tmp_path / "there.txt").write_bytes(b"")
    live = [
        document(1, f"{tmp_path}/there.txt"),
        document(2, f"{tmp_path}/gone.txt"),
        document(3, None),
    ]
    former = FormerFiles(live, [])
    assert former.take("/new.txt", "bb") is None
    row = former.take("/new.txt", "aa")
    assert row is not None
    assert row.id == 2
    assert former.continued_ids == {2}
    assert former.take("/newer.txt", "aa") is None, "each is continued once"


def test_of_several_the_most_similar_path_wins_then_the_live_then_the_oldest() -> None:
    live = [document(1, "/gone/a/x.txt"), document(2, "/gone/b/y.txt"), document(3, "/g/b/y.txt")]
    pruned = [
        document(4, "/gone/c/b/y.txt", deleted_at=NOW),
        document(5, "/gone/z", deleted_at=NOW),
    ]
    former = FormerFiles(live, pruned)
    order = []
    while (row := former.take("/new/c/b/y.txt", "aa")) is not None:
        order.append(row.id)
    assert order == [4, 2, 3, 1, 5]


def test_a_document_removed_from_the_same_path_comes_first_whatever_its_bytes() -> None:
    live, pruned = [document(1, "/gone/x.txt")], [document(2, "/back.txt", "bb", deleted_at=NOW)]
    former = FormerFiles(live, pruned)
    continued = [former.take("/back.txt", "aa") for _ in range(2)]
    assert [row.id for row in continued if row is not None] == [2, 1]


def test_a_hit_says_that_its_file_is_gone(session: Session, tmp_path: Path) -> None:
    """A file that was moved and edited is a new document; the old one stays until a prune."""
    (tmp_path / "docs" / "below").mkdir(parents=True)
    old = tmp_path / "docs" / "below" / "old.md"
    old.write_text("# Crane\n\nThe crane lifts four tonnes.\n")
    session.data("doc.ingest", paths=["docs"])
    asked_at = session.store.seq
    old.unlink()
    (tmp_path / "docs" / "new.md").write_text("# Crane\n\nThe crane lifts five tonnes.\n")
    session.data("doc.ingest", paths=["docs"])
    query: dict[str, Any] = {"query": "crane lifts", "mode": "fts"}

    def gone() -> dict[str, bool]:
        hits = session.data("search", **query)["results"]
        return {Path(hit["source"]["path"]).name: hit.get("file_gone", False) for hit in hits}

    assert gone() == {"old.md": True, "new.md": False}
    old.parent.rmdir()
    assert gone() == {"old.md": True, "new.md": False}
    query["as_of"] = asked_at
    assert gone() == {"old.md": False}
