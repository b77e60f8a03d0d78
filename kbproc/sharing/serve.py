"""`kbproc serve` up to its first line, which comes before anything heavy is imported.

Owns: what the first line says, and refusing what can't be served.
Refuses to know: everything after it (coprocess.py).
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from kbproc import PROTOCOL, __version__
from kbproc.base.errors import KbprocError
from kbproc.base.host import Host
from kbproc.settings.config import CAPABILITIES, SCOPES, Config
from kbproc.sharing import reach as share
from kbproc.sharing.reach import Hello
from kbproc.store.readonly import refusal
from kbproc.wire.lines import Lines, Signals
from kbproc.wire.outbox import Outbox

if TYPE_CHECKING:
    from kbproc.sharing.owner import Owner

PROTOCOLS = ("1",)


def parse_scopes(text: str | None, valid: Iterable[str] = SCOPES) -> frozenset[str]:
    """All if `text` is None; raises input.invalid_params for scopes that don't exist."""
    known = tuple(valid)
    if text is None:
        return frozenset(known)
    wanted = {scope.strip() for scope in text.split(",") if scope.strip()}
    if unknown := sorted(wanted.difference(known)):
        raise KbprocError(
            "input.invalid_params",
            f"There is no scope {unknown[0]!r}.",
            field="--scopes",
            valid_values=known,
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
    reader, writer = pipes
    outbox = Outbox(writer)
    try:
        check_protocol(protocol)
        allowed = parse_scopes(scopes)
    except KbprocError as error:
        return _refuse(error, outbox, max_line_bytes)
    signals = Signals()
    signals.install()
    outbox.send(first_line(config, allowed, host))
    lines = Lines(reader, max_line_bytes, signals)
    found = _found(config, host)
    if isinstance(found, socket.socket):
        hello = share.hello(
            config,
            host.cwd(),
            surface="serve",
            scopes=allowed,
            root=_root(host, root),
            max_line_bytes=max_line_bytes,
            max_in_flight=max_in_flight,
            allow_private_addresses=allow_private_addresses,
        )
        try:
            return _attached(config, host, hello, found, lines, outbox)
        except KbprocError as error:
            found = error
    from kbproc.sharing import coprocess
    from kbproc.wire.logs import log_to_stderr

    log_to_stderr(config.log_level, host)
    return coprocess.run(
        config,
        lines,
        outbox,
        signals=signals,
        root=root,
        scopes=allowed,
        max_line_bytes=max_line_bytes,
        max_in_flight=max_in_flight,
        allow_private_addresses=allow_private_addresses,
        host=host,
        model=model,
        lock=found,
    )


def _found(config: Config, host: Host) -> socket.socket | int | KbprocError | None:
    """What `share.reach` has found, or why nothing can be had."""
    try:
        return share.reach(config.store, host.pid())
    except KbprocError as error:
        return error


def _root(host: Host, root: str | None) -> str:
    return os.path.realpath(host.cwd() / Path(root or ".").expanduser())


def _attached(
    config: Config,
    host: Host,
    hello: Hello,
    found: socket.socket,
    lines: Lines,
    outbox: Outbox,
) -> int:
    """Raises Gone, and what the owner refused with, before anything was read."""
    from kbproc.sharing.relay import Relay

    def own(lock: int) -> Owner:
        from kbproc.sharing.owner import Owner
        from kbproc.wire.logs import log_to_stderr

        log_to_stderr(config.log_level, host)
        owner = Owner(config, host)
        owner.open(lock)
        return owner

    def reach() -> socket.socket | int:
        found = share.reach(config.store, host.pid())
        if found is None:  # it could be written when this process attached
            raise refusal(config.store)
        return found

    relay = Relay(outbox, hello, reach=reach, own=own)
    code = relay.run(found, lines)
    outbox.close()
    return code


def first_line(config: Config, scopes: Iterable[str], host: Host) -> bytes:
    """Not checked against its schema, as what checks is heavy; a test does it."""
    params = {
        "type": "init",
        "protocol": PROTOCOL,
        "server": {
            "name": "kbproc",
            "version": host.versions({"kbproc": __version__})["kbproc"],
        },
        "store": str(config.store),
        "actor": config.actor,
        "scopes": sorted(scopes),
        "capabilities": CAPABILITIES,
    }
    return msgspec.json.encode({"jsonrpc": "2.0", "method": "event", "params": params})


def _refuse(error: KbprocError, outbox: Outbox, max_line_bytes: int) -> int:
    from kbproc.wire.messages import Wire

    outbox.send(Wire(max_line_bytes).error(None, error))
    outbox.flush(1)
    return error.row.exit
