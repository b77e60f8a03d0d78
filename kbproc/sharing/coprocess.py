"""The coprocess once its first line is out: store, ready, requests, end.

Owns: the order of starting and of ending.
Refuses to know: lines and requests (server.py), and the first line (serve.py).
"""

from __future__ import annotations

import functools
import os
import threading
from pathlib import Path
from typing import Any

import msgspec

from kbproc.base.errors import KbprocError
from kbproc.base.host import Host
from kbproc.calls.call import Peer
from kbproc.settings.config import Config
from kbproc.sharing.opened import Opened, ready
from kbproc.sharing.owner import Owner
from kbproc.wire import messages
from kbproc.wire.connection import Connection, serve_lines
from kbproc.wire.lines import Lines, Signals, Stop
from kbproc.wire.outbox import Outbox

_SIGNAL_SECONDS = 0.05


def peer_of(config: Config, host: Host, scopes: frozenset[str], root: str | None) -> Peer:
    """Who speaks over stdin."""
    cwd = host.cwd()
    return Peer(
        actor=config.actor,
        scopes=scopes,
        cwd=cwd,
        root=Path(os.path.realpath(cwd / Path(root or ".").expanduser())),
        kb=config.kb,
        named=config.agent_named,
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
    lock: int | KbprocError | None,
) -> int:
    """`lock`: the store's, None if it is read-only, or why it could not be had.

    Serves until stdin ends or a signal comes; returns the exit code."""
    owner = Owner(config, host, model=model)
    open_store = functools.partial(owner.open, lock)
    wire = owner.service.wire.limited(max_line_bytes)
    peer = peer_of(config, host, scopes, root)
    # Not in this thread: DuckDB takes a signal that raises for the end of its query.
    opening = threading.Thread(target=open_store, daemon=True)
    opening.start()
    try:
        while opening.is_alive():
            opening.join(_SIGNAL_SECONDS)
            signals.check()
        _tell_ready(owner.opened, outbox, wire, peer)
        connection = Connection(
            owner.service,
            peer,
            outbox,
            wire=wire,
            max_in_flight=max_in_flight,
            settings={
                "allow_private_addresses": allow_private_addresses,
                "profiles": config.profile_names,
            },
        )
        code = serve_lines(connection, lines)
    except Stop as stop:  # before the first request could be read
        code = stop.exit_code
    if not opening.is_alive():
        owner.close()
    outbox.close()
    return code


def _tell_ready(opened: Opened, outbox: Outbox, wire: messages.Wire, peer: Peer) -> None:
    store = opened.store
    if store is None:
        error = opened.error or KbprocError("internal.error", "The store is not open.")
        outbox.send(
            wire.plain_event("error", {"error": msgspec.to_builtins(messages.error_data(error))})
        )
        return
    outbox.send(ready(store, wire, peer))
    store.embedding.start()
    store.start_upkeep()
