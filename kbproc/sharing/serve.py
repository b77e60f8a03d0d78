"""`kbproc serve` up to its first line, which comes before anything heavy is imported.

Owns: what the first line says, and which way `serve` goes on: as the owner of the store
(coprocess.py) or attached to the owner (relay.py).
Refuses to know: how requests are answered or passed on.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

from kbproc import PROTOCOL, __version__
from kbproc.base.errors import KbprocError
from kbproc.base.host import Host
from kbproc.base.values import as_json
from kbproc.settings.config import CAPABILITIES, Config
from kbproc.sharing.serving import Serving, parse_scopes
from kbproc.wire.lines import Lines, Signals
from kbproc.wire.outbox import Outbox

if TYPE_CHECKING:
    import socket

    from kbproc.sharing.listening import Listening


def run(
    serving: Serving,
    pipes: tuple[int, int],
    *,
    host: Host | None = None,
    signals: Signals | None = None,
) -> int:
    """Serves until stdin ends or a signal comes; returns the exit code.

    `signals`: those that are looked out for already.
    """
    host = host or Host()
    config = serving.config
    reader, writer = pipes
    parent = os.getppid()
    outbox = Outbox(writer)
    try:
        serving.check()
    except KbprocError as error:
        return _refuse(error, outbox, serving.max_line_bytes)
    if signals is None:
        signals = Signals()
        signals.install()
    outbox.send(first_line(serving, parse_scopes(serving.scopes), host))
    lines = Lines(reader, serving.max_line_bytes, signals, answers=writer, parent=parent)
    if serving.thin and not _is_read_only(config):  # which every process opens for itself
        return _serve_attached(serving, None, lines, outbox, host)
    try:
        found = _reach_or_listen(config, host)
    except _Held:
        return _serve_attached(serving, None, lines, outbox, host)
    import socket  # not before the first line is written

    if isinstance(found, socket.socket):
        return _serve_attached(serving, found, lines, outbox, host)
    from kbproc.sharing import coprocess
    from kbproc.wire.logs import log_to_stderr

    log_to_stderr(config.log_level, host)
    return coprocess.run(serving, lines, outbox, listening=found, host=host)


def _is_read_only(config: Config) -> bool:
    from kbproc.store.folder import is_read_only

    return is_read_only(config.store)


class _Held(Exception):
    """A process holds the lease and does not listen: it begins, ends, or mends the store."""


def _reach_or_listen(config: Config, host: Host) -> socket.socket | Listening | KbprocError | None:
    """What `reach_or_listen` finds, or why it finds nothing. Raises _Held instead of waiting."""

    from kbproc.sharing.listening import reach_or_listen  # by now the first line is written

    def held() -> None:
        raise _Held

    try:
        return reach_or_listen(config, host.pid(), held)
    except KbprocError as error:
        return error


def _serve_attached(
    serving: Serving, owner: socket.socket | None, lines: Lines, outbox: Outbox, host: Host
) -> int:
    from kbproc.sharing.relay import Relay
    from kbproc.sharing.takeover import Takeover

    if serving.thin:
        from kbproc.sharing.apart import Apart

        takeover: Takeover = Apart(serving.config, host, serving.model)
    else:
        takeover = Takeover(serving.config, host)
    relay = Relay(outbox, serving.hello(host), takeover)
    code = relay.run(owner, lines)
    takeover.close()
    outbox.close()
    return code


def first_line(serving: Serving, scopes: Iterable[str], host: Host) -> bytes:
    """The event `init`. It is not checked against its schema, as what checks is heavy."""
    params = {
        "type": "init",
        "protocol": PROTOCOL,
        "server": {
            "name": "kbproc",
            "version": host.versions({"kbproc": __version__})["kbproc"],
        },
        "store": str(serving.config.store),
        "actor": serving.config.actor,
        "scopes": sorted(scopes),
        "capabilities": {
            **CAPABILITIES,
            "max_line_bytes": serving.max_line_bytes,
            "max_in_flight": serving.max_in_flight,
        },
    }
    return as_json({"jsonrpc": "2.0", "method": "event", "params": params})


def _refuse(error: KbprocError, outbox: Outbox, max_line_bytes: int) -> int:
    from kbproc.wire.messages import Wire

    outbox.send(Wire(max_line_bytes).error(None, error))
    outbox.flush(1)
    return error.row.exit
