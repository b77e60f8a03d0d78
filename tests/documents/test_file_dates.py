"""The dates of files: git's for what it has the bytes of, else the file system's."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from kbproc.base import git
from kbproc.base.times import dated
from tests.kit.git import COMMITTED, run_git
from tests.kit.talk import Session

EDITED = "2025-08-09T10:11:12.000Z"
EDITED_S = 1_754_734_272


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Returns the top of a repository with files that are committed, edited since and new."""
    top = tmp_path / "docs"
    top.mkdir()
    run_git(top, "init", "-q")
    for name in ("old.md", "edited.md", "sub/ün used.md"):
        path = top / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"# {path.stem}\n\nAardvarks dig.\n")
    run_git(top, "add", "-A")
    run_git(top, "commit", "-qm", "one")
    (top / "edited.md").write_text("# edited\n\nAardvarks dig deep.\n")
    (top / "new.md").write_text("# new\n\nAardvarks sleep.\n")
    for path in (*top.glob("*.md"), *top.glob("sub/*.md")):
        os.utime(path, (EDITED_S, EDITED_S))
    return top


def dates(session: Session) -> dict[str, Any]:
    documents = session.data("doc.list", limit=100)
    return {Path(one["source"]["path"]).stem: one.get("modified_at") for one in documents}


def test_a_file_has_the_date_of_the_commit_with_its_bytes(
    session: Session, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests: list[tuple[Path, set[str]]] = []
    newest_commits = git.newest_commits

    def spy(top: Path, names: set[str]) -> dict[str, git.Committed]:
        requests.append((top, names))
        return newest_commits(top, names)

    monkeypatch.setattr(git, "newest_commits", spy)
    session.data("doc.ingest", paths=["docs"])
    everything = {"old.md", "edited.md", "new.md", "sub/ün used.md"}
    assert requests == [(repository, everything)], "one process reads for all files"
    committed = {"old": COMMITTED, "ün used": COMMITTED}
    assert dates(session) == {**committed, "edited": EDITED, "new": EDITED}
    session.data("doc.reparse", ids=[1])
    hits = session.data("search", query="old aardvarks", mode="fts", limit=10)["results"]
    old = next(hit["source"] for hit in hits if hit["source"]["title"] == "old")
    assert (old["modified_at"], old["dated"]) == (COMMITTED, dated(COMMITTED, old["stored_at"]))


def test_only_the_history_of_the_requested_files_is_read(
    session: Session, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests: list[set[str]] = []
    monkeypatch.setattr(git, "newest_commits", lambda top, names: requests.append(names) or {})
    session.data("doc.ingest", paths=["docs/sub"])
    assert requests == [{"sub/ün used.md"}]
    assert dates(session) == {"ün used": EDITED}, "without git the file system tells"


def test_a_knowledge_base_is_described_once(session: Session) -> None:
    session.data("kb.create", slug="zoo", description="What keepers know.")
    session.data("kb.update", slug="default", name="Ours")  # which describes nothing
    for kb in ("default", "zoo", "zoo"):
        session.data("doc.create", title="Aardvarks", text="Aardvarks dig.", kb=kb)
    hits = session.data("search", query="aardvarks", mode="fts")["results"]
    sources = [hit["source"] for hit in hits]
    described = [one for one in sources if "kb_description" in one]
    first = next(one for one in sources if one["kb"] == "zoo")
    assert described == [{**first, "kb_description": "What keepers know."}]


def test_a_repository_starts_no_program(repository: Path, tmp_path: Path) -> None:
    trap, mark = tmp_path / "trap", tmp_path / "mark"
    trap.write_text(f"#!/bin/sh\ntouch {mark}\n")
    trap.chmod(0o755)
    (repository / ".gitattributes").write_text("*.md diff=trap\n")
    for name in ("core.fsmonitor", "core.pager", "diff.external", "diff.trap.textconv"):
        run_git(repository, "config", name, str(trap))
    run_git(repository, "config", "log.showSignature", "true")
    run_git(repository, "config", "gpg.program", str(trap))
    mark.unlink(missing_ok=True)
    assert git.newest_commits(repository, {"old.md"}).keys() == {"old.md"}
    assert not mark.exists()


def test_days_and_ages() -> None:
    now = "2026-01-01T00:00:00.000Z"
    days = ("2026-01-01", "2025-12-31", "2025-12-20", "2025-12-01", "2025-03-04", "2020-01-01")
    ages = ["today", "yesterday", "12 days ago", "4 weeks ago", "10 months ago", "6 years ago"]
    assert [dated(f"{day}T09:00:00.000Z", now) for day in days] == [
        f"{day}, {age}" for day, age in zip(days, ages, strict=True)
    ]
    assert dated("2026-02-01T00:00:00.000Z", now) == "2026-02-01", "a time to come has no age"
