"""Runs `kbproc serve`: its flags, its first line, and then the owner or an attached client.

The first line comes before any heavy import.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from kbproc import PROTOCOL, __version__
from kbproc.base.errors import KbprocError
from kbproc.base.host import Host
from kbproc.base.paths import NOWHERE, absolute
from kbproc.base.settings.config import CAPABILITIES, MAX_IN_FLIGHT, MAX_LINE_BYTES, SCOPES, Config
from kbproc.base.values import as_json
from kbproc.surfaces.wire.lines import InputLines, Signals
from kbproc.surfaces.wire.outbox import Outbox

if TYPE_CHECKING:
    from kbproc.base import sockets
    from kbproc.surfaces.sharing.link import Hello
    from kbproc.surfaces.sharing.reach import Listening

PROTOCOLS = ("1",)
_SIGNAL_SECONDS = 0.05


class Serving(Struct, frozen=True, kw_only=True):
    """The settings and the flags of one `kbproc serve`, as a person gave them.

    `surface`: the name of the surface. `model`: the model of a new store; no flag sets it.
    `thin`: this process never opens the store. `root`: relative paths start there; NOWHERE allows
    no files. `is_self_named`: the actor is the client's own name, which means no agent. `approve`:
    `page` lets a request that needs a person wait for one.
    """

    config: Config
    protocol: str | None = None
    root: str | None = None
    scopes: str | None = None
    max_line_bytes: int = MAX_LINE_BYTES
    max_in_flight: int = MAX_IN_FLIGHT
    allow_private_addresses: bool = False
    model: dict[str, Any] | None = None
    surface: str = "serve"
    thin: bool = False
    is_self_named: bool = False
    approve: str | None = None

    def check(self) -> None:
        """Raises input.invalid_params for a wrong flag."""
        _check_protocol(self.protocol)
        parse_scopes(self.scopes)
        self._root()

    def _root(self) -> Path | None:
        """Returns the path of the flag. Raises input.invalid_params."""
        return None if self.root is None else absolute(self.root, field="--root")

    def hello(self, host: Host) -> Hello:
        """Returns the client's hello to the owner of the store."""
        from kbproc.surfaces.sharing import link  # after the first line, because of sockets

        here, named = host.cwd(), self._root()
        cwd = here if named in {None, NOWHERE} else named
        root = os.path.realpath(named or here)
        return replace(
            link.hello(self.config, cwd),
            surface=self.surface,
            scopes=sorted(parse_scopes(self.scopes)),
            scoped=self.scopes is not None,
            is_self_named=self.is_self_named,
            root=root,
            odd_root=link.odd_bytes(Path(root)),
            max_line_bytes=self.max_line_bytes,
            max_in_flight=self.max_in_flight,
            allow_private_addresses=self.allow_private_addresses,
            awaits_approval=self.approve == "page",
        )


