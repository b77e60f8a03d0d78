"""kill -9 again and again under concurrent writes: no acknowledged write is ever missing."""

from __future__ import annotations

import json
import random
import threading
from collections import Counter
from pathlib import Path
from typing import Any

from kbproc.knowledge.app.health import doctor
from tests.conftest import OpenSession
from tests.kit.faults import bytes_of, faults_of, note
from tests.kit.patience import LONG, PATIENCE, until
from tests.kit.talk import Process, as_bytes, request

compared = faults_of("kill9")

ROUNDS = 200 if LONG else 3
IN_FLIGHT = 24
TOGETHER = 3  # documents of one write
AT_LEAST = 3  # acknowledged, before a process is killed


class Writers:
    """Many writes in flight at once over one pipe: short ones of one document and of several,
    and ingests beside them.
    """

    def __init__(self, process: Process, number: int, folder: Path) -> None:
        self.acknowledged: dict[str, dict[str, Any]] = {}
        self.sent: dict[str, dict[str, Any]] = {}
        self._process, self._number, self._folder = process, number, folder
        self._room = threading.Semaphore(IN_FLIGHT)
        self._dead = threading.Event()
        self.threads = [threading.Thread(target=self._write), threading.Thread(target=self._read)]
        for thread in self.threads:
            thread.start()

    def _write(self) -> None:
        for n in range(100_000):
            self._room.acquire()
            if self._dead.is_set():
                return
            id = f"r{self._number}-{n}"
            message = {0: self._ingest, 1: self._create_many}.get(n % 8, self._create)(id)
            self.sent[id] = message["params"]
            try:
                self._process.send(as_bytes(message))
            except OSError:
                return

    def _create(self, id: str) -> dict[str, Any]:
        return request(id, "doc.create", title=id, text=f"words of {id}", client_token=id)

    def _create_many(self, id: str) -> dict[str, Any]:
        """Creates several documents in one request; their titles begin with its id."""
        names = [f"{id}/{n}" for n in range(TOGETHER)]
        documents = [{"title": name, "text": f"words of {name}"} for name in names]
        return request(id, "doc.create", documents=documents, client_token=id)

    def _ingest(self, id: str) -> dict[str, Any]:
        (self._folder / f"{id}.md").write_text(f"# {id}\n\nwords of {id}\n")
        return request(id, "doc.ingest", paths=[f"{id}.md"], client_token=id)

    def _read(self) -> None:
        for line in self._process.stdout:
            if not line.endswith(b"\n"):
                break  # torn by the kill
            message = json.loads(line)
            if "id" in message:
                assert "result" in message, message
                self.acknowledged[message["id"]] = message["result"]
                self._room.release()
        self._dead.set()
        self._room.release()

    def join(self) -> None:
        for thread in self.threads:
            thread.join(PATIENCE)
            assert not thread.is_alive()


def test_killed_again_and_again(open_session: OpenSession, tmp_path: Path) -> None:
    """Each process opens the store that the previous one left behind."""
    seed = random.randrange(1 << 30)
    chance = random.Random(seed)
    acknowledged: set[str] = set()
    sent: set[str] = set()
    for number in range(ROUNDS):
        process = Process(tmp_path / "store", cwd=tmp_path).ready()
        writers = Writers(process, number, tmp_path)
        until(lambda w=writers: len(w.acknowledged) >= AT_LEAST, "writes that are acknowledged")
        log = tmp_path / "store" / "log"
        enough = bytes_of(log) + chance.randrange(20_000)
        until(lambda log=log, enough=enough: bytes_of(log) >= enough, "a log that grows")
        process.process.kill()
        writers.join()
        process.stop()
        acknowledged |= writers.acknowledged.keys()
        sent |= writers.sent.keys()
    session = open_session()
    counts = titles(session)
    assert set(counts.values()) == {1}, "a write happened twice"
    written = Counter(title.partition("/")[0] for title in counts)
    assert sorted(acknowledged - written.keys()) == [], f"seed {seed}"
    assert sorted(written.keys() - sent) == []
    together = Counter(title.partition("/")[0] for title in counts if "/" in title)
    assert set(together.values()) == {TOGETHER}, "of several in one write some are missing"
    assert session.store.log.verify() == session.store.seq
    session.embedded()
    assert not any(doctor.compare(session.store).values())
    assert len(acknowledged) >= AT_LEAST * ROUNDS
    note(
        "kill9",
        "kill -9 at a random moment under two dozen writes in flight, again and again",
        "every acknowledged write there, none twice; what was not acknowledged whole or absent",
    )


def titles(session: Any) -> dict[str, int]:
    """Counts documents by title."""
    counts: dict[str, int] = {}
    cursor = None
    while True:
        more = {"cursor": cursor} if cursor else {}
        answer = session.ask("doc.list", limit=1000, **more)["result"]
        for document in answer["data"]:
            text = session.data("doc.get", id=document["id"], text=True)["text"]
            assert f"words of {document['title']}" in text
            counts[document["title"]] = counts.get(document["title"], 0) + 1
        cursor = answer["meta"].get("next_cursor")
        if not cursor:
            return counts
