"""A server with a fixed clock and fixed salts, so that two runs print the same bytes."""

from __future__ import annotations

import contextlib
import itertools
import os
import resource
import signal
import socket
import sys
from collections.abc import Iterator
from datetime import datetime
from importlib import import_module
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from kbproc.base import failpoints
from kbproc.base.host import Host
from kbproc.base.libraries import OPTIONAL
from kbproc.base.pipes import claim, leave
from kbproc.base.settings.config import MAX_IN_FLIGHT, MAX_LINE_BYTES, Config, Llm, SettingOrigin
from kbproc.engine.log import file
from kbproc.engine.models import weights
from kbproc.knowledge.app import upkeep
from kbproc.knowledge.sessions import live
from kbproc.surfaces.mcp import resources, tasks
from kbproc.surfaces.mcp import serve as mcp
from kbproc.surfaces.sharing import attached, owner, reach, serve
from kbproc.surfaces.wire import connection, lines

# Events are gathered until something forces a write, so that records are the same in each run.
GATHER_SECONDS = 3600.0
# The idle thread would commit the index and count deleted chunks between two slow requests.
IDLE_SECONDS = 3600.0
# Models without files, so that installed models make no difference.
NOT_HERE = {
    name: replace(carrier, weights="nowhere", files={"nowhere": "0" * 64})
    for name, carrier in weights.CARRIERS.items()
}
# Constants of the packages of a cluster, which only a node imports.
CLUSTER = {
    "connects_s": "engine.cluster.jetstream.log._CONNECTS_S",
    "doubt_s": "engine.cluster.jetstream.link.DOUBT_S",
    "heartbeat_s": "engine.cluster.jetstream.stream._HEARTBEAT_S",
    "quiet_s": "engine.cluster.jetstream.stream._SILENT_S",
    "purge_s": "knowledge.cluster.purging.PATIENCE_S",
}
NOW_MS = 1_767_225_600_000  # 2026-01-01T00:00:00Z


def model_of(text: str) -> dict[str, Any]:
    """Parses `KIND` or `KIND:NAME` into a store's model settings."""
    kind, _, name = text.partition(":")
    return {"kind": kind, "name": name or kind}


class FixedHost(Host):
    """A host whose clock stands still until `pass_until`, and whose salts count up."""

    def __init__(self) -> None:
        self._salts = itertools.count(1)
        self._now_ms = NOW_MS

    def now_ms(self) -> int:
        return self._now_ms

    def pass_until(self, moment: str) -> None:
        """Sets the clock to an RFC 3339 time."""
        self._now_ms = round(datetime.fromisoformat(moment).timestamp() * 1000)

    def monotonic_ms(self) -> float:
        return 0.0

    def salt(self) -> str:
        return f"{next(self._salts):032x}"

    def pid(self) -> int:
        return 4242

    def machine(self) -> str:
        return "here"

    def database_size(self, measured: int) -> int:
        return 1_000_000

    def versions(self, measured: dict[str, str]) -> dict[str, str]:
        return {name: "1.0.0" for name in measured if name not in OPTIONAL}


def kill_at(point: str) -> None:
    """Kills the process at failpoint `NAME`; with `NAME:N`, at its Nth hit."""
    name, _, times = point.partition(":")
    countdown = itertools.count(int(times or 1), -1)

    def die(reached: str) -> None:
        if reached == name and next(countdown) == 1:
            os.kill(os.getpid(), signal.SIGKILL)

    failpoints.arm(die)


@contextlib.contextmanager
def leading(lead: str = "") -> Iterator[None]:
    """Redirects connections to local port PORT to OTHER; `lead` is `PORT:OTHER`."""
    port, _, other = lead.partition(":")
    connect = socket.create_connection

    def connect_there(address: tuple[str, int], *more: Any, **named: Any) -> socket.socket:
        host, wanted_port = address
        return connect(
            (host, int(other) if f"{wanted_port}" == port else wanted_port), *more, **named
        )

    socket.create_connection = connect_there  # type: ignore[assignment]
    try:
        yield
    finally:
        socket.create_connection = connect


