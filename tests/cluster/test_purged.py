"""Purges in a shared store: no file of any node or server still holds the text."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kbproc.engine.cluster.jetstream import link
from kbproc.engine.cluster.jetstream.log import JetStreamLog
from kbproc.engine.cluster.jetstream.making import ask
from kbproc.engine.cluster.jetstream.settings import StreamSettings
from kbproc.engine.cluster.jetstream.stream import LogStream
from tests.kit.nats import NEAR, Servers, put_settings
from tests.kit.patience import LONG, PATIENCE, all_or, until
from tests.kit.talk import Process, as_bytes, request

WORD = "xylophonequarantine"
PLACES = [
    "purge.recorded",
    "purge.sources",
    "purge.vectors",
    "purge.segment",
    "purge.log",
    "purge.views",
    "shared.shelved",
    "shared.erased",
]


class Cluster:
    """A separate server, and nodes by name; each node is a process."""

    def __init__(self, folder: Path, servers: int = 1) -> None:
        self.folder = folder / "nodes"
        self.folder.mkdir()
        self.servers = Servers.make(folder / "nats", servers).start()
        self.settings: StreamSettings = self.servers.stream("team")
        self.nodes: dict[str, Process] = {}
        self._ids = iter(range(1, 1_000_000))

    def open(self, name: str, **options: Any) -> Process:
        store = self.folder / name
        if not store.exists():
            put_settings(store, self.settings)
        if len(self.servers) == 1:  # which has no elections
            options = {"doubt_s": "0.2", **NEAR, **options}
        self.nodes[name] = Process(store, cwd=self.folder, real="1", **options).ready()
        return self.nodes[name]

    def kill(self, name: str) -> None:
        self.nodes.pop(name).stop()

    def until_dead(self, name: str) -> None:
        """Waits until the node has died at its failpoint."""
        node = self.nodes.pop(name)
        node.process.wait(PATIENCE)
        assert node.stop() == -9

    def answer(self, name: str, method: str, **params: Any) -> Any:
        return self.nodes[name].ask(next(self._ids), method, **params)

    def told(self, name: str, method: str, **params: Any) -> Any:
        answer = self.answer(name, method, **params)
        assert "result" in answer, answer
        return answer["result"]["data"]

    def seq(self, name: str) -> int:
        seq: int = self.answer(name, "ping")["result"]["meta"]["seq"]
        return seq

    def approved(self, name: str, method: str = "store.purge", **params: Any) -> dict[str, Any]:
        """Returns the params with the confirmation of the plan, as a person would approve it."""
        refused = self.answer(name, method, **params)["error"]["data"]
        assert refused["type"] == "input.confirmation_required", refused
        return {**params, "confirm": refused["plan"]["plan_hash"]}

    def purge(self, name: str, *ids: int) -> Any:
        return self.told(name, "store.purge", **self.approved(name, document_ids=list(ids)))

    def holding(self) -> list[str]:
        paths = []
        for root in (self.folder, *(server.folder / "data" for server in self.servers)):
            for folder, _, names in os.walk(root):  # files may vanish during the walk
                for path in (Path(folder, name) for name in names):
                    with contextlib.suppress(OSError):
                        if path.is_file() and WORD.encode() in path.read_bytes().lower():
                            paths.append(str(path.relative_to(root.parent)))
        return paths

    def until_forgotten(self) -> None:
        until(lambda: not self.holding(), "no trace", lambda: str(self.holding()))

    def until_equal(self) -> None:
        """Waits until all nodes hold the same log; then checks that they answer alike."""
        head = max(map(self.seq, self.nodes))

        def logs() -> list[list[str]]:
            for name in self.nodes:
                self.answer(name, "ping", min_seq=head)
            return [self.lines(name) for name in self.nodes]

        until(lambda: len({tuple(log) for log in logs()}) == 1, "equal logs", lambda: str(logs()))
        for name in self.nodes:
            self.told(name, "events.verify")
        lists = [[(d["id"], d["title"]) for d in self.told(n, "doc.list")] for n in self.nodes]
        assert lists.count(lists[0]) == len(lists) and lists[0]
        hits = [self.told(name, "search", query=f"{WORD} tea", mode="fts") for name in self.nodes]
        assert hits.count(hits[0]) == len(hits)

    def lines(self, name: str) -> list[str]:
        segments = sorted((self.folder / name / "log").glob("*.ndjson"))
        return [line for path in segments for line in path.read_text().splitlines()]

    def close(self) -> None:
        for name in list(self.nodes):
            self.kill(name)
        self.servers.kill()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    nodes = Cluster(tmp_path)
    yield nodes
    nodes.close()


def secret(cluster: Cluster, name: str, lines: int = 3) -> list[int]:
    """Writes the word into every part of a document; returns the ids of the documents with it."""
    cluster.told(name, "doc.create", title="Kept", text="Of tea.")
    text = f"It says {WORD} twice: {WORD}. And tea."
    short = cluster.told(name, "doc.create", title=f"The {WORD}", text=text, client_token=WORD[:9])
    long = "".join(f"Line {number} is of {WORD}.\n" for number in range(lines))
    other = cluster.told(name, "doc.create", title="Long", text=long)
    cluster.told(name, "doc.update", id=other["id"], text="No more of it.")
    cluster.told(name, "agent.create", slug="ann")
    note = cluster.told(name, "note.put", agent="ann", slug="plan", text=f"Buy a {WORD}.")
    return [short["id"], other["id"], note["id"]]


def test_a_purge_reaches_every_node(cluster: Cluster) -> None:
    """The purge reaches running nodes, a stopped node and a later node. It removes a source that
    only the servers hold, a record too long for a message, and a note's files.
    """
    for name in ("one", "two", "three"):
        cluster.open(name)
    ids = secret(cluster, "one", lines=30_000)
    seq = cluster.seq("one")
    for name in ("two", "three"):
        cluster.answer(name, "ping", min_seq=seq)
    assert WORD in cluster.told("two", "doc.get", id=ids[0], text=True)["text"]
    file = Path("notes/ann/plan.md")
    until(lambda: all((cluster.folder / n / file).exists() for n in cluster.nodes), "files")
    cluster.kill("three")
    assert len(cluster.holding()) > 10
    done = cluster.purge("one", *ids)
    assert (done["purged"], done["sources"]) == (3, 4)
    after = cluster.seq("one")
    cluster.answer("two", "ping", min_seq=after)
    remaining = {path for path in cluster.holding() if not path.startswith("nodes/three/")}
    assert not remaining
    three = cluster.open("three")
    assert three.ask(1, "ping", min_seq=after)["result"]["meta"]["seq"] >= after
    cluster.until_forgotten()
    cluster.open("four")
    cluster.until_equal()
    assert not any((cluster.folder / name / file).exists() for name in cluster.nodes)
    assert cluster.told("two", "note.list", agent="ann") == []
    new = cluster.told("four", "doc.create", title="New", text="New tea.")["id"]
    assert new > max(ids)
    cluster.until_equal()
    cluster.until_forgotten()


@pytest.mark.parametrize("place", all_or(["shared.shelved"], PLACES))
def test_whoever_decides_it_is_killed(cluster: Cluster, place: str) -> None:
    """Another node finishes the purge, and so does the killed node when it restarts."""
    cluster.open("one", kill_at=place)
    cluster.open("two", purge_s="0.5")
    ids = secret(cluster, "one")
    seq = cluster.seq("one")
    cluster.answer("two", "ping", min_seq=seq)
    params = cluster.approved("one", document_ids=ids)
    cluster.nodes["one"].send(as_bytes(request("dies", "store.purge", **params)))
    cluster.until_dead("one")
    until(partial(has_ended, cluster, "two"), "its end")
    assert all(path.startswith("nodes/one/") for path in cluster.holding())
    cluster.open("one")
    cluster.until_forgotten()
    cluster.until_equal()


@pytest.mark.skipif(not LONG, reason="takes long: three servers agree on who leads")
def test_servers_that_keep_several_copies(tmp_path: Path) -> None:
    """Journals hold the text until the servers compact them, minutes later."""
    cluster = Cluster(tmp_path, 3)
    try:
        for name in ("one", "two"):
            cluster.open(name)
        ids = secret(cluster, "one")
        cluster.purge("one", *ids)
        cluster.answer("two", "ping", min_seq=cluster.seq("one"))
        assert all("/_js_/" in path for path in cluster.holding())
        cluster.open("three")
        cluster.until_equal()
    finally:
        cluster.close()


@pytest.mark.skipif(not LONG, reason="takes long; another test kills who decides")
@pytest.mark.parametrize("place", [place for place in PLACES if place.startswith("purge.")])
def test_whoever_follows_it_is_killed(cluster: Cluster, place: str) -> None:
    cluster.open("one")
    cluster.open("two", kill_at=place)
    ids = secret(cluster, "one")
    cluster.answer("two", "ping", min_seq=cluster.seq("one"))
    cluster.purge("one", *ids)
    cluster.until_dead("two")
    assert all(path.startswith("nodes/two/") for path in cluster.holding())
    cluster.open("two")
    cluster.until_forgotten()
    cluster.until_equal()


def has_ended(cluster: Cluster, name: str) -> bool:
    records = cluster.told(name, "events.read", types=["purge.ended"])
    return len(records) == 1


def test_a_stream_refilled_by_a_node_that_was_away(cluster: Cluster) -> None:
    """The node restores the text from its log; the purge follows once another node is back."""
    for name in ("one", "away"):
        cluster.open(name)
    ids = secret(cluster, "one")
    cluster.answer("away", "ping", min_seq=cluster.seq("one"))
    cluster.told("away", "doc.download", id=ids[0])
    cluster.kill("away")
    cluster.purge("one", *ids)
    head = cluster.seq("one")
    cluster.kill("one")
    ask(cluster.settings, LogStream.delete)
    cluster.open("away")
    reseed(cluster, "away")
    assert cluster.holding()
    cluster.open("one")
    until(lambda: bool(cluster.told("one", "cluster.status")["problem"]), "the damage")
    reseed(cluster, "one")
    cluster.answer("away", "ping", min_seq=head)
    cluster.until_forgotten()
    cluster.until_equal()


def reseed(cluster: Cluster, name: str) -> Any:
    return cluster.told(name, "cluster.reseed", **cluster.approved(name, "cluster.reseed"))


def test_a_message_that_is_lost_beside_those_that_were_purged(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "DOUBT_S", 0.0)
    cluster.open("one")
    cluster.purge("one", *secret(cluster, "one"))
    gaps = ask(cluster.settings, LogStream.gaps)
    whole = next(seq for seq in range(2, cluster.seq("one")) if seq not in gaps)
    ask(cluster.settings, partial(LogStream.erase, seq=whole))
    two = JetStreamLog.open(cluster.folder / "two")
    two.join(cluster.settings)
    assert (two.head.seq, two.damage) == (whole - 1, f"The stream has lost record {whole}.")
    two.close()


def test_what_is_forgotten_and_what_was_said(cluster: Cluster) -> None:
    """Two purges, of a session and by store.compact, end one after the other."""
    for name in ("one", "two"):
        cluster.open(name)
    changed = cluster.told("one", "doc.create", title="Tea", text=f"Once {WORD}.")["id"]
    cluster.told("one", "doc.update", id=changed, text="Now tea.")
    session = cluster.told("one", "session.create", title=f"On {WORD}")["id"]
    cluster.told("one", "session.ask", session_id=session, question=f"What is {WORD}?")
    cluster.answer("two", "ping", min_seq=cluster.seq("one"))
    assert cluster.holding()
    params = cluster.approved("two", session_ids=[session])
    cluster.told("two", "store.purge", **params)
    params = cluster.approved("one", "store.compact", before="2999-01-01")
    assert cluster.told("one", "store.compact", **params)["contents"] == 1
    cluster.answer("two", "ping", min_seq=cluster.seq("one"))
    cluster.until_forgotten()
    cluster.open("three")
    cluster.until_equal()
