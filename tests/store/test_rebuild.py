"""Views are rebuilt and models are switched while searches and writes go on."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kbproc.base import failpoints
from kbproc.base.errors import KbprocError
from kbproc.engine.store.store import Store
from kbproc.surfaces.wire.connection import Connection
from tests.conftest import OpenSession
from tests.kit.corpus import answers, confirmed, fill
from tests.kit.courses import Client
from tests.kit.patience import PATIENCE
from tests.kit.talk import Session, as_bytes, request


@contextmanager
def stopped_at(point: str, start: Callable[[], Any]) -> Iterator[None]:
    """Runs `start` in a thread and holds it at `point` while the block runs."""
    reached, go_on = threading.Event(), threading.Event()

    def hold(name: str) -> None:
        if name == point and threading.current_thread() is runner:
            reached.set()
            assert go_on.wait(PATIENCE)

    failures: list[BaseException] = []

    def run() -> None:
        try:
            start()
        except AssertionError as error:
            failures.append(error)

    runner = threading.Thread(target=run)
    failpoints.arm(hold)
    runner.start()
    try:
        assert reached.wait(PATIENCE), failures
        yield
    finally:
        go_on.set()
        runner.join(PATIENCE)
        failpoints.arm(None)
    assert failures == []
    assert not runner.is_alive()


@pytest.mark.parametrize("point", ["catalog.built", "fulltext.built"])
def test_reads_and_writes_go_on_while_views_are_built(session: Session, point: str) -> None:
    fill(session, 6)
    store = session.store
    before = answers(session)
    with stopped_at(point, session.library.rebuild):
        assert answers(session) == before
        document = session.data("doc.create", title="Meanwhile", text="zeppelin over the sea")
        confirmed(session, "doc.delete", ids=[2])
        hits = session.data("search", query="zeppelin", mode="fts")["results"]
        assert [hit["source"]["document_id"] for hit in hits] == [document["id"]]
        session.embedded()
    hits = session.data("search", query="zeppelin")["results"]
    assert hits[0]["source"]["document_id"] == document["id"]
    assert session.error("doc.get", id=2)["type"] == "resource.not_found"
    assert [path.name for path in (store.folder / "views").glob("catalog*")] == [
        "catalog-000002.sqlite"
    ] or len(list((store.folder / "views").glob("catalog-*.sqlite"))) == 1


def test_a_reader_keeps_the_views_it_began_with(session: Session) -> None:
    fill(session, 3)
    with session.store.searching() as snapshot:
        session.library.rebuild()
        session.data("doc.create", title="Later", text="later")
        assert snapshot.queries.chunk_total() == 3
        assert snapshot.fulltext.num_docs == 3
    assert len(session.data("doc.list")) == 4


@pytest.mark.parametrize("point", ["catalog.built", "fulltext.built"])
def test_a_full_disk_leaves_the_old_views(session: Session, point: str) -> None:
    fill(session, 3)
    before, views = answers(session), {*(session.store.folder / "views").glob("catalog*")}

    def refuse(name: str) -> None:
        if name == point:
            raise OSError(28, "No space left on device")

    failpoints.arm(refuse)
    try:
        assert session.error("index.rebuild")["type"] == "store.io"
    finally:
        failpoints.arm(None)
    assert {*(session.store.folder / "views").glob("catalog*")} == views
    assert answers(session) == before
    session.data("index.rebuild")
    assert answers(session) == before


def test_searches_never_miss_while_everything_changes(
    open_session: OpenSession, tmp_path: Path
) -> None:
    """Rebuilds, compactions and model switches in a row, under searches and writes."""
    session = open_session()
    fill(session, 9)
    ended = threading.Event()
    wrong: list[Any] = []

    def search() -> None:
        other = Session.__new__(Session)
        other.__dict__.update(session.__dict__)
        other.outbox = type(session.outbox)()
        other.connection = Connection(session.service, session.connection.peer, other.outbox)
        number = 0
        while not ended.is_set():
            number += 1
            created = other.ask("doc.create", title=f"Live {number}", text=f"word{number} live")
            if "result" not in created:
                wrong.append(created)
                continue
            for mode in ("fts", "hybrid"):
                answer = other.ask("search", query=f"word{number}", mode=mode)
                hits = answer.get("result", {}).get("data", {}).get("results", [])
                if not hits or hits[0]["source"]["title"] != f"Live {number}":
                    wrong.append((mode, number, answer))
        other.connection.end(PATIENCE)

    thread = threading.Thread(target=search)
    thread.start()
    try:
        for turn in range(4):
            session.data("index.rebuild")
            session.library.compact()
            session.data("model.use", name=f"m{turn}", kind="hash", dim=64 + turn)
    finally:
        ended.set()
        thread.join(PATIENCE)
    assert wrong == []
    session.embedded()


# -------------------------------------------------------------------------- model.use


def used(session: Session, name: str = "other", **more: Any) -> Any:
    return session.data("model.use", name=name, kind="hash", **more)


def test_another_model_takes_over(open_session: OpenSession) -> None:
    session = open_session()
    fill(session, 5)
    before = answers(session)
    done = used(session, dim=48)
    assert done == {"name": "other", "kind": "hash", "changed": True, "embedded": 5, "pending": 0}
    status = session.data("status")
    assert (status["model_name"], status["embedding_dim"]) == ("other", 48)
    assert answers(session) != before
    after = answers(session)
    session.close()
    again = open_session(model="hash")
    assert again.data("status")["embedding_dim"] == 48
    assert answers(again) == after
    assert used(again, "hash")["changed"] is True
    again.library.compact()
    later = answers(again)
    assert [b"fts" in one for one in later] == [b"fts" in one for one in before]


def test_the_old_model_searches_until_the_new_one_is_ready(session: Session) -> None:
    fill(session, 5)
    before = answers(session)
    with stopped_at_any("model.embedded", lambda: session_use(session)):
        assert answers(session) == before
        session.data("doc.create", title="Meanwhile", text="zeppelin")
        session.embedded()
        assert session.data("status")["model_name"] == "hash"
    session.embedded()
    assert session.data("status")["model_name"] == "other"
    hits = session.data("search", query="zeppelin", mode="vector", limit=1)["results"]
    assert hits[0]["source"]["title"] == "Meanwhile"


def session_use(session: Session) -> None:
    outbox = type(session.outbox)()
    connection = Connection(session.service, session.connection.peer, outbox)
    connection.receive(as_bytes(request(1, "model.use", name="other", kind="hash", dim=32)))
    while b'"id":1' not in (line := outbox.take()):
        pass
    assert b'"result"' in line, line
    connection.end(PATIENCE)


@contextmanager
def stopped_at_any(point: str, start: Callable[[], Any]) -> Iterator[None]:
    """Like `stopped_at`, for the first thread that reaches the point."""
    reached, go_on = threading.Event(), threading.Event()

    def hold(name: str) -> None:
        if name == point:
            reached.set()
            assert go_on.wait(PATIENCE)

    failpoints.arm(hold)
    runner = threading.Thread(target=start)
    runner.start()
    try:
        assert reached.wait(PATIENCE)
        yield
    finally:
        go_on.set()
        runner.join(PATIENCE)
        failpoints.arm(None)


def test_a_model_that_is_not_there_changes_nothing(session: Session) -> None:
    fill(session, 3)
    before = answers(session)
    settings = (session.store.folder / "store.toml").read_bytes()
    assert session.error("model.use", name="/nowhere")["type"] == "model.unavailable"
    assert session.error("model.use", name="x", kind="openai")["type"] == "model.unavailable"
    assert (session.store.folder / "store.toml").read_bytes() == settings
    assert answers(session) == before


def test_without_a_model_and_back(session: Session) -> None:
    fill(session, 3)
    session.library.compact()
    before = answers(session)
    session.data("model.use", name="none", kind="none")
    assert session.data("status")["model_state"] == "off"
    result = session.ask("search", query="git backup")["result"]
    assert result["meta"]["notice"]
    session.data("doc.create", title="New", text="zeppelin")
    confirmed(session, "doc.delete", where={"title_contains": "New"})
    done = used(session, "hash")
    assert done["pending"] == 0
    session.library.compact()
    assert answers(session) == before


def test_the_models_there_are(session: Session) -> None:
    listed = session.data("model.list")
    assert [m["name"] for m in listed if m["current"]] == ["hash"]
    assert "none" in {m["name"] for m in listed}
    used(session, dim=16)
    assert [m["name"] for m in session.data("model.list") if m["current"]] == ["other"]


def test_a_key_that_cannot_be_read_is_told_first(session: Session) -> None:
    error = session.error(
        "model.use",
        name="m",
        kind="openai",
        url="http://127.0.0.1:9/v1",
        api_key_file="/nowhere/key",
        dim=8,
        dry_run=True,
    )
    assert error["type"] == "model.unavailable" and "api_key_file" in error["hint"]
    error = session.error("model.use", name="m", kind="openai", api_key="s3cret")
    assert error["field"] == "$.params.api_key" and "s3cret" not in str(error)
    assert isinstance(session.store, Store)


def test_a_reader_that_comes_during_the_swap_gets_the_new_catalog(session: Session) -> None:
    """The reader picks the old catalog, and opens it once its file is gone."""
    fill(session, 2)
    store, old = session.store, session.store.readers
    old._idle.clear()
    session.library.rebuild()
    new, former = store.readers, [old]

    class Swapped(type(store)):  # type: ignore[misc]
        @property
        def readers(self) -> Any:
            return former.pop() if former else new

        @readers.setter
        def readers(self, readers: Any) -> None: ...

    was, store.__class__ = store.__class__, Swapped
    try:
        with store.reading() as snapshot:
            assert snapshot.queries.chunk_total() == 2
    finally:
        store.__class__ = was
    assert former == []


def test_a_reader_that_comes_once_the_folder_was_moved_or_is_gone(tmp_path: Path) -> None:
    """SQLite opens files by name, so the catalog looks where its folder is."""
    client = Client(tmp_path / "first")
    client.ask("doc.create", title="One", text="words")
    client.library.store.readers._idle.clear()
    client.folder.rename(tmp_path / "second")
    assert len(client.ask("doc.list")) == 1
    client.library.store.readers._idle.clear()
    shutil.rmtree(tmp_path / "second")
    with pytest.raises(
        KbprocError, match="The catalog could not be opened: No such file"
    ) as caught:
        client.ask("doc.list")
    assert (caught.value.type, caught.value.retryable) == ("store.io", False)
    client.close()
