"""A change of models: the old one answers, a kill or a stop loses no vector, and undo goes back."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kbproc.engine.embedding.background import WORKERS, Embedding
from kbproc.engine.models.hashing import HashEmbedder
from kbproc.engine.models.pack import records_in
from kbproc.engine.store.folder import write_settings
from tests.conftest import OpenSession
from tests.kit.patience import PATIENCE, until
from tests.kit.talk import Process, Session, as_bytes, cancel, request

TEXTS = [{"title": f"{n}", "text": f"the words of text {n}"} for n in range(60)]
NEW: dict[str, Any] = {"name": "other", "kind": "hash", "dim": 24}
LATER = "2026-02-01T00:00:00Z"
CHANGE = {"name": "other", "kind": "hash", "chunks": len(TEXTS)}


class Counted:
    """Texts by dimensions of the model that embeds them; those after `free` wait for `goes_on`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, free: int = 1000) -> None:
        self.texts: list[str] = []
        self.goes_on = threading.Event()
        embed = HashEmbedder.embed

        def counted(model: HashEmbedder, text: str) -> Any:
            if model.dim == NEW["dim"] and "\n" in text:  # a query has no title
                self.texts.append(text)
                if len(self.texts) > free:
                    assert self.goes_on.wait(PATIENCE)
            return embed(model, text)

        monkeypatch.setattr(HashEmbedder, "embed", counted)


Halted = tuple[Session, Counted, Callable[[], Any]]


def pack_of(store: Path, name: str = "other") -> Path:
    [path] = (store / "vectors").glob(f"{name}-*.pack")
    return path


def best(session: Session, text: str) -> Any:
    return session.data("search", query=text, mode="vector")["results"][0]


def answer_to(id: int | str, session: Session) -> Any:
    while (message := json.loads(session.receive())).get("id") != id:
        pass
    return message


def status(session: Session) -> Any:
    return session.data("status").get("model_change")


def standby_of(session: Session) -> Embedding:
    standby = session.library.switch._standby
    assert standby is not None
    return standby.embedding


def filled(session: Session) -> None:
    session.data("doc.create", documents=TEXTS)
    session.embedded()


