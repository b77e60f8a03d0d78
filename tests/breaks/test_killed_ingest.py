"""kill -9 at any moment: acknowledged documents are complete, and no document is partial."""

from __future__ import annotations

import contextlib
import json
import random
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.conftest import OpenSession
from tests.kit.faults import bytes_of
from tests.kit.patience import LONG, PATIENCE, until
from tests.kit.talk import REPO, Session

ROUNDS = 20 if LONG else 1
FILES, WRITES, IN_FLIGHT = 150, 400, 12
MOST_BYTES = 300_000  # most bytes of log when a process is killed
INGEST = {"paths": ["docs"], "client_token": "ingest"}


class Victim:
    """A real coprocess that ingests a folder while small writes come in beside it."""

    def __init__(self, folder: Path) -> None:
        self.acknowledged: dict[str, dict[str, Any]] = {}
        self.sent: set[str] = set()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.kit.fixed", str(folder / "store"), "hash"],
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={"PYTHONPATH": str(REPO), "PATH": "/usr/bin:/bin"},
        )
        assert self._process.stdin and self._process.stdout
        self._stdin, self._stdout = self._process.stdin, self._process.stdout
        while b'"ready"' not in self._stdout.readline():
            pass
        self._room = threading.Semaphore(IN_FLIGHT)
        self._ended = threading.Event()
        self._send("ingest", "doc.ingest", INGEST)
        self._writer = threading.Thread(target=self._write)
        self._reader = threading.Thread(target=self._read)
        for thread in (self._writer, self._reader):
            thread.start()

    def _send(self, id: str, method: str, params: dict[str, Any]) -> None:
        self.sent.add(id)
        request = {"jsonrpc": "2.0", "id": id, "method": method, "params": params}
        self._stdin.write(json.dumps(request).encode() + b"\n")
        self._stdin.flush()

    def _write(self) -> None:
        """A dozen writes in flight, then the next once one of them is answered."""
        for number in range(WRITES):
            id = f"doc-{number}"
            self._room.acquire()
            if self._ended.is_set():
                return
            try:
                self._send(
                    id, "doc.create", {"title": id, "text": f"words of {id}", "client_token": id}
                )
            except OSError:
                return

    def _read(self) -> None:
        for line in self._stdout:
            if not line.endswith(b"\n"):
                break  # torn by the kill
            message = json.loads(line)
            if "result" in message:
                self.acknowledged[message["id"]] = message["result"]
                self._room.release()
        self._ended.set()
        self._room.release()

    @property
    def is_done(self) -> bool:
        return len(self.acknowledged) == WRITES + 1

    def parsers(self) -> list[psutil.Process]:
        return psutil.Process(self._process.pid).children(recursive=True)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        for thread in (self._writer, self._reader):
            thread.join(PATIENCE)
            assert not thread.is_alive()
        self._stdout.close()
        with contextlib.suppress(BrokenPipeError):
            self._stdin.close()


@pytest.mark.parametrize("number", range(ROUNDS))
def test_killed_at_a_random_moment(open_session: OpenSession, tmp_path: Path, number: int) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    for n in range(FILES):
        text = "\n\n".join(f"Paragraph {k} of file {n} about topic{n % 7}." for k in range(20))
        (docs / f"{n:03}.md").write_text(f"# File {n}\n\n{text}\n")
    victim = Victim(tmp_path)
    enough = random.randrange(MOST_BYTES)
    log = tmp_path / "store" / "log"
    until(lambda: bytes_of(log) >= enough or victim.is_done, f"{enough} bytes in the log")
    victim.kill()
    session = open_session()
    check_acknowledged(session, victim)
    check_whole(session)
    findings = session.data("doctor", deep=True)
    assert findings["healthy"], findings
    go_on(session, victim)


def check_acknowledged(session: Session, victim: Victim) -> None:
    for id, result in victim.acknowledged.items():
        if id != "ingest":
            document = session.data("doc.get", id=result["data"]["id"], text=True)
            assert (document["title"], document["text"]) == (id, f"words of {id}")
        assert session.store.seq >= result["meta"]["seq"]


def check_whole(session: Session) -> None:
    """Checks that every document has all its chunks and its source, and that search finds it."""
    for doc in all_documents(session):
        chunks = session.data("chunk.list", document_id=doc["id"], limit=1000)
        assert [chunk["chunk_index"] for chunk in chunks] == list(range(doc["chunk_count"]))
        assert session.data("doc.download", id=doc["id"])["sha256"] == doc["sha256"]
        if doc["source"]["path"]:
            assert "Paragraph 19 of file" in chunks[-1]["text"]


def all_documents(session: Session) -> list[dict[str, Any]]:
    documents: list[dict[str, Any]] = session.data("doc.list", limit=1000)
    return documents


def go_on(session: Session, victim: Victim) -> None:
    """Sends every request again under its token: none is done twice, none is missing."""
    answer = session.ask("doc.ingest", **INGEST)["result"]
    counts = {name: answer["data"][name] for name in ("added", "updated", "unchanged", "failed")}
    assert counts == {"added": FILES, "updated": 0, "unchanged": 0, "failed": 0}
    for id in victim.sent - {"ingest"}:
        again = session.ask("doc.create", title=id, text=f"words of {id}", client_token=id)
        if id in victim.acknowledged:
            assert again["result"]["meta"]["duplicate"] is True
            assert again["result"]["data"]["id"] == victim.acknowledged[id]["data"]["id"]
    docs = all_documents(session)
    assert len(docs) == FILES + len(victim.sent) - 1
    assert {doc["revision"] for doc in docs} == {1}
    assert len({doc["source"]["path"] or doc["title"] for doc in docs}) == len(docs)


def test_no_parser_outlives_its_process(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.md").write_text("Alpha.")
    victim = Victim(tmp_path)
    until(lambda: "ingest" in victim.acknowledged, "the end of the ingest")
    parsers = victim.parsers()
    assert parsers
    victim.kill()
    _, alive = psutil.wait_procs(parsers, timeout=PATIENCE)
    assert alive == []
