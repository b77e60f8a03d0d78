"""Several nodes whose log is one stream: real servers, real processes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kit.nats import Servers, put_settings, shared
from tests.kit.patience import until
from tests.kit.talk import Process

MakeNode = Callable[..., Process]


@pytest.fixture
def node(tmp_path: Path) -> Iterator[MakeNode]:
    made: list[Process] = []

    def make(name: str, settings: Any) -> Process:
        if not (tmp_path / name).exists():
            put_settings(tmp_path / name, settings)
        made.append(Process(tmp_path / name, cwd=tmp_path, real="1"))
        return made[-1].ready()

    yield make
    for process in made:
        process.stop()


def log_of(store: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted((store / "log").iterdir()))


def create(process: Process, id: int, title: str) -> Any:
    return process.ask(id, "doc.create", title=title, text=f"This is about {title} and tea.")


def is_embedded(process: Process, seq: int) -> bool:
    freshness = process.ask("embedded", "status", min_seq=seq)["result"]["meta"]["freshness"]
    return bool(freshness["vector_seq"] == seq)


def test_two_nodes_write_one_log_and_answer_alike(node: MakeNode, tmp_path: Path) -> None:
    settings = shared().stream()
    one, two = node("one", settings), node("two", settings)
    said: list[Any] = []

    def write(process: Process, name: str) -> None:
        for number in range(10):
            said.append(create(process, number, f"{name} {number}"))

    threads = [
        threading.Thread(target=write, args=(one, "one")),
        threading.Thread(target=write, args=(two, "two")),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seqs = [answer["result"]["meta"]["seq"] for answer in said]
    assert sorted(seqs) == list(range(2, 22)), "each write is one record, and none is twice"
    until(lambda: is_embedded(one, 21) and is_embedded(two, 21), "both nodes' vectors")
    for method, params in (
        ("doc.list", {}),
        ("search", {"query": "tea", "limit": 30}),
        ("events.read", {"limit": 50}),
    ):
        answers = []
        for process in (one, two):
            answer = process.ask(method, method, min_seq=21, **params)
            answer["result"]["meta"].pop("took_ms", None)
            answers.append(answer)
        assert answers[0] == answers[1] and "result" in answers[0]
    one.close(), two.close()
    assert log_of(tmp_path / "one") == log_of(tmp_path / "two")
    assert log_of(tmp_path / "one").count(b"\n") == 21


def test_without_a_server_a_node_reads_on_and_catches_up(node: MakeNode, tmp_path: Path) -> None:
    servers = Servers.make(tmp_path / "nats").start()
    try:
        settings = servers.stream()
        one, two = node("one", settings), node("two", settings)
        assert create(one, 1, "before")["result"]["meta"]["seq"] == 2
        assert two.ask(1, "doc.list", min_seq=2)["result"]["meta"]["count"] == 1
        servers.kill()
        refused = create(two, 2, "meanwhile")["error"]["data"]
        assert (refused["type"], refused["retryable"]) == ("store.io", True)
        assert two.ask(3, "search", query="tea")["result"]["meta"]["seq"] == 2
        servers.start()
        told: list[Any] = []
        until(lambda: told.append(create(one, 4, "after")) or "result" in told[-1], "a write")
        assert told[-1]["result"]["meta"]["seq"] == 3
        assert two.ask(4, "doc.list", min_seq=3)["result"]["meta"]["count"] == 2
    finally:
        servers.kill()
