"""The coprocess once its first line is out: store, ready, requests, end.

Owns: the order of starting and of ending.
Refuses to know: lines and requests (server.py), and the first line (serve.py).
"""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import msgspec

from kbproc import rpc
from kbproc.call import Peer
from kbproc.config import Config
from kbproc.errors import KbprocError
from kbproc.host import Host
from kbproc.lines import Lines, Signals, Stop
from kbproc.methods import registry as all_methods
from kbproc.outbox import Outbox
from kbproc.server import Connection, Service, serve_lines
from kbproc.store import Store

_SIGNAL_SECONDS = 0.05


class Opened:
    """The store, once it is open, or why it could not be."""

    def __init__(self) -> None:
        self.store: Store | None = None
        self.error: KbprocError | None = None

    def get(self) -> Store:
        if self.store is None:
            raise self.error or KbprocError("internal.error", "The store is not open.")
        return self.store


def peer_of(config: Config, host: Host, scopes: frozenset[str], root: str | None) -> Peer:
    """Who speaks over stdin."""
    cwd = host.cwd()
    return Peer(
        actor=config.actor,
        scopes=scopes,
        cwd=cwd,
        root=Path(os.path.realpath(cwd / Path(root or ".").expanduser())),
        kb=config.kb,
    )


def run(
    config: Config,
    lines: Lines,
    outbox: Outbox,
    *,
    signals: Signals,
    root: str | None,
    scopes: frozenset[str],
    max_line_bytes: int,
    max_in_flight: int,
    allow_private_addresses: bool,
    host: Host,
    model: dict[str, Any] | None,
) -> int:
    """Serves until stdin ends or a signal comes; returns the exit code."""
    wire = rpc.Wire(max_line_bytes)
    opened = Opened()
    service = Service(
        registry=all_methods(),
        host=host,
        open_store=opened.get,
        wire=wire,
        max_in_flight=max_in_flight,
        settings={"allow_private_addresses": allow_private_addresses},
    )
    peer = peer_of(config, host, scopes, root)
    # Not in this thread: DuckDB takes a signal that raises for the end of its query.
    opening = threading.Thread(target=_open, args=(opened, config, host, model), daemon=True)
    opening.start()
    try:
        while opening.is_alive():
            opening.join(_SIGNAL_SECONDS)
            signals.check()
        _tell_ready(opened, outbox, wire)
        code = serve_lines(Connection(service, peer, outbox), lines)
    except Stop as stop:  # before the first request could be read
        code = stop.exit_code
    service.close()
    if opened.store is not None and not opening.is_alive():
        opened.store.close()
    outbox.close()
    return code


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
