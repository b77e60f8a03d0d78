"""A tokenizer is loaded once, however many need it at the same time."""

from __future__ import annotations

import threading

import pytest

from kbproc.engine.sources.chunk import TokenCounter
from kbproc.engine.sources.parse import worker

_THREADS = 4


def test_threads_that_count_at_once_share_a_tokenizer(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, loads = threading.Semaphore(0), list[str]()
    may_load = threading.Event()

    def load(path: str) -> TokenCounter:
        loads.append(path)
        may_load.wait()
        return len

    def ask() -> None:
        begun.release()
        counted.append(count("four"))

    monkeypatch.setattr(worker, "token_counter", load)
    count, counted = worker.lazy_counter("tokenizer.json"), list[int]()
    threads = [threading.Thread(target=ask) for _ in range(_THREADS)]
    for thread in threads:
        thread.start()
    for _ in threads:
        begun.acquire()
    may_load.set()
    for thread in threads:
        thread.join()
    assert counted == [4] * _THREADS
    assert loads == ["tokenizer.json"]