def run(
    serving: Serving,
    pipes: tuple[int, int],
    *,
    host: Host | None = None,
    signals: Signals | None = None,
) -> int:
    """Serves until stdin ends or a signal comes; returns the exit code.

    `signals`: handlers that are installed already.
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
    lines = InputLines(reader, serving.max_line_bytes, signals, answers=writer, parent=parent)
    if serving.thin and not _is_read_only(config):  # which every process opens for itself
        return _serve_attached(serving, None, lines, outbox, host)
    try:
        reached = _reach_or_listen(config, host)
    except _LeaseHeld:
        return _serve_attached(serving, None, lines, outbox, host)
    from kbproc.base import sockets  # not before the first line is written

    if isinstance(reached, KbprocError):  # each line tries again
        return _serve_attached(serving, None, lines, outbox, host)
    if isinstance(reached, sockets.Socket):
        return _serve_attached(serving, reached, lines, outbox, host)
    return _serve_as_owner(serving, reached, lines, outbox, host)


def _is_read_only(config: Config) -> bool:
    from kbproc.engine.store.folder import is_read_only

    return is_read_only(config.store)


class _LeaseHeld(Exception):
    """A process holds the lease and does not listen: it begins, ends, or repairs the store."""


def _reach_or_listen(config: Config, host: Host) -> sockets.Socket | Listening | KbprocError | None:
    """Returns the owner, a socket to listen at, or the error. Raises _LeaseHeld, never waits."""
    from kbproc.surfaces.sharing.reach import reach_or_listen  # after the first line

    def raise_held() -> None:
        raise _LeaseHeld

    try:
        return reach_or_listen(config, host.pid(), raise_held)
    except KbprocError as error:
        return error


def _serve_as_owner(
    serving: Serving,
    listening: Listening | None,
    lines: InputLines,
    outbox: Outbox,
    host: Host,
) -> int:
    """Serves stdin in the process that has the store open.

    `listening`: the lease and the socket; None if the store is read-only.
    """
    from kbproc.base.threads import apart
    from kbproc.surfaces.sharing.owner import Owner
    from kbproc.surfaces.wire.connection import serve_lines
    from kbproc.surfaces.wire.logs import log_to_stderr

    log_to_stderr(serving.config.log_level, host)
    owner = Owner(serving.config, host, listening, model=serving.model)
    names = serving.config.profile_names
    connection = owner.connection(serving.hello(host), outbox, profiles=names)

    def open_store() -> None:
        owner.open()
        owner.begin(connection)

    # The store opens in another thread, because this one reads lines, and because a signal that
    # raises would end DuckDB's query.
    opening = apart(open_store, "opening")

    def wait_for_store() -> None:
        while opening.is_alive():
            opening.join(_SIGNAL_SECONDS)
            lines.signals.check()

    code = serve_lines(connection, lines, wait_for_store)
    if not opening.is_alive():
        owner.leave()
    outbox.close()
    return code


def _serve_attached(
    serving: Serving, owner: sockets.Socket | None, lines: InputLines, outbox: Outbox, host: Host
) -> int:
    from kbproc.surfaces.sharing.attached import Attached
    from kbproc.surfaces.sharing.takeover import OwnerStarter, Takeover

    if serving.thin:
        takeover: Takeover = OwnerStarter(serving.config, host, serving.model)
    else:
        takeover = Takeover(serving.config, host)
    code = Attached(outbox, serving.hello(host), takeover).run(owner, lines)
    takeover.close()
    outbox.close()
    return code


def first_line(serving: Serving, scopes: Iterable[str], host: Host) -> bytes:
    """Returns the event `init`, unchecked, because checking its schema takes heavy imports."""
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
    from kbproc.surfaces.wire.messages import Wire

    outbox.send(Wire(max_line_bytes).error(None, error))
    outbox.flush(1)
    return error.row.exit


def with_more(text: str | None, usual: Iterable[str]) -> str | None:
    """Returns the scopes in `text`, or `usual` and the scopes with a +: +admin adds admin.

    Raises input.invalid_params where only some have a +.
    """
    names = [part.strip() for part in (text or "").split(",") if part.strip()]
    more = [name.removeprefix("+") for name in names if name.startswith("+")]
    if not more:
        return text
    if len(more) < len(names):
        raise KbprocError(
            "input.invalid_params",
            "--scopes names scopes, or adds some to the usual ones, not both.",
            field="--scopes",
            hint=f"Write a + before each: {','.join('+' + name.lstrip('+') for name in names)}.",
        )
    return ",".join(sorted({*usual, *more}))


def parse_scopes(text: str | None, valid: Iterable[str] = SCOPES) -> frozenset[str]:
    """Returns the scopes, all if `text` is None. Raises input.invalid_params for unknown ones."""
    valid = tuple(valid)
    text = with_more(text, valid)
    if text is None:
        return frozenset(valid)
    scopes = {scope.strip() for scope in text.split(",") if scope.strip()}
    if unknown := sorted(scopes.difference(valid)):
        raise KbprocError(
            "input.invalid_params",
            f"There is no scope {unknown[0]!r}.",
            field="--scopes",
            valid_values=valid,
        )
    return frozenset(scopes)


def _check_protocol(protocol: str | None) -> None:
    if protocol is not None and protocol not in {*PROTOCOLS, PROTOCOL}:
        raise KbprocError(
            "input.invalid_params",
            f"Protocol {protocol!r} is not spoken here.",
            field="--protocol",
            valid_values=PROTOCOLS,
            hint=f"Ask for {PROTOCOLS[-1]}, or use a kbproc version that speaks {protocol}.",
        )
