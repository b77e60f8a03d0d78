"""`kbproc serve`: this process becomes the coprocess.

Owns: the order of starting (init, store, ready, requests) and of ending.
Refuses to know: lines and requests (server.py).
"""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import msgspec

from kbproc import __version__, rpc
from kbproc import registry as reg
from kbproc.config import Config
from kbproc.errors import KbprocError
from kbproc.host import Host
from kbproc.logs import log_to_stderr
from kbproc.methods import registry as all_methods
from kbproc.model import PROTOCOL
from kbproc.server import Connection, Lines, Outbox, Service, Signals, Stop, serve_lines
from kbproc.store import Store

PROTOCOLS = ("1",)


class Opened:
    """The store, once it is open, or why it could not be."""

    def __init__(self) -> None:
        self.store: Store | None = None
        self.error: KbprocError | None = None

    def get(self) -> Store:
        if self.store is None:
            raise self.error or KbprocError("internal.error", "The store is not open.")
        return self.store


def peer_of(
    config: Config, host: Host, registry: reg.Registry, *, root: str | None, scopes: str | None
) -> reg.Peer:
    """Who speaks over stdin; raises input.invalid_params for scopes that don't exist."""
    cwd = host.cwd()
    return reg.Peer(
        actor=config.actor,
        scopes=parse_scopes(scopes, registry),
        cwd=cwd,
        root=Path(os.path.realpath(cwd / Path(root or ".").expanduser())),
        kb=config.kb,
    )


def parse_scopes(text: str | None, registry: reg.Registry) -> frozenset[str]:
    if text is None:
        return frozenset(registry.scopes)
    wanted = {scope.strip() for scope in text.split(",") if scope.strip()}
    if unknown := sorted(wanted - set(registry.scopes)):
        raise KbprocError(
            "input.invalid_params",
            f"There is no scope {unknown[0]!r}.",
            field="--scopes",
            valid_values=registry.scopes,
        )
    return frozenset(wanted)


def check_protocol(protocol: str | None) -> None:
    if protocol is not None and protocol not in PROTOCOLS:
        raise KbprocError(
            "input.invalid_params",
            f"Protocol {protocol!r} is not spoken here.",
            field="--protocol",
            valid_values=PROTOCOLS,
            hint=f"Ask for {PROTOCOLS[-1]}, or use a kbproc version that speaks {protocol}.",
        )


def run(
    config: Config,
    pipes: tuple[int, int],
    *,
    protocol: str | None = None,
    root: str | None = None,
    scopes: str | None = None,
    max_line_bytes: int,
    max_in_flight: int,
    allow_private_addresses: bool = False,
    host: Host | None = None,
    model: dict[str, Any] | None = None,
) -> int:
    """Serves until stdin ends or a signal comes; returns the exit code."""
    host = host or Host()
    log_to_stderr(config.log_level, host)
    reader, writer = pipes
    outbox = Outbox(writer)
    wire = rpc.Wire(max_line_bytes)
    try:
        check_protocol(protocol)
        registry = all_methods()
        peer = peer_of(config, host, registry, root=root, scopes=scopes)
    except KbprocError as error:
        outbox.send(wire.error(None, error))
        outbox.flush(1)
        return error.row.exit
    opened = Opened()
    service = Service(
        registry=registry,
        host=host,
        open_store=opened.get,
        wire=wire,
        max_in_flight=max_in_flight,
        settings={"allow_private_addresses": allow_private_addresses},
    )
    signals = Signals()
    signals.install()
    outbox.send(wire.plain_event("init", _init(config, peer, host)))
    # Not in this thread: DuckDB takes a signal that raises for the end of its query.
    opening = threading.Thread(target=_open, args=(opened, config, host, model), daemon=True)
    opening.start()
    try:
        with signals.let_in():
            opening.join()
        _tell_ready(opened, outbox, wire)
        lines = Lines(reader, max_line_bytes, signals)
        code = serve_lines(Connection(service, peer, outbox), lines)
    except Stop as stop:  # before the first request could be read
        code = stop.exit_code
    service.close()
    if opened.store is not None and not opening.is_alive():
        opened.store.close()
    outbox.close()
    return code


def _init(config: Config, peer: reg.Peer, host: Host) -> dict[str, Any]:
    return {
        "protocol": PROTOCOL,
        "server": {
            "name": "kbproc",
            "version": host.versions({"kbproc": __version__})["kbproc"],
        },
        "store": str(config.store),
        "actor": peer.actor,
        "scopes": sorted(peer.scopes),
        "capabilities": reg.CAPABILITIES,
    }


def _open(opened: Opened, config: Config, host: Host, model: dict[str, Any] | None) -> None:
    try:
        opened.store = Store.open(config.store, host=host, cache=config.cache, model=model)
    except KbprocError as error:
        opened.error = error
    except Exception as error:  # noqa: BLE001  the boundary: see rpc.unexpected
        opened.error = rpc.unexpected(error)


def _tell_ready(opened: Opened, outbox: Outbox, wire: rpc.Wire) -> None:
    store = opened.store
    if store is None:
        error = opened.error or KbprocError("internal.error", "The store is not open.")
        outbox.send(
            wire.plain_event("error", {"error": msgspec.to_builtins(rpc.error_data(error))})
        )
        return
    with store.reading() as snapshot:
        freshness = store.freshness(snapshot)
    outbox.send(wire.plain_event("ready", {"seq": freshness.seq, "freshness": freshness}))
    store.embedding.start()
    store.start_tidying()
