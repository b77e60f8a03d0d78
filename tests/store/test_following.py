"""Many chunks are indexed, and a large WAL is copied, beside the next write."""

from __future__ import annotations

import resource
import threading
from pathlib import Path
from typing import Any

import pytest

from kbproc.base import failpoints
from kbproc.base.errors import KbprocError
from kbproc.engine.projections.catalog import catalog
from kbproc.engine.projections.catalog.files import WAL, beside
from kbproc.engine.store import store as module
from kbproc.knowledge.app import upkeep
from tests.kit.courses import Client
from tests.kit.patience import until
from tests.kit.talk import Session


@pytest.fixture(autouse=True)
def no_quiet_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep, "IDLE_SECONDS", 3600.0)


def add(session: Session, count: int) -> None:
    for number in range(count):
        session.data("doc.create", title=f"Page {number}", text=f"words {number}")


def test_another_thread_indexes_many_chunks(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    names: list[str] = []

    def note(point: str) -> None:
        if point == "fulltext.commit":
            names.append(threading.current_thread().name)

    failpoints.arm(note)
    monkeypatch.setattr(module, "_MANY_GATHERED", 2)
    add(session, 2)
    until(lambda: session.store.fulltext.gathered == 0, "the chunks in the index")
    failpoints.arm(None)
    assert "following" in names
    assert session.data("search", query="words", mode="fts")["total_matches"] == 2


def test_a_large_wal_is_copied_into_the_catalog(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalog, "_WAL_BYTES", 400_000)
    path = session.store.catalog.path
    before = path.stat().st_size
    add(session, 12)
    until(lambda: path.stat().st_size > before, "rows in the catalog's own file")
    add(session, 60)
    assert beside(path, WAL).stat().st_size < 1_000_000
    assert len(session.data("doc.list", limit=100)) == 72


def test_the_next_answer_has_a_notice_of_a_failure(session: Session) -> None:
    """The write that failed is in the log; later ones are refused until the catalog has it."""

    def fail(point: str) -> None:
        if point == "catalog.commit":
            raise OSError(28, "No space left on device")

    failpoints.arm(fail)
    assert session.error("doc.create", title="Kept", text="words")["detail"] == {"kept": True}
    notice = session.ask("ping")["result"]["meta"]["notice"]
    assert "nothing is lost" in notice[0]
    refused = session.error("doc.create", title="Full", text="words")
    assert (refused["type"], refused["detail"]["kept"]) == ("store.io", False)
    failpoints.arm(None)
    session.data("doc.create", title="Again", text="words")
    assert [row["title"] for row in session.data("doc.list")] == ["Kept", "Again"]
    assert "notice" not in session.ask("ping")["result"]["meta"]


def test_a_record_that_cannot_be_folded_in_is_not_written(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the log nor the catalog has it, and the next write is as if it had not been."""
    before = session.store.log.head

    def fail(point: str) -> None:
        if point == "catalog.applied":
            raise OSError(28, "No space left on device")

    failpoints.arm(fail)
    error = session.error("doc.create", title="Refused", text="words")
    failpoints.arm(None)
    assert (error["type"], error["detail"]) == ("store.io", {"kept": False})
    assert session.store.log.head == before
    assert session.data("doc.create", title="Next", text="words")["id"] == 1
    assert [row["title"] for row in session.data("doc.list")] == ["Next"]


def create(client: Client, title: str, text: str) -> dict[str, Any] | None:
    """Makes a document; returns the detail of the refusal, if it is refused."""
    try:
        client.ask("doc.create", title=title, text=text)
    except KbprocError as error:
        assert error.type == "store.io"
        return error.detail
    return None


def titles(client: Client) -> list[str]:
    return [document.title for document in client.ask("doc.list")]


def test_a_disk_that_is_full_in_the_midst_of_a_group(tmp_path: Path) -> None:
    """SQLite takes back all that the group has folded in; then each writer gets its own turn."""
    client = Client(tmp_path / "one")
    create(client, "First", "words")
    store, texts = client.library.store, {"Small": "words", "Large": "word " * 12_000, "Last": "x"}
    ((pages,),) = store.catalog._db.execute("pragma page_count").fetchall()
    store.catalog._db.execute(f"pragma max_page_count = {pages + 4}")
    refusals: dict[str, Any] = {}

    def write(title: str) -> None:
        refusals[title] = create(client, title, texts[title])

    threads = [threading.Thread(target=write, args=(title,)) for title in texts]
    with store.lane():
        for number, thread in enumerate(threads, 1):
            thread.start()
            until(lambda count=number: len(store.turns.queue) == count, "a writer")
    for thread in threads:
        thread.join()
    assert refusals == {"Small": None, "Large": {"kept": False}, "Last": None}
    assert sorted(titles(client)) == ["First", "Last", "Small"]
    assert store.log.verify() == store.seq and store.catalog.damaged() == []
    store.catalog._db.execute("pragma max_page_count = 1000000")
    assert create(client, "Large", texts["Large"]) is None
    client.close()


def test_a_disk_that_fails_as_the_catalog_commits(tmp_path: Path) -> None:
    """The log has the write by then, so it is kept, and shown once the disk is well."""
    client = Client(tmp_path / "one")
    create(client, "First", "words")
    most = beside(client.library.store.catalog.path, WAL).stat().st_size
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, before[1]))
    try:
        assert create(client, "Kept", "words") == {"kept": True}
        assert create(client, "Refused", "words") == {"kept": False}
        assert titles(client) == ["First"]
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert create(client, "Last", "words") is None
    assert titles(client) == ["First", "Kept", "Last"]
    assert client.library.store.catalog.damaged() == []
    client.close()
