"""Folders of several agents: one that fails or hangs keeps nobody from the others' notes."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kbproc.agents.notes import background
from kbproc.agents.notes.background import Notebooks
from kbproc.agents.notes.notebook import Notebook
from kbproc.agents.notes.sync import Sync
from kbproc.methods.all import registry
from kbproc.settings.config import Config
from kbproc.sharing.alone import InProcess
from tests.conftest import OpenSession
from tests.kit.fixed import FixedHost
from tests.kit.patience import PATIENCE
from tests.kit.talk import Session


@pytest.fixture
def session(open_session: OpenSession) -> Session:
    """With two agents, each with a note that only its file holds; nobody looks at them yet."""
    session = open_session()
    session.library.notebooks.close()
    session.library.notebooks = Notebooks(session.store, session.library.intake)
    for slug in ("gitea", "zeta"):
        made = session.data("agent.create", slug=slug)
        (Path(made["notes_folder"]) / "todo.md").write_text(f"# Of {slug}")
    return session


@pytest.fixture
def books(session: Session) -> Iterator[Notebooks]:
    yield session.library.notebooks
    session.library.notebooks.close()


def titles(session: Session, agent: str) -> list[str]:
    return [note["title"] for note in session.data("note.list", agent=agent)]


def syncing(monkeypatch: pytest.MonkeyPatch, before: Callable[[Notebook], object]) -> None:
    """`before` each sync."""
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
    monkeypatch.setattr(background, "_RETRY_SECONDS", 0.02)
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
    reader, found = session.another("user"), list[Any]()
    thread = threading.Thread(target=lambda: found.append(titles(reader, "gitea")), daemon=True)
    thread.start()
    assert parked.wait(PATIENCE)
    # A write that is refused: it commits nothing that would wake anybody.
    session.error("note.put", agent="gitea", slug="aa", text="x", expected_revision=5)
    thread.join(PATIENCE)
    assert found == [[]]


def test_one_command_waits_for_a_sync_that_has_begun(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a command to which somebody has attached: the store's upkeep runs then."""
    folder = session.store.folder
    session.close()
    goes_on = threading.Event()
    syncing(monkeypatch, lambda book: goes_on.wait(PATIENCE))
    config = Config(store=folder, cache=folder.parent / "cache", actor="user")
    command = InProcess(config=config, registry=registry(), host=FixedHost())
    library = command.open()
    library.start()
    store = library.store
    real = store.wait_for_change

    def wait_for_change(timeout_s: float) -> None:
        goes_on.set()
        real(timeout_s)

    monkeypatch.setattr(store, "wait_for_change", wait_for_change)
    try:
        answer = command.ask("note.list", {"agent": "gitea"}, lambda event: None)
    finally:
        goes_on.set()
        command.close()
    assert [note["title"] for note in answer["result"]["data"]] == ["Of gitea"], answer