def config_of(store: Path, options: dict[str, str]) -> Config:
    named: dict[str, Any] = {name: options[name] for name in ("actor", "kb") if name in options}
    if "actor" in options:
        named["origins"] = {"agent": SettingOrigin("flag", "--actor")}
    if "agent_named" in options:
        named["agent_named_by"] = "--agent"
    if "runtime" in options:
        named["runtime"] = Path(options["runtime"])
    if "llm" in options:
        named["llm"] = Llm(url=options["llm"], model="toy", api_key="key")
    approved = store.parent / "trusted.json"
    return Config(store=store, cache=store.parent / "cache", approved=approved, **named)


def main() -> int:
    """`python -m tests.kit.fixed STORE MODEL [OPTION=VALUE]...`; the options are Serving's.

    `grace`: seconds after which a call of `kbproc mcp` becomes a task.
    `real=1`: uses real clocks, pids and salts. `drain_seconds`: how long it waits for requests
    in flight at its end; in tests without limit, so that a hang becomes visible.
    `patience`: the same for background work; `list_patience`: for a first list of resources;
    `stopped_seconds`: for a stopped owner; `silent_seconds`: for one that names no socket;
    `roots_seconds`: for the roots of a client of `kbproc mcp`. `look_ms`: between two looks at the
    socket's file, and two whether the parent lives. A node waits `connects_s` for a server,
    `doubt_s` for a stream that differs from the log, `heartbeat_s` and `quiet_s` for a sign of it,
    `purge_s` for the end of another node's purge.
    """
    pipes = claim()
    store, model, *more = sys.argv[1:]
    options: dict[str, Any] = dict(item.lstrip("-").split("=", 1) for item in more)
    if "kill_at" in options:
        kill_at(options["kill_at"])
    if "segment_bytes" in options:
        file.SEGMENT_BYTES = int(options["segment_bytes"])
    if "file_bytes" in options:
        most = int(options["file_bytes"])
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    if "real" not in options:
        live.GATHER_SECONDS = GATHER_SECONDS
        upkeep.IDLE_SECONDS = IDLE_SECONDS
        weights.CARRIERS = NOT_HERE
    # No test relies on the duration of an end, so requests in flight have unlimited time.
    tasks.GRACE_SECONDS = float(options.get("grace", tasks.GRACE_SECONDS))
    connection.DRAIN_SECONDS = attached.END_SECONDS = float(options.get("drain_seconds", 3600))
    resources.PATIENCE_S = float(options.get("list_patience", 3600))
    owner.PATIENCE_SECONDS = float(options.get("patience", 3600))
    reach.STOPPED_SECONDS = float(options.get("stopped_seconds", reach.STOPPED_SECONDS))
    reach.SILENT_SECONDS = float(options.get("silent_seconds", reach.SILENT_SECONDS))
    reach.LOOK_MS = lines.LOOK_MS = int(options.get("look_ms", reach.LOOK_MS))
    mcp.ROOTS_SECONDS = float(options.get("roots_seconds", mcp.ROOTS_SECONDS))
    for name in CLUSTER.keys() & options.keys():
        module, _, constant = f"kbproc.{CLUSTER[name]}".rpartition(".")
        setattr(import_module(module), constant, float(options[name]))
    with leading(options.get("lead", "")):
        if "mcp" in options:
            return offered(Path(store), model, options, pipes)
        return served(Path(store), model, options, pipes)


def served(store: Path, model: str, options: dict[str, Any], pipes: tuple[int, int]) -> int:
    serving = serve.Serving(
        config=config_of(store, options),
        protocol=options.get("protocol"),
        root=options.get("root"),
        scopes=options.get("scopes"),
        max_line_bytes=int(options.get("max_line_bytes", MAX_LINE_BYTES)),
        max_in_flight=int(options.get("max_in_flight", MAX_IN_FLIGHT)),
        allow_private_addresses="allow_private" in options,
        model=model_of(model),
        thin="thin" in options,
        approve=options.get("approve"),
    )
    return serve.run(serving, pipes, host=Host() if "real" in options else FixedHost())


def offered(store: Path, model: str, options: dict[str, Any], pipes: tuple[int, int]) -> int:
    """Runs `kbproc mcp` for the option `mcp=TOOLS`."""
    offering = mcp.Offering(
        config=config_of(store, options),
        tools=options["mcp"] or None,
        root=options.get("root"),
        scopes=options.get("scopes"),
        model=model_of(model),
        thin="thin" in options,
        approve=options.get("approve"),
    )
    return mcp.run(offering, pipes, host=Host() if "real" in options else FixedHost())


if __name__ == "__main__":
    leave(main())
