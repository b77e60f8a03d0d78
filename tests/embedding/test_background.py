"""The threads that embed begin and end."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kbproc.embedding.background import WORKERS, Embedding
from kbproc.library.switch import Beside
from kbproc.models.hashing import HashEmbedder
from tests.kit.patience import LIVES, PATIENCE, until
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
    begun: list[threading.Thread] = []

    def meanwhile(self: threading.Thread) -> None:
        if threading.current_thread() is threading.main_thread():
            if not begun:
                begin(closing)
                closing.join(0.2)  # it can't end before this has begun
            begun.append(self)
        begin(self)

    monkeypatch.setattr(threading.Thread, "start", meanwhile)
    embedding.start()
    monkeypatch.undo()
    closing.join(PATIENCE)
    assert not closing.is_alive()
    assert failed == []
    assert begun and not any(thread.is_alive() for thread in begun)


def test_a_search_wakes_nobody_who_waits_for_work(session: Session) -> None:
    """Whoever is woken takes its turn before the thread that answers."""
    session.embedded()
    changed: Any = session.library.embedding._changed
    until(lambda: len(changed._waiters) == WORKERS, "threads that wait")
    waiting = list(changed._waiters)
    assert "result" in session.ask("search", query="anything")
    assert list(changed._waiters) == waiting


class Halting(HashEmbedder):
    """Computes so many texts, and each further one once it is let go on."""

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
    with halted(session, tmp_path, monkeypatch) as found:
        yield found


@contextlib.contextmanager
def halted(session: Session, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A model beside that of the store, whose threads stand still after five texts."""
    texts = [{"title": f"{n}", "text": f"words of text {n}"} for n in range(40)]
    assert session.data("doc.create", documents=texts)["added"] == 40
    session.embedded()
    model = Halting(5)
    monkeypatch.setattr("kbproc.models.catalogue.load", lambda *given: model)
    beside = Beside(session.store)
    settings = {"kind": "hash", "name": "halting", "dim": 25}
    embedding = beside.embedding = Embedding(beside, settings, folder / "cache")
    embedding.start()
    until(lambda: len(model.begun) == 5 + WORKERS, "threads that stand still")
    try:
        yield embedding, beside, model
    finally:
        model.goes_on.set()


def ended(embedding: Embedding) -> None:
    for thread in embedding._threads:
        thread.join(PATIENCE)
        assert not thread.is_alive()


def made(beside: Beside) -> int:
    assert beside.vectors is not None
    return beside.vectors.snapshot().live


def test_a_model_at_work_keeps_nobody_from_closing(
    halting: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """onnxruntime can't be interrupted; the vector that it makes then is dropped."""
    embedding, beside, model = halting
    monkeypatch.setattr("kbproc.embedding.background._END_SECONDS", LIVES)
    closing = threading.Thread(target=embedding.close, daemon=True)
    closing.start()
    closing.join(PATIENCE)
    assert not closing.is_alive()
    before = made(beside)
    model.goes_on.set()
    ended(embedding)
    assert made(beside) == before
    assert len(model.begun) == 5 + WORKERS


def test_a_session_that_ends_keeps_what_is_made_and_begins_nothing(halting: Any) -> None:
    embedding, beside, model = halting
    embedding.stop()
    model.goes_on.set()
    ended(embedding)
    assert made(beside) == len(model.begun) == 5 + WORKERS


def test_vectors_are_kept_while_their_batch_is_made(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session that is killed in the middle of a batch was not for nothing."""
    monkeypatch.setattr("kbproc.embedding.background._KEEP_SECONDS", 0.0)
    with halted(session, tmp_path, monkeypatch) as (embedding, beside, _):
        assert made(beside) == 5
        assert embedding.pending_count
