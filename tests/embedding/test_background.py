"""The threads that embed begin and end."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from kbproc.embedding.background import WORKERS, Embedding
from tests.kit.patience import PATIENCE, until
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
