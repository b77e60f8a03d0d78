"""Servers and nodes are killed, stopped and exchanged while every node writes."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kbproc.engine.cluster.jetstream.refill import compare
from kbproc.engine.log.file import FileLog
from tests.kit.nats import Server, Servers, put_settings
from tests.kit.node import Node
from tests.kit.patience import LONG, PATIENCE, PAUSE, all_or, until
from tests.kit.replicas import Replicas, bury

WRITERS = 4 if LONG else 1
# Seconds between two writes of a node, so that three nodes and four servers leave the processor to
# other tests; a write takes as long, so that most blows meet one.
PACE_S = 0.0 if LONG else 2 * PAUSE
# While replicas move, which takes seconds, fewer writes suffice.
SLOW_PACE_S = 0.0 if LONG else 8 * PAUSE
BLOWS = int(os.environ.get("KBPROC_TEST_ROUNDS", "200" if LONG else "5"))


class Writer(threading.Thread):
    """Adds documents one after the other, each until it is acknowledged. `acked`: token → seq."""

    def __init__(self, node: Node, name: str, ended: threading.Event) -> None:
        super().__init__(name=name, daemon=True)
        self.acked: dict[str, int] = {}
        self.odd: list[Any] = []
        self.pace_s = PACE_S
        self._node = node
        self._ended = ended

    def run(self) -> None:
        for number in itertools.count():
            if self._ended.is_set():
                return
            token = f"{self.name}-{number}"
            while not self._is_written(token):
                if self._ended.is_set():
                    return
            self._ended.wait(self.pace_s)

    def _is_written(self, token: str) -> bool:
        answer = self._node.ask("doc.create", title=token, text="Tea.", client_token=token)
        if answer is None:
            self._ended.wait(PAUSE)  # the node restarts
            return False
        if "result" in answer:
            self.acked[token] = answer["result"]["meta"]["seq"]
            return True
        refused = answer["error"]["data"]
        if not refused["retryable"]:
            self.odd.append(answer)
        self._ended.wait(refused.get("retry_after_ms", 100) / 1000)
        return False


class Cluster:
    def __init__(self, folder: Path) -> None:
        self.servers = Servers.make(folder / "nats", 3).start()
        self.settings = self.servers.stream("chaos")
        stores = [folder / f"node-{n}" for n in range(3)]
        self.nodes = [Node(put_settings(store, self.settings, "none")) for store in stores]
        self.ended = threading.Event()
        self.writers = [
            Writer(node, f"{n}-{w}", self.ended)
            for n, node in enumerate(self.nodes)
            for w in range(WRITERS)
        ]

    @property
    def acked(self) -> dict[str, int]:
        return {token: seq for writer in self.writers for token, seq in [*writer.acked.items()]}

    def begin(self) -> None:
        for writer in self.writers:
            writer.start()
        self.until_more(WRITERS)

    def until_more(self, count: int) -> None:
        before = len(self.acked)
        until(lambda: len(self.acked) >= before + count, "acknowledgements")

    def blow(self, chance: random.Random) -> None:
        """Disturbs one server or node at a time; the writers go on without it."""
        victim = chance.choice(["kill server", "stop server", "kill node", "stop node"])
        if victim == "kill server":
            server = chance.choice(self.servers)
            server.kill()
            self.until_more(1)
            server.start().ready()
        elif victim == "stop server":
            server = chance.choice(self.servers)
            server.signal(signal.SIGSTOP)
            self.until_more(1)
            server.signal(signal.SIGCONT)
        elif victim == "kill node":
            chance.choice(self.nodes).restart()
        else:
            process = chance.choice(self.nodes).process.process
            process.send_signal(signal.SIGSTOP)
            self.until_more(1)
            process.send_signal(signal.SIGCONT)
        self.until_more(WRITERS)

    def heads(self) -> set[tuple[int, str]]:
        statuses = [node.told("cluster.status") for node in self.nodes]
        return {(status["seq"], status["hash"]) for status in statuses}

    def close(self) -> None:
        self.ended.set()
        for node in self.nodes:
            node.kill()
        self.servers.kill()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    running = Cluster(tmp_path)
    yield running
    running.close()


def test_whatever_is_killed_each_acknowledged_write_is_everywhere_once(cluster: Cluster) -> None:
    cluster.begin()
    chance = random.Random(18)
    for number in range(1, BLOWS + 1):
        cluster.blow(chance)
        if number % 50 == 0:  # a process of a test may live for a while only
            for node in cluster.nodes:
                node.restart()
    ended(cluster)


@pytest.mark.parametrize("seed", all_or([0], range(4)))
def test_whoever_holds_the_stream_each_acknowledged_write_is_everywhere_once(
    cluster: Cluster, seed: int
) -> None:
    """A fourth server joins and takes over replicas from live and dead servers; one server
    dies for good, and another takes its place.
    """
    cluster.begin()
    for writer in cluster.writers:
        writer.pace_s = SLOW_PACE_S
    cluster.servers.add().start().ready()
    replicas, chance = Replicas(cluster.settings), random.Random(seed)
    for move in [leader_moves, dead_moves] if not LONG else chance.choices(MOVES, k=12):
        move(cluster, replicas, chance)
        replicas.until_whole()
        cluster.until_more(WRITERS)
    exchanged(cluster, replicas, chance)
    replicas.until_whole()
    cluster.until_more(WRITERS)
    ended(cluster)
    with contextlib.closing(FileLog.open(cluster.nodes[0].store / "log")) as log:
        for name in replicas.names:  # each of them as a node would read it
            replicas.lead(name)
            diff = compare(cluster.settings, log)
            assert (diff.remedy, diff.equal, diff.sound) == ("nothing", log.head, log.head)


def server_of(cluster: Cluster, name: str) -> Server:
    return next(server for server in cluster.servers if server.name == name)


def leader_moves(cluster: Cluster, replicas: Replicas, chance: random.Random) -> None:
    replicas.remove(replicas.names[0])


def follower_moves(cluster: Cluster, replicas: Replicas, chance: random.Random) -> None:
    replicas.remove(chance.choice(replicas.names[1:]))


def dead_moves(cluster: Cluster, replicas: Replicas, chance: random.Random) -> None:
    """The server loses its replica while it is dead, then comes back with its old data."""
    name = chance.choice(replicas.names)
    server_of(cluster, name).kill()
    cluster.until_more(1)
    replicas.remove(name)
    replicas.until_whole()
    server_of(cluster, name).start().ready()


def one_dies_as_another_moves(cluster: Cluster, replicas: Replicas, chance: random.Random) -> None:
    """A server dies while another still copies the stream, so writes may fail until it is back."""
    removed, dead = chance.sample(replicas.names, 2)
    replicas.remove(removed)
    server_of(cluster, dead).kill()
    server_of(cluster, dead).start().ready()


MOVES = [leader_moves, follower_moves, dead_moves, one_dies_as_another_moves]


def exchanged(cluster: Cluster, replicas: Replicas, chance: random.Random) -> None:
    dead = server_of(cluster, chance.choice(replicas.names))
    dead.kill()
    cluster.servers.add().start().ready()
    cluster.until_more(1)
    bury(dead, [server for server in cluster.servers if server is not dead])


def ended(cluster: Cluster) -> None:
    """All nodes hold the same, with each acknowledged write once."""
    cluster.ended.set()
    for writer in cluster.writers:
        writer.join(PATIENCE)
        assert not writer.is_alive()
        assert writer.odd == []
    until(lambda: len(cluster.heads()) == 1, "equal heads", lambda: str(cluster.heads()))
    for node in cluster.nodes:
        node.close()
    logs = [log_of(node.store) for node in cluster.nodes]
    assert logs[0] == logs[1] == logs[2]
    lines = [json.loads(line) for line in logs[0].splitlines()]
    written = {line["token"]: line["seq"] for line in lines if line["token"]}
    assert len(written) == sum(line["token"] is not None for line in lines), "none is twice"
    assert cluster.acked.items() <= written.items()
    for node in cluster.nodes:
        log = FileLog.open(node.store / "log")
        assert log.verify() == len(lines)
        log.close()


def log_of(store: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted((store / "log").iterdir()))
