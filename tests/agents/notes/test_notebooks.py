"""Folders of several agents: the others' notes stay usable while one folder fails or hangs."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kbproc.base.settings.config import Config
from kbproc.knowledge.agents.notes import background
from kbproc.knowledge.agents.notes.background import Notebooks
from kbproc.knowledge.agents.notes.notebook import Notebook
from kbproc.knowledge.agents.notes.sync import Sync
from kbproc.methods.all import registry
from kbproc.surfaces.sharing.command import Command
from kbproc.surfaces.wire.in_flight import Parking
from tests.conftest import OpenSession
from tests.kit.fixed import FixedHost
from tests.kit.patience import PATIENCE
from tests.kit.talk import Session


@pytest.fixture
def session(open_session: OpenSession) -> Session:
    """A session with two agents, each with a note file that no sync has read yet."""
    session = open_session()
    session.library.notebooks.close()
    session.library.notebooks = Notebooks(session.store, session.library.intake)
    for slug in ("gitea", "zeta"):
        agent = session.data("agent.create", slug=slug)
        (Path(agent["notes_folder"]) / "todo.md").write_text(f"# Of {slug}")
    return session


@pytest.fixture
def books(session: Session) -> Iterator[Notebooks]:
    yield session.library.notebooks
    session.library.notebooks.close()


def titles(session: Session, agent: str) -> list[str]:
    return [note["title"] for note in session.data("note.list", agent=agent)]


def syncing(monkeypatch: pytest.MonkeyPatch, before: Callable[[Notebook], object]) -> None:
    """Runs `before` ahead of each sync."""
    real = Sync.run

    def run(sync: Sync) -> bool:
        before(sync.book)
        return real(sync)

    monkeypatch.setattr(Sync, "run", run)


def test_what_fails_unforeseen_is_told_and_tried_again(
    session: Session,
    books: Notebooks,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(background, "LOOK_S", 0.02)
    failures = [OSError(errno.ESTALE, "Stale file handle") for _ in range(4)]

    def fail(book: Notebook) -> None:
        if failures and book.agent == "gitea":
            raise failures.pop()

    syncing(monkeypatch, fail)
    books.start()
    assert titles(session, "gitea") == ["Of gitea"]
    assert titles(session, "zeta") == ["Of zeta"]
    assert "the notes of gitea could not be synced" in caplog.text
    assert "Stale file handle" in caplog.text


def test_a_folder_that_hangs_keeps_nobody_from_anothers_notes(
    session: Session, books: Notebooks, monkeypatch: pytest.MonkeyPatch
) -> None:
    hangs, goes_on = threading.Event(), threading.Event()

    def hang(book: Notebook) -> None:
        if book.agent == "gitea":
            hangs.set()
            goes_on.wait(PATIENCE)

    syncing(monkeypatch, hang)
    books.start()
    assert hangs.wait(PATIENCE)
    try:
        assert titles(session, "zeta") == ["Of zeta"]
        assert books.ready("gitea") is False
    finally:
        goes_on.set()
    assert titles(session, "gitea") == ["Of gitea"]


def test_a_hundred_who_wait_begin_one_sync(
    session: Session, books: Notebooks, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_on = threading.Event()
    begun: list[str] = []

    def wait(book: Notebook) -> None:
        begun.append(book.agent)
        goes_on.wait(PATIENCE)

    syncing(monkeypatch, wait)
    monkeypatch.setattr(books, "sync_agent", lambda slug: None)
    books.start()
    try:
        assert not any(books.ready("gitea") for _ in range(100))
    finally:
        goes_on.set()
    assert titles(session, "gitea") == ["Of gitea"]
    assert begun == ["gitea"]


def test_whoever_waits_learns_of_a_sync_that_somebody_else_did(
    session: Session, books: Notebooks, monkeypatch: pytest.MonkeyPatch
) -> None:
    parked = threading.Event()
    monkeypatch.setattr(books, "sync_agent", lambda slug: None)
    monkeypatch.setattr(books, "begin", lambda book: parked.set())
    books.start()
    (books.book(session.store.published.roster.agents["gitea"]).folder / "todo.md").unlink()
    reader, answers = session.another("user"), list[Any]()
    thread = threading.Thread(target=lambda: answers.append(titles(reader, "gitea")), daemon=True)
    thread.start()
    assert parked.wait(PATIENCE)
    # A refused write commits nothing, so it does not wake the reader.
    session.error("note.put", agent="gitea", slug="aa", text="x", expected_revision=5)
    thread.join(PATIENCE)
    assert answers == [[]]


def test_one_command_waits_for_a_sync_that_has_begun(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command that has an attached client runs the store's upkeep, which syncs."""
    folder = session.store.folder
    session.close()
    goes_on = threading.Event()
    syncing(monkeypatch, lambda book: goes_on.wait(PATIENCE))
    config = Config(store=folder, cache=folder.parent / "cache", actor="user")
    command = Command(config=config, registry=registry(), host=FixedHost())
    command.ask("ping", {}, lambda event: None)
    assert command.here is not None
    command.here.owner.open_library().start()
    add = Parking.add

    def add_and_go_on(self: Parking, *request: Any) -> None:
        goes_on.set()
        add(self, *request)

    monkeypatch.setattr(Parking, "add", add_and_go_on)
    try:
        answer = command.ask("note.list", {"agent": "gitea"}, lambda event: None)
    finally:
        goes_on.set()
        command.close()
    assert [note["title"] for note in answer["result"]["data"]] == ["Of gitea"], answer