@pytest.fixture
def halted(open_session: OpenSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[Halted]:
    """A session whose request `change` has begun a change that stands still after 40 texts.

    The function waits for its answer, and returns the error.
    """
    session = open_session()
    filled(session)
    counted = Counted(monkeypatch, free=40)
    session.send(as_bytes(request("change", "model.use", **NEW)))
    until(lambda: len(counted.texts) >= 40 + WORKERS, "a change that stands still")

    def ended() -> Any:
        counted.goes_on.set()
        return answer_to("change", session)

    try:
        yield session, counted, ended
    finally:
        counted.goes_on.set()


def test_the_old_model_answers_until_the_new_one_has_all_vectors(halted: Halted) -> None:
    session, counted, ended = halted
    other = session.another("user")
    before = other.data("status")
    assert before["model_name"] == "hash"
    change = before["model_change"]
    assert {name: change[name] for name in CHANGE} == CHANGE
    assert (change["running"], change["problem"]) == (True, None)
    assert 0 <= change["embedded"] <= 40
    assert best(other, "the words of text 7")["source"]["title"] == "7"
    # Both models embed a text that comes during the change.
    other.data("doc.create", title="new", text="the words of a new text")
    other.embedded()
    assert "result" in ended()
    after = other.data("status")
    assert (after["model_name"], "model_change" in after) == ("other", False)
    other.embedded()
    assert best(other, "the words of a new text")["source"]["title"] == "new"
    assert sorted(counted.texts) == sorted({*counted.texts}), "a text was embedded twice"
    assert len(counted.texts) == len(TEXTS) + 1


def test_a_change_that_was_stopped_goes_on_and_embeds_nothing_twice(halted: Halted) -> None:
    session, counted, ended = halted
    session.send(as_bytes(cancel("change")))
    until(lambda: standby_of(session)._stopping, "the end of the change")
    error = ended()["error"]["data"]
    assert error["type"] == "operation.cancelled"
    change = status(session)
    assert change["running"] is False
    stored = records_in(pack_of(session.store.folder), NEW["dim"])
    assert change["embedded"] == stored == len(counted.texts) < len(TEXTS)
    assert session.data("model.use", **NEW)["pending"] == 0
    assert len({*counted.texts}) == len(counted.texts) == len(TEXTS)
    assert status(session) is None


def test_undo_stops_a_change_and_removes_its_vectors(halted: Halted) -> None:
    session, _, ended = halted
    pack = pack_of(session.store.folder)
    other = session.another("user")
    answer = other.ask("model.use", undo=True, dry_run=True)["result"]
    assert answer["meta"]["plan"]["changes"] == ["end the change to other and remove its vectors"]
    other.send(as_bytes(request(1, "model.use", undo=True)))
    until(lambda: standby_of(session)._stopping, "the end of the change")
    error = ended()["error"]["data"]
    assert error["type"] == "operation.cancelled"
    undone = answer_to(1, other)["result"]["data"]
    assert undone == {
        "name": "hash",
        "kind": "hash",
        "changed": True,
        "embedded": len(TEXTS),
        "pending": 0,
    }
    assert not pack.exists()
    assert status(session) is None
    assert best(session, "the words of text 7")["source"]["title"] == "7"
    assert "next_model" not in (session.store.folder / "store.toml").read_text()
    nothing = session.error("model.use", undo=True)
    assert nothing["type"] == "resource.not_found"


@pytest.mark.parametrize("point", ["pack.written:3", "model.embedded", "model.settings"])
def test_a_killed_change_goes_on_at_the_next_start(
    point: str, tmp_path: Path, open_session: OpenSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = open_session()
    filled(first)
    first.close()
    process = Process(tmp_path / "store", cwd=tmp_path, kill_at=point).ready()
    process.send(as_bytes(request(1, "model.use", **NEW)))
    assert process.process.wait(PATIENCE) == -9, process.told()
    process.stop()
    stored = records_in(pack_of(tmp_path / "store"), NEW["dim"])
    assert 0 < stored <= len(TEXTS)
    counted = Counted(monkeypatch)
    session = open_session()
    until(lambda: status(session) is None, "the end of the change")
    assert session.data("status")["model_name"] == "other"
    assert len({*counted.texts}) == len(counted.texts) == len(TEXTS) - stored
    session.embedded()
    assert best(session, "the words of text 7")["source"]["title"] == "7"
    assert session.data("model.use", undo=True)["name"] == "hash"
    assert session.data("status")["freshness"]["pending_embeddings"] == 0


def test_undo_takes_the_former_model_from_its_pack(
    open_session: OpenSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = open_session()
    filled(session)
    session.data("model.use", **NEW)
    session.data("doc.create", title="later", text="the words of a later text")
    session.embedded()
    embed, texts = HashEmbedder.embed, list[str]()
    monkeypatch.setattr(
        HashEmbedder, "embed", lambda model, text: (texts.append(text), embed(model, text))[1]
    )
    undone = session.data("model.use", undo=True)
    assert (undone["name"], undone["pending"]) == ("hash", 0)
    assert texts == ["later\nthe words of a later text"]
    again = session.data("model.use", undo=True)
    assert (again["name"], len(texts)) == ("other", 1), "undoing twice goes forth again"


def test_a_model_of_the_same_name_has_a_pack_of_its_own(open_session: OpenSession) -> None:
    session = open_session()
    filled(session)
    session.data("model.use", name="hash", kind="hash", dim=24)
    packs = session.store.folder / "vectors"
    assert len(list(packs.glob("*.pack"))) == 2
    assert not list(packs.glob("*.old"))
    assert session.data("model.use", undo=True)["pending"] == 0
    session.library.close()
    again = open_session()
    assert again.data("status")["freshness"]["pending_embeddings"] == 0
    assert best(again, "the words of text 7")["source"]["title"] == "7"


def purge(session: Session, method: str, **params: Any) -> None:
    plan = session.error(method, **params)["plan"]
    session.data(method, **params, confirm=plan["plan_hash"])


def test_a_purge_reaches_both_packs(halted: Halted) -> None:
    """The key of a vector is a digest of its text, which could be guessed from it."""
    session, counted, ended = halted
    other = session.another("user")
    packs = [pack_of(session.store.folder, name) for name in ("hash", "other")]
    models = [session.library.embedding, standby_of(session)]
    ids = {one["title"]: one["id"] for one in other.data("doc.list", limit=100)}

    def holders(string: str) -> list[str]:
        keys = zip(packs, models, strict=True)
        return [
            path.name
            for path, model in keys
            if model.pack is not None and model.pack.key(string) in path.read_bytes()
        ]

    stored = [string for string in counted.texts if len(holders(string)) == 2]
    first, second, third = (string for string in stored[:3])
    purge(other, "store.purge", document_ids=[ids[first.split("\n")[0]]])
    assert holders(first) == []
    assert len(holders(second)) == 2
    assert "result" in ended()
    assert other.data("status")["freshness"]["pending_embeddings"] == 0
    # The pack of the former model, which is in use no more.
    purge(other, "store.purge", document_ids=[ids[second.split("\n")[0]]])
    assert holders(second) == []
    assert len(holders(third)) == 2
    other.data("doc.update", id=ids[third.split("\n")[0]], text="something else")
    other.embedded()
    session.store.host.pass_until(LATER)
    purge(other, "store.compact", before=LATER)
    assert holders(third) == []
    assert other.data("model.use", undo=True)["pending"] == 0


def test_a_change_that_came_with_a_store_is_not_made(
    open_session: OpenSession, tmp_path: Path
) -> None:
    """The author of the store may have chosen an endpoint to receive the texts."""
    store = tmp_path / "store"
    store.mkdir(mode=0o700)
    write_settings(store / "store.toml", {"kind": "hash", "name": "hash"})
    write_settings(store / "store.toml", {"kind": "no such kind"}, "next_model")
    damaged = open_session()
    assert status(damaged) is None
    damaged.close()
    with socket.create_server(("127.0.0.1", 0)) as theirs:
        theirs.setblocking(False)
        url = f"http://127.0.0.1:{theirs.getsockname()[1]}/v1"
        settings = {"kind": "openai", "name": "m", "url": url, "dim": 2}
        for table in ("next_model", "former_model"):
            write_settings(store / "store.toml", settings, table)
        session = open_session()
        session.data("doc.create", title="A", text="alpha beta")
        until(lambda: status(session)["problem"], "the reason")
        assert "not approved" in status(session)["problem"]
        assert session.data("model.use", undo=True)["name"] == "hash"
        assert status(session) is None
        assert "not approved" in session.error("model.use", undo=True)["message"]
        with pytest.raises(BlockingIOError):
            theirs.accept()
