"""Start and end of the threads that embed."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kbproc.base.errors import KbprocError
from kbproc.engine.embedding.background import EMBED, PREPARE, WORKERS, Embedding
from kbproc.engine.embedding.claims import Claims
from kbproc.engine.models import catalogue
from kbproc.engine.models.hashing import HashEmbedder
from kbproc.engine.models.interface import Part
from kbproc.knowledge.app.switch import StandbyStore
from tests.kit.embeddings import DIM, Embeddings, Reply
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
    assert started_threads
    for thread in started_threads:
        thread.join(PATIENCE)
        assert not thread.is_alive()


def test_a_search_wakes_nobody_who_waits_for_work(session: Session) -> None:
    """A search must not wake idle workers, because they would run before the answering thread."""
    session.embedded()
    conditions: list[Any] = [one._changed for one in session.library.embedding._workers]
    assert len(conditions) == WORKERS
    until(lambda: all(len(one._waiters) == 1 for one in conditions), "workers that wait")
    waiting = [list(one._waiters) for one in conditions]
    assert "result" in session.ask("search", query="anything")
    assert [list(one._waiters) for one in conditions] == waiting


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
    for worker in embedding._workers:
        worker.join(PATIENCE)
        assert not worker.is_running


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

    class AwayFiller:
        at_once, texts = WORKERS, 16

        def embed(self, texts: list[str]) -> Iterator[Part]:
            if is_away[0]:
                raise KbprocError("model.unavailable", "It is away.")
            yield Part(0, len(texts), np.array(HashEmbedder().embed_many(texts)))

    class Batching(HashEmbedder):
        filler: Any = AwayFiller()

    monkeypatch.setattr(embedding, "load", Batching)
    session.data("doc.create", title="A", text="words of a text")
    embedding.start()
    until(lambda: embedding.problem is not None, "the problem")
    is_away[0] = False
    until(lambda: not embedding.pending_count, "the vector")
    assert embedding.problem is None


@contextlib.contextmanager
def by_endpoint(session: Session, folder: Path, endpoint: Embeddings) -> Iterator[Any]:
    """A model beside the store's, which an endpoint computes."""
    beside = StandbyStore(session.store)
    settings = {"kind": "openai", "name": "m", "url": endpoint.url, "dim": DIM}
    embedding = beside.embedding = Embedding(beside, settings, folder / "cache")
    try:
        yield embedding, beside
    finally:
        embedding.close()


def test_each_chunk_is_asked_for_once(session: Session, tmp_path: Path) -> None:
    """A text that the endpoint refuses makes its own document fail, and holds no other up."""
    texts = [{"title": f"{n}", "text": f"words of text {n}"} for n in range(150)]
    session.data("doc.create", documents=[*texts, {"title": "odd", "text": "a poisonous text"}])

    def answer(texts: list[str]) -> Reply | None:
        return Reply(400, {}) if any("poisonous" in text for text in texts) else None

    with Embeddings() as endpoint, by_endpoint(session, tmp_path, endpoint) as (model, beside):
        endpoint.script = answer
        assert model.drain(lambda stage, done, total: None) == 0
        [reason] = model.failed_documents.values()
        assert reason == "The embeddings endpoint for m answered 400."
        assert vector_count(beside) == 150
        good = [body["input"] for body in endpoint.bodies if "poisonous" not in str(body)]
        sent = [text for texts in good for text in texts if text != "dimensions"]
        assert len(sent) == len(set(sent)) == 150


def test_there_are_as_many_workers_as_the_model_takes_requests(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They end once nothing is pending, except the first."""
    embedding, together = session.library.embedding, threading.Barrier(5)

    class WideFiller:
        at_once, texts = 5, 1

        def embed(self, texts: list[str]) -> Iterator[Part]:
            together.wait(PATIENCE)
            yield Part(0, len(texts), np.array(HashEmbedder().embed_many(texts)))

    class Wide(HashEmbedder):
        filler: Any = WideFiller()

    monkeypatch.setattr(embedding, "_embedder", Wide())
    texts = [{"title": f"{n}", "text": f"words of text {n}"} for n in range(10)]
    session.data("doc.create", documents=texts)
    embedding.start()
    until(lambda: not embedding.pending_count, "the vectors")
    until(lambda: len(embedding._workers) == WORKERS, "the end of the other workers")


def test_a_purge_does_not_wait_for_an_endpoint(session: Session, tmp_path: Path) -> None:
    """The vectors of an earlier request are dropped, because erased texts may be among them."""
    session.data("doc.create", title="A", text="words of a text")
    begun, answers = threading.Event(), threading.Event()

    def answer(texts: list[str]) -> Reply | None:
        begun.set()
        assert answers.wait(PATIENCE)
        return None

    with Embeddings() as endpoint, by_endpoint(session, tmp_path, endpoint) as (model, beside):
        endpoint.script = answer
        model.start()
        assert begun.wait(PATIENCE)
        with model.gate.closed():
            answers.set()
            until(lambda: endpoint.in_flight == 0, "the answer")
            assert len(endpoint.bodies) == 1 and not vector_count(beside)
        until(lambda: not model.pending_count, "the vector")
        assert endpoint.batches == [1, 1]


def test_a_fill_keeps_no_more_threads_computing_than_it_should(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The workers beside them store vectors; towards the end, each claims fewer chunks."""
    claimed, computing, most = list[int](), set[int](), list[int]()
    take, embed = Claims.take, HashEmbedder.embed

    def taken(claims: Claims, vectors: Any, count: int) -> list[int]:
        ids = take(claims, vectors, count)
        claimed.extend([len(ids)] if ids else [])
        return ids

    def embedded(model: HashEmbedder, text: str) -> Any:
        computing.add(threading.get_ident())
        most.append(len(computing))
        vector = embed(model, text)
        computing.discard(threading.get_ident())
        return vector

    monkeypatch.setattr(Claims, "take", taken)
    monkeypatch.setattr(HashEmbedder, "embed", embedded)
    texts = [{"title": f"{n}", "text": f"words of text {n}"} for n in range(200)]
    session.data("doc.create", documents=texts)
    session.embedded()
    assert len(most) == sum(claimed) == len(texts), "a text was embedded twice"
    assert max(most) <= WORKERS
    assert (claimed[0], claimed[-1]) == (16, 1)
