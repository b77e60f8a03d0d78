"""The process that has the store open, for itself and for those that attach.

Owns: opening the store under the lock, listening, each attached process's
connection, and handing over at the end.
Refuses to know: requests (server.py), and how others find it (share.py).
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import threading
from pathlib import Path
from typing import Any

import msgspec

from kbproc import __version__, rpc, share
from kbproc.call import Peer
from kbproc.config import MAX_LINE_BYTES, Config
from kbproc.errors import KbprocError
from kbproc.host import Host
from kbproc.lines import Lines, Signals
from kbproc.methods import registry as all_methods
from kbproc.outbox import Outbox
from kbproc.registry import Registry
from kbproc.server import Connection, Service, serve_lines
from kbproc.share import SHARE, Hello, Welcome
from kbproc.sight import narrowed, require_agent, sight_of
from kbproc.store import Store
from kbproc.storefiles import sign_lock

_HELLO_SECONDS = 10.0
_HAND_OVER_SECONDS = 1.0
_BACKLOG = 512
_logger = logging.getLogger(__name__)


class Opened:
    """The store, once it is open, or why it could not be."""

    def __init__(self) -> None:
        self.store: Store | None = None
        self.error: KbprocError | None = None
        self.settled = threading.Event()

    def get(self) -> Store:
        if self.store is None:
            raise self.error or KbprocError("internal.error", "The store is not open.")
        return self.store


class Owner:
    """The store of this process, and whoever attaches to it."""

    def __init__(
        self,
        config: Config,
        host: Host,
        *,
        model: dict[str, Any] | None = None,
        registry: Registry | None = None,
    ) -> None:
        self.config = config
        self.host = host
        self.registry = registry or all_methods()
        self.opened = Opened()
        self.service = Service(
            registry=self.registry,
            host=host,
            open_store=self.opened.get,
            wire=rpc.Wire(MAX_LINE_BYTES),
        )
        self._model = model
        self._listener: Listener | None = None

    def open(self, lock: int | KbprocError | None = None) -> None:
        """Opens the store and listens; `opened` says how it went.

        `lock`: the store's, or why it could not be had; None takes it and does not listen.
        """
        try:
            if isinstance(lock, KbprocError):
                raise lock
            if lock is not None:
                self._listener = Listener(self, lock)
            self.opened.store = Store.open(
                self.config.store, host=self.host, cache=self.config.cache, model=self._model,
                lock=lock,
            )  # fmt: skip
        except KbprocError as error:
            self.opened.error = error
        except Exception as error:  # noqa: BLE001  the boundary: see rpc.unexpected
            self.opened.error = rpc.unexpected(error)
        self.opened.settled.set()

    @property
    def path(self) -> Path:
        """Where it listens."""
        if self._listener is None:
            raise self.opened.error or KbprocError(
                "internal.error", "This process does not listen."
            )
        return self._listener.path

    def close(self) -> None:
        """Others take over from here."""
        if self._listener is not None:
            self._listener.close()
        self.service.close()
        if self.opened.store is not None:
            self.opened.store.close()


class Listener:
    """The store's socket. Bound at once, so that whoever comes waits for the store to open."""

    def __init__(self, owner: Owner, lock: int) -> None:
        self._owner = owner
        self._closing = False
        self._guests: set[Guest] = set()
        self._changing = threading.Lock()
        self._socket, self.path = _bound(owner.config)
        sign_lock(lock, owner.host.pid(), self.path)
        threading.Thread(target=self._run, name="listener", daemon=True).start()

    def _run(self) -> None:
        while not self._closing:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            guest = Guest(self._owner, connection, self._left)
            with self._changing:
                if self._closing:
                    connection.close()
                    return
                self._guests.add(guest)
            threading.Thread(target=guest.run, name="guest", daemon=True).start()

    def _left(self, guest: Guest) -> None:
        with self._changing:
            self._guests.discard(guest)

    def close(self) -> None:
        """Nobody new comes in; who is here is told to go to the next owner."""
        with self._changing:
            self._closing = True
            guests = list(self._guests)
        self.path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        leaving = [threading.Thread(target=guest.hand_over) for guest in guests]
        for thread in leaving:
            thread.start()
        for thread in leaving:
            thread.join()


def _bound(config: Config) -> tuple[socket.socket, Path]:
    """Raises store.io where no socket can be had."""
    wrong: OSError | None = None
    try:
        for path in share.socket_paths(config.store, config.runtime):
            try:
                return _listening(path), path
            except OSError as error:
                wrong = error
    except OSError as error:
        wrong = error
    why = "" if wrong is None else wrong.strerror
    raise KbprocError("store.io", f"The store's socket could not be made: {why}.")


