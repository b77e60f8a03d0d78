"""Surroundings that never change, so that two runs print the same bytes."""

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
from pathlib import Path
from typing import Any

from kbproc.base import failpoints
from kbproc.base.host import Host
from kbproc.base.pipes import claim, leave
from kbproc.library import upkeep
from kbproc.library.health.doctor import OPTIONAL
from kbproc.log import file
from kbproc.mcp import resources
from kbproc.mcp.serve import Offering
from kbproc.mcp.serve import run as run_mcp
from kbproc.mcp.tasks import task
from kbproc.models import weights
from kbproc.sessions import scribe
from kbproc.settings.config import MAX_IN_FLIGHT, MAX_LINE_BYTES, Config, Llm, Origin
from kbproc.sharing import owner, relay, serve
from kbproc.sharing.serving import Serving
from kbproc.wire import connection

# What is said is gathered until something must be written: so records hold the same each time.
GATHER_SECONDS = 3600.0
# Nor does a slow machine have an index committed, and deleted chunks counted, between two requests.
IDLE_SECONDS = 3600.0
# Whatever is installed: models whose packages are not here.
NOT_HERE = {name: ("no_such_package", *rest) for name, (_, *rest) in weights.PACKED.items()}
NOW_MS = 1_767_225_600_000  # 2026-01-01T00:00:00Z


def model_of(text: str) -> dict[str, Any]:
    """`KIND` or `KIND:NAME` as a store's model settings."""
    kind, _, name = text.partition(":")
    return {"kind": kind, "name": name or kind}


class FixedHost(Host):
    """One moment, until told otherwise; salts count up."""

    def __init__(self) -> None:
        self._salts = itertools.count(1)
        self._now_ms = NOW_MS

    def now_ms(self) -> int:
        return self._now_ms

    def pass_until(self, moment: str) -> None:
        """RFC 3339."""
        self._now_ms = round(datetime.fromisoformat(moment).timestamp() * 1000)

    def monotonic_ms(self) -> float:
        return 0.0

    def salt(self) -> str:
        return f"{next(self._salts):032x}"

    def pid(self) -> int:
        return 4242

    def database_size(self, measured: int) -> int:
        return 1_000_000

    def versions(self, measured: dict[str, str]) -> dict[str, str]:
        return {name: "1.0.0" for name in measured if name not in OPTIONAL}


def kill_at(point: str) -> None:
    """`NAME` or `NAME:N`: the process dies when it comes there (for the Nth time)."""
    name, _, times = point.partition(":")
    left = itertools.count(int(times or 1), -1)

    def die(reached: str) -> None:
        if reached == name and next(left) == 1:
            os.kill(os.getpid(), signal.SIGKILL)

    failpoints.arm(die)


@contextlib.contextmanager
def leading(lead: str = "") -> Iterator[None]:
    """`PORT:OTHER`: who connects to a port of this machine reaches the other one."""
    port, _, other = lead.partition(":")
    connect = socket.create_connection

    def connect_there(address: tuple[str, int], *more: Any, **named: Any) -> socket.socket:
        host, asked = address
        return connect((host, int(other) if f"{asked}" == port else asked), *more, **named)

    socket.create_connection = connect_there  # type: ignore[assignment]
    try:
        yield
    finally:
        socket.create_connection = connect


def config_of(store: Path, options: dict[str, str]) -> Config:
    named: dict[str, Any] = {name: options[name] for name in ("actor", "kb") if name in options}
    if "actor" in options:
        named["origins"] = {"agent": Origin("flag", "--actor")}
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
    `real=1`: with the clocks, pids and salts of every day. `drain_seconds`: how long it waits
    at its end for what is in flight; in a test for ever, so that what hangs there is seen.
    `patience`: the same for work in the background; `list_patience`: for a first list of resources.
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
        scribe.GATHER_SECONDS = GATHER_SECONDS
        upkeep.IDLE_SECONDS = IDLE_SECONDS
        weights.PACKED = NOT_HERE
    # No test relies on how long an end takes: what is in flight has all the time it needs.
    task.GRACE_SECONDS = float(options.get("grace", task.GRACE_SECONDS))
    connection.DRAIN_SECONDS = relay.END_SECONDS = float(options.get("drain_seconds", 3600))
    resources.PATIENCE_S = float(options.get("list_patience", 3600))
    owner.PATIENCE_SECONDS = float(options.get("patience", 3600))
    with leading(options.get("lead", "")):
        if "mcp" in options:
            return offered(Path(store), model, options, pipes)
        return served(Path(store), model, options, pipes)


def served(store: Path, model: str, options: dict[str, Any], pipes: tuple[int, int]) -> int:
    serving = Serving(
        config=config_of(store, options),
        protocol=options.get("protocol"),
        root=options.get("root"),
        scopes=options.get("scopes"),
        max_line_bytes=int(options.get("max_line_bytes", MAX_LINE_BYTES)),
        max_in_flight=int(options.get("max_in_flight", MAX_IN_FLIGHT)),
        allow_private_addresses="allow_private" in options,
        model=model_of(model),
        thin="thin" in options,
    )
    return serve.run(serving, pipes, host=Host() if "real" in options else FixedHost())


def offered(store: Path, model: str, options: dict[str, Any], pipes: tuple[int, int]) -> int:
    """`mcp=TOOLS`."""
    offering = Offering(
        config=config_of(store, options),
        tools=options["mcp"] or None,
        root=options.get("root"),
        scopes=options.get("scopes"),
        model=model_of(model),
        thin="thin" in options,
    )
    return run_mcp(offering, pipes, host=Host() if "real" in options else FixedHost())


if __name__ == "__main__":
    leave(main())
