"""A hook records the session at its end, and before it is compacted, where the user wants it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from kbproc.base.host import Host
from kbproc.base.times import dated
from tests.kit import chats, pages
from tests.kit.hooks import Project
from tests.kit.processes import Client
from tests.kit.start import REPO
from tests.kit.talk import Session
from tests.kit.world import filled

SECRET = "ghp_" + "R8k2Lm9Qw4Zx7Vb1Nc5Td3Fg6Hj0Ps8Ya2Ue"

DECISION = "We decided on Mondays, because then everybody is here if something breaks."


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return filled(tmp_path_factory.mktemp("world"))


@pytest.fixture
def project(tmp_path: Path, world: Path) -> Project:
    shutil.copytree(world / "store", tmp_path / "store")
    return Project(tmp_path, kb="scratch")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "logs" / "session.jsonl"
    path.parent.mkdir()
    path.write_bytes(chats.claude_code(f"Which rope, {SECRET}?", more=False))
    return path


def conversations(project: Project) -> list[dict[str, Any]]:
    session = Session(project.store, cwd=project.folder)
    rows = session.data("doc.list", types=["conversation"])
    session.close()
    return [{name: row[name] for name in ("kb", "revision", "origin")} for row in rows]


def end(project: Project, log: Path, *flags: str, event: str = "session-end") -> None:
    assert project.hook(event, *flags, transcript_path=str(log)) == (0, b"", b"")


@pytest.mark.parametrize("event", ["session-end", "pre-compact"])
def test_a_session_is_recorded_without_its_secrets(project: Project, log: Path, event: str) -> None:
    end(project, log, event=event)
    assert conversations(project) == []
    end(project, log, "--record", event=event)
    assert conversations(project) == [{"kb": "scratch", "revision": 1, "origin": "tool"}]
    end(project, log, "--record", event=event)
    log.write_bytes(chats.claude_code(f"Which rope, {SECRET}?"))
    end(project, log, "--record", event=event)
    assert conversations(project) == [{"kb": "scratch", "revision": 2, "origin": "tool"}]
    texts = b"".join(path.read_bytes() for path in project.store.rglob("*") if path.is_file())
    assert SECRET.encode() not in texts
    assert project.problems() == []


def test_an_owner_records(project: Project, log: Path) -> None:
    owner = Client(project.store, cwd=project.folder).ready()
    end(project, log, "--record")
    assert [row["kb"] for row in owner.data("doc.list", types=["conversation"])] == ["scratch"]
    assert owner.end() == 0


def test_no_other_file_is_recorded(project: Project, log: Path) -> None:
    other = log.with_name("passwords.txt")
    other.write_text("the words of a person")
    end(project, other, "--record")
    end(project, log.with_name("missing.jsonl"), "--record")
    assert "is no session log" in project.problems()[0]
    assert "No such file" in project.problems()[1]
    assert conversations(project) == []


def test_a_later_session_is_shown_the_recorded_one_as_the_page_says(tmp_path: Path) -> None:
    store = Session(tmp_path / "store", cwd=tmp_path)
    store.data("kb.create", slug="site")
    store.close()
    project, log = Project(tmp_path, kb="site"), tmp_path / "6f1c.jsonl"
    day = "2026-11-20"
    log.write_bytes(chats.decision("On which day do we deploy the site?", DECISION, day))
    end(project, log, "--record")
    (block,) = [
        block
        for block in pages.blocks(REPO / "docs" / "hooks.md")
        if block.text.startswith("<kbproc-reference>")
    ]
    context = project.ask("Which day did we choose for deploys?", session_id="later").context
    age = dated(f"{day}T14:03:00.000Z", Host().now()).partition(", ")[2]
    assert f"{context.replace(age, '3 days ago')}\n" == block.text
