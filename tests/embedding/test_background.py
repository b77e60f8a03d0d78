"""Start and end of the threads that embed."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kbproc.base.errors import KbprocError
from kbproc.engine.embedding.background import EMBED, PREPARE, WORKERS, Embedding
from kbproc.engine.models import catalogue
from kbproc.engine.models.hashing import HashEmbedder
from kbproc.knowledge.app.switch import StandbyStore
from tests.kit.patience import GLIMPSE, LIVES, PATIENCE, until
from tests.kit.talk import Session


def test_whoever_closes_it_while_it_begins_waits_for_its_threads(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session.embedded()
    model = {"kind": "hash", "name": "hash", "dim": 24}
    embedding = Embedding(session.store, model, tmp_path / "cache")
    failed: list[RuntimeError] = []
    begin = threading.Thread.start

    def close() -> None:
        try:
            embedding.close()
        except RuntimeError as error:
            failed.append(error)

    closing = threading.Thread(target=close)
    started_threads: list[threading.Thread] = []

    def meanwhile(self: threading.Thread) -> None:
        if threading.current_thread() is threading.main_thread():
            if not started_threads:
                begin(closing)
                closing.join(GLIMPSE)  # closing can't end before this thread has begun
            started_threads.append(self)
        begin(self)

    monkeypatch.setattr(threading.Thread, "start", meanwhile)
    embedding.start()
    monkeypatch.undo()
    closing.join(PATIENCE)
    assert not closing.is_alive()
    assert failed == []
    assert started_threads and not any(thread.is_alive() for thread in started_threads)


def test_a_search_wakes_nobody_who_waits_for_work(session: Session) -> None:
    """A search must not wake idle workers, because they would run before the answering thread."""
    session.embedded()
    changed: Any = session.library.embedding._changed
    until(lambda: len(changed._waiters) == WORKERS, "threads that wait")
    waiting = list(changed._waiters)
    assert "result" in session.ask("search", query="anything")
    assert list(changed._waiters) == waiting


def test_a_model_that_is_being_prepared_is_its_own_stage(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session.data("doc.create", title="A", text="Alpha.")
    session.embedded()
    beside = StandbyStore(session.store)
    model = {"kind": "hash", "name": "hash", "dim": 24}
    embedding = beside.embedding = Embedding(beside, model, tmp_path / "cache")
    embedding.state, prepared, stages = "not ready", threading.Event(), list[str]()

    def load(spec: Any, folder: Path, **options: Any) -> HashEmbedder:
        assert prepared.wait(PATIENCE)
        return HashEmbedder(dim=24)

    def progress(stage: str, done: int, total: int | None) -> None:
        stages.append(stage)
        if stage == PREPARE:
            assert (done, total) == (0, None)
            prepared.set()

    monkeypatch.setattr(catalogue, "load", load)
    assert embedding.drain(progress) == 0
    embedding.close()
    assert list(dict.fromkeys(stages)) == [PREPARE, EMBED]


class Halting(HashEmbedder):
    """Embeds the first `texts` texts at once, and each further one after `goes_on` is set."""

    def __init__(self, texts: int) -> None:
        super().__init__(dim=25)
        self.free = texts
        self.begun: list[str] = []
        self.goes_on = threading.Event()

    def embed(self, text: str) -> Any:
        self.begun.append(text)
        if len(self.begun) > self.free:
            self.goes_on.wait(PATIENCE)
        return super().embed(text)


@pytest.fixture
def halting(session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    with halted(session, tmp_path, monkeypatch) as model:
        yield model


@contextlib.contextmanager
def halted(session: Session, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A second model beside the store's; its threads stop after five texts."""
    texts = [{"title": f"{n}", "text": f"words of text {n}"} for n in range(40)]
    assert session.data("doc.create", documents=texts)["added"] == 40
    session.embedded()
    model = Halting(5)
    monkeypatch.setattr("kbproc.engine.models.catalogue.load", lambda *_, **options: model)
    beside = StandbyStore(session.store)
    settings = {"kind": "hash", "name": "halting", "dim": 25}
    embedding = beside.embedding = Embedding(beside, settings, folder / "cache")
    try:
        embedding.start()
        until(lambda: len(model.begun) == 5 + WORKERS, "threads that stand still")
        yield embedding, beside, model
    finally:  # a thread that went on would embed into the next test
        embedding.stop()
        model.goes_on.set()
        ended(embedding)
        embedding.close()


def ended(embedding: Embedding) -> None:
    for thread in embedding._threads:
        thread.join(PATIENCE)
        assert not thread.is_alive()


def vector_count(beside: StandbyStore) -> int:
    assert beside.vectors is not None
    return beside.vectors.snapshot().live


def test_a_model_at_work_keeps_nobody_from_closing(
    halting: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """onnxruntime can't be interrupted; the vector that it computes during closing is dropped."""
    embedding, beside, model = halting
    monkeypatch.setattr("kbproc.engine.embedding.background._END_SECONDS", LIVES)
    closing = threading.Thread(target=embedding.close, daemon=True)
    closing.start()
    closing.join(PATIENCE)
    assert not closing.is_alive()
    before = vector_count(beside)
    model.goes_on.set()
    ended(embedding)
    assert vector_count(beside) == before
    assert len(model.begun) == 5 + WORKERS


def test_a_session_that_ends_keeps_what_is_made_and_begins_nothing(halting: Any) -> None:
    embedding, beside, model = halting
    embedding.stop()
    model.goes_on.set()
    ended(embedding)
    assert vector_count(beside) == len(model.begun) == 5 + WORKERS


def test_vectors_are_kept_while_their_batch_is_made(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session that is killed in the middle of a batch keeps the vectors up to then."""
    monkeypatch.setattr("kbproc.engine.embedding.background._KEEP_SECONDS", 0.0)
    with halted(session, tmp_path, monkeypatch) as (embedding, beside, _):
        assert vector_count(beside) == 5
        assert embedding.pending_count


def test_a_full_disk_refuses_no_chunk(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """The chunk stays pending, and is embedded once there is room."""
    monkeypatch.setattr("kbproc.engine.embedding.background._RETRY_SECONDS", 0.01)
    embedding = session.library.embedding
    keep, full = embedding.keep, [True]

    def kept(rows: Any, vectors: Any) -> list[bytes]:
        if full[0]:
            raise KbprocError("store.io", "The disk is full.")
        return keep(rows, vectors)

    monkeypatch.setattr(embedding, "keep", kept)
    session.data("doc.create", title="A", text="words of a text")
    embedding.start()
    until(lambda: embedding.problem is not None, "the problem")
    assert (embedding.pending_count, embedding.failed_documents) == (1, {})
    full[0] = False
    until(lambda: not embedding.pending_count, "the vector")
    assert embedding.problem is None


def test_an_endpoint_that_came_back_is_no_problem_any_more(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An endpoint takes many texts at once, unlike a local model; its problem clears on success."""
    monkeypatch.setattr("kbproc.engine.embedding.background._RETRY_SECONDS", 0.01)
    embedding, is_away = session.library.embedding, [True]

    class Batching(HashEmbedder):
        batches = True

        def embed_many(self, texts: list[str]) -> Any:
            if is_away[0]:
                raise KbprocError("model.unavailable", "It is away.")
            return super().embed_many(texts)

    monkeypatch.setattr(embedding, "load", Batching)
    session.data("doc.create", title="A", text="words of a text")
    embedding.start()
    until(lambda: embedding.problem is not None, "the problem")
    is_away[0] = False
    until(lambda: not embedding.pending_count, "the vector")
    assert embedding.problem is None
