"""Workers parse documents for the nodes of a cluster, and may die at any moment."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen
from typing import Any

import pytest

from kbproc.engine.cluster.jetstream.settings import StreamSettings
from kbproc.engine.cluster.work.lending import PIECE_BYTES, Lending
from kbproc.engine.sources.parse.pool import ParserPool
from tests.kit.nats import shared
from tests.kit.parsing import parse_one
from tests.kit.patience import LONG, PATIENCE, until
from tests.kit.start import REPO, start
from tests.kit.talk import Session
from tests.kit.workers import work_of

OpenNode = Callable[..., Session]
_LENT = 6


def work(folder: Path, settings: StreamSettings, parallel: int = _LENT) -> Popen[Any]:
    argv = ["-m", "kbproc", "work", *settings.servers, "--stream", settings.stream]
    return start(
        [*argv, "--model", "hash", "--parallel", str(parallel)],
        cwd=folder,
        env={"PYTHONPATH": str(REPO), "PATH": "/usr/bin:/bin", "HOME": str(folder)},
        stdout=PIPE,
        stderr=DEVNULL,
    )


def lending_of(node: Session) -> Lending:
    """Waits until the node knows of a worker; returns its lending parser."""
    lending = node.library.parsers.others
    assert isinstance(lending, Lending)
    until(lambda: len(lending.listeners) > 0, "a worker")
    return lending


def text_of(number: int, size: int) -> str:
    """Returns Markdown of at least `size` bytes."""
    parts = [f"# Paper {number}\n"]
    while sum(map(len, parts)) < size:
        parts.append(
            f"## Part {len(parts)}\n\n" + f"Tea {number} grows in part {len(parts)}. " * 40
        )
    return "\n\n".join(parts)


def test_a_worker_reads_what_the_node_would_read(
    open_node: OpenNode, started: list[Popen[Any]], tmp_path: Path
) -> None:
    """A worker's result equals the node's own, also for files longer than one piece."""
    settings = shared().stream()
    one = open_node("one", settings)
    started.append(work(tmp_path, settings))
    lending, own = lending_of(one), one.library.parsers.get()
    long = text_of(1, 3 * PIECE_BYTES).encode()
    for document in (
        (long, "markdown", "long.md", None),
        (b"<h1>Tea</h1><p>It is hot.", "html", "t.html", "Another title"),
        (b"Tea. " * 10_000, "text", "t.txt", None),
    ):
        assert lending.read(*document) == parse_one(own, *document)
    broken = (b"%PDF-1.7 " + bytes(100), "pdf", "broken.pdf", None)
    assert lending.read(*broken) is None, "it is parsed here, which says why"
    until(lambda: work_of(settings) == 0, "no job stays there")


def test_documents_are_parsed_elsewhere_while_the_processes_here_are_busy(
    open_node: OpenNode,
    started: list[Popen[Any]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = shared().stream()
    folder = tmp_path / "papers"
    folder.mkdir()
    for number in range(_LENT + 2):
        (folder / f"{number}.md").write_text(text_of(number, 40_000))
    (folder / "short.md").write_text("Tea is short.")
    parse, read, go = ParserPool.parse, Lending.read, threading.Event()
    pieces: list[Any] = []

    def waiting(self: ParserPool, *document: Any) -> Any:
        assert go.wait(PATIENCE)
        return parse(self, *document)

    def counted(self: Lending, *document: Any) -> Any:
        pieces.append(read(self, *document))
        return pieces[-1]

    one, alone = open_node("one", settings), Session(tmp_path / "alone", cwd=tmp_path)
    expected = alone.data("doc.ingest", paths=[str(folder)])
    monkeypatch.setattr(ParserPool, "parse", waiting)
    monkeypatch.setattr(Lending, "read", counted)
    started.append(work(tmp_path, settings))
    lending_of(one)
    results: list[Any] = []
    ingest = threading.Thread(
        target=lambda: results.append(one.data("doc.ingest", paths=[str(folder)]))
    )
    ingest.start()
    until(lambda: len([piece for piece in pieces if piece]) == _LENT, "what the worker has read")
    go.set()
    ingest.join()
    assert results[0]["added"] == expected["added"] == _LENT + 3
    for session in (one, alone):
        session.embedded()
    texts = [
        {
            row["title"]: [
                chunk["text"]
                for chunk in session.data("chunk.list", document_id=row["id"], limit=1000)
            ]
            for row in session.data("doc.list")
        }
        for session in (one, alone)
    ]
    assert texts[0] == texts[1]
    alone.close()
    started[0].send_signal(signal.SIGTERM)
    assert started[0].stdout is not None
    assert json.loads(started[0].stdout.read())["data"]["documents"] == _LENT


def test_a_worker_that_is_silent_is_not_waited_for(
    open_node: OpenNode, started: list[Popen[Any]], tmp_path: Path
) -> None:
    settings = shared().stream()
    one = open_node("one", settings)
    started.append(work(tmp_path, settings))
    lending = lending_of(one)
    started[0].send_signal(signal.SIGSTOP)
    assert lending.read(b"Tea.", "text", "t.txt", None) is None
    assert lending.read(b"Tea.", "text", "t.txt", None) is None, "at once"
    until(lambda: work_of(settings) == 0, "no job stays there")


@pytest.mark.skipif(not LONG, reason="the server waits 5 seconds for the first")
def test_another_worker_takes_the_document_of_one_that_is_silent(
    open_node: OpenNode, started: list[Popen[Any]], tmp_path: Path
) -> None:
    settings = shared().stream()
    one = open_node("one", settings)
    started.append(work(tmp_path, settings))
    lending = lending_of(one)
    started[0].send_signal(signal.SIGSTOP)
    results: list[Any] = []
    reading = threading.Thread(
        target=lambda: results.append(lending.read(b"Tea.", "text", "t.txt", None))
    )
    reading.start()
    started.append(work(tmp_path, settings))
    reading.join()
    assert results[0] == parse_one(one.library.parsers.get(), b"Tea.", "text", "t.txt", None)
