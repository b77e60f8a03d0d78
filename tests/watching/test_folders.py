"""A watched folder's documents follow its files while the store is open."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.kit.patience import until
from tests.kit.talk import Session


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "docs"
    path.mkdir()
    (path / "one.md").write_text("# One\n\nAlpha words.\n")
    return path


def documents(session: Session) -> dict[str, dict[str, Any]]:
    """Returns the documents by the names of their files."""
    listed = session.data("doc.list", limit=1000)
    return {Path(doc["source"]["path"]).name: doc for doc in listed if doc["source"]["path"]}


def watched(session: Session) -> dict[str, Any]:
    (watch,) = session.data("watch.list")
    return watch


def follows(session: Session, names: set[str]) -> None:
    until(lambda: documents(session).keys() == names, f"documents of {names}")


def test_files_that_come_change_and_move(session: Session, folder: Path) -> None:
    session.data("watch.add", folder="docs")
    follows(session, {"one.md"})
    (folder / "below").mkdir()
    (folder / "below" / "two.md").write_text("# Two\n\nBeta words.\n")
    follows(session, {"one.md", "two.md"})
    (folder / "one.md").write_text("# One\n\nGamma words.\n")
    until(lambda: documents(session)["one.md"]["revision"] == 2, "a new revision")
    before = documents(session)["two.md"]["id"]
    (folder / "below" / "two.md").rename(folder / "three.md")
    follows(session, {"one.md", "three.md"})
    assert documents(session)["three.md"]["id"] == before