def _listening(path: Path) -> socket.socket:
    """Raises OSError."""
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        path.unlink(missing_ok=True)
        listening.bind(str(path))
        path.chmod(0o600)
        listening.listen(_BACKLOG)
    except OSError:
        listening.close()
        raise
    return listening


class Guest:
    """One attached process."""

    def __init__(self, owner: Owner, connection: socket.socket, left: Any) -> None:
        self._owner = owner
        self._socket = connection
        self._left = left
        self._connection: Connection | None = None
        self._going = threading.Lock()
        self._handed_over = False

    def run(self) -> None:
        try:
            if share.peer_uid(self._socket) == os.getuid():
                self._serve()
        except OSError:
            pass  # it has gone: there is nobody to tell
        except Exception:
            _logger.exception("a connection failed")
        finally:
            self._left(self)
            with self._going:
                self._socket.close()

    def _serve(self) -> None:
        self._socket.settimeout(_HELLO_SECONDS)
        line, rest = share.first_line(self._socket)
        if not line:
            return
        self._socket.settimeout(None)
        self._owner.opened.settled.wait()
        try:
            hello = self._checked(line)
            store = self._owner.opened.get()
        except KbprocError as error:
            data = msgspec.to_builtins(rpc.error_data(error))
            self._say(Welcome(share=SHARE, ok=False, error=data))
            return
        methods = self._owner.registry.methods.values()
        self._say(Welcome(
            share=SHARE, ok=True, pid=self._owner.host.pid(),
            writes=[m.name for m in methods if m.kind != "read"],
            reads=[m.name for m in methods if m.kind == "read" and not m.streams],
        ))  # fmt: skip
        outbox = Outbox(self._socket.fileno())
        connection = self._connected(hello, outbox)
        with self._going:
            if self._handed_over:
                return
            self._connection = connection
        outbox.send(ready(store, connection.wire, connection.peer))
        store.embedding.start()
        store.start_upkeep()
        lines = Lines(self._socket.fileno(), hello.max_line_bytes, Signals(), rest)
        serve_lines(connection, lines)
        outbox.close()

    def _say(self, welcome: Welcome) -> None:
        self._socket.sendall(msgspec.json.encode(welcome) + b"\n")

    def _checked(self, line: bytes) -> Hello:
        """Raises store.incompatible, input.invalid_params."""
        try:
            number = msgspec.json.decode(line, type=dict[str, Any]).get("share")
            if number == SHARE:
                return msgspec.json.decode(line, type=Hello)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise KbprocError("input.invalid_json", f"That was no hello: {error}.") from None
        raise KbprocError(
            "store.incompatible",
            f"The store is open in process {self._owner.host.pid()}, kbproc {__version__}, which "
            f"shares it by protocol {SHARE}, not {number!r}.",
            hint="Use the same version of kbproc everywhere, or end that process first.",
        )

    def _connected(self, hello: Hello, outbox: Outbox) -> Connection:
        known = frozenset(self._owner.registry.scopes)
        peer = Peer(
            actor=hello.actor, scopes=frozenset(hello.scopes) & known, cwd=Path(hello.cwd),
            root=None if hello.root is None else Path(hello.root), kb=hello.kb,
            surface=hello.surface, named=hello.named,
        )  # fmt: skip
        service = self._owner.service
        return Connection(
            service, peer, outbox, wire=service.wire.limited(hello.max_line_bytes),
            max_in_flight=hello.max_in_flight,
            settings={"allow_private_addresses": hello.allow_private_addresses},
        )  # fmt: skip

    def hand_over(self) -> None:
        """What is nearly done is answered; the rest goes to the next owner, unanswered."""
        with self._going:
            self._handed_over = True
            connection = self._connection
        if connection is not None:
            connection.hand_over(_HAND_OVER_SECONDS)
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)


def ready(store: Store, wire: rpc.Wire, peer: Peer) -> bytes:
    """The event that says so, and to an agent what it may do; an error if there is no such."""
    try:
        agent = require_agent(store.published.roster, peer.actor, peer.named)
    except KbprocError as error:
        return wire.plain_event("error", {"error": msgspec.to_builtins(rpc.error_data(error))})
    scopes, bound = peer.scopes, dict[str, Any]()
    if agent is not None:
        scopes = scopes if agent.scopes is None else scopes & set(agent.scopes)
        bound = {"agent": agent.slug, "scopes": sorted(scopes)}
    seen = narrowed(store, sight_of(agent, scopes))
    with seen.reading() as snapshot:
        freshness = seen.freshness(snapshot)
    params = {"seq": freshness.seq, "freshness": freshness, **bound}
    return wire.plain_event("ready", params)
