"""Runs the owner of a store: the process that has it open, for itself and for attached clients.

It opens the store under the lease, listens, answers the lines of each attached client, and hands
its clients over to the next owner at its end.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import select
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from kbproc import __version__
from kbproc.base import sockets
from kbproc.base.errors import KbprocError
from kbproc.base.garbage import look_for_garbage
from kbproc.base.settings.config import MAX_LINE_BYTES, Config
from kbproc.base.settings.trust import Trust
from kbproc.base.threads import apart, start_thread
from kbproc.base.workers import Worker
from kbproc.engine.store.visible import narrowed
from kbproc.knowledge.agents.access import require_agent, scopes_of, visible_to
from kbproc.knowledge.app.library import Library
from kbproc.methods.all import registry as all_methods
from kbproc.methods.calls.call import Peer, known_peer
from kbproc.surfaces.sharing import link
from kbproc.surfaces.sharing.link import (
    SHARE,
    Gone,
    Hello,
    Welcome,
    folder_number,
    peer_of,
)
from kbproc.surfaces.sharing.reach import Listening
from kbproc.surfaces.wire import messages
from kbproc.surfaces.wire.connection import Connection, Service, serve_lines
from kbproc.surfaces.wire.lines import InputLines, Signals
from kbproc.surfaces.wire.outbox import Outbox

if TYPE_CHECKING:
    from kbproc.base.host import Host
    from kbproc.engine.store.state import SeenStore
    from kbproc.methods.calls.registry import Registry

_logger = logging.getLogger(__name__)
# Time for background work when a server ends, short because another may wait for the store.
PATIENCE_SECONDS = 0.1
_SHORTAGE_SECONDS = 0.1  # until the next try after the system has refused
# Descriptors for the store's own work: a query in SQL takes eight, and a commit of the full-text
# index beside it eight more.
_LEAST_SPARED = 20
_HELLO_SECONDS = 10.0
# Errors of an opening that the next request tries again; the lease is free after a failure.
_PASSING = {"store.io", "store.locked"}
_HAND_OVER_SECONDS = 0.1
_TURN_AWAY_SECONDS = 0.1


class Owner:
    """The store of this process, and the clients attached to it.

    `library` is the store once it is open, `error` why it is not; `is_settled` is set with either.
    An opening that failed because of the disk is tried again by the next request that needs the
    store.
    """

    def __init__(
        self,
        config: Config,
        host: Host,
        listening: Listening | KbprocError | None = None,
        *,
        model: dict[str, Any] | None = None,
        registry: Registry | None = None,
        for_one: bool = False,
    ) -> None:
        """`listening`: the lease and the socket, or why they are missing. None takes the lease of
        the store, or none if that is read-only, and admits no others. `for_one`: the process
        answers one command, opens the store when the command first needs it, and ends.
        """
        self.config = config
        self.host = host
        self.registry = registry or all_methods().loaded()
        self.library: Library | None = None
        self.error: KbprocError | None = None
        self.is_settled = threading.Event()
        self.service = Service(
            registry=self.registry,
            host=host,
            open_library=self.open_library,
            wire=messages.Wire(MAX_LINE_BYTES, reads_files=for_one),
        )
        self._listening = listening
        self._model = model
        self._for_one = for_one
        self._listener: Listener | None = None
        self._opening = threading.Lock()
        self._tries = 0  # openings so far
        self._unready: list[Connection] = []  # connections that got `error` in place of `ready`
        self._is_closed = False

    def open(self) -> None:
        """Opens the store and admits others; notes the error if that fails."""
        self._try_to_open()
        self.is_settled.set()

    def _try_to_open(self) -> None:
        listening = self._listening
        self._tries += 1
        try:
            if isinstance(listening, KbprocError):
                raise listening
            if listening is not None and self._listener is None:
                self._listener = Listener(self, listening)
            elif listening is not None:
                listening.take_again(self.host.pid())
            self.library = Library.open(
                self.config.store,
                host=self.host,
                cache=self.config.cache,
                model=self._model,
                lease=None if listening is None else listening.lease,
                trust=Trust(self.config.approved),
                llm=self.config.llm,
                rerank=self.config.rerank,
                runtime=self.config.runtime,
                for_one=self._for_one,
            )
            self.error = None
        except KbprocError as error:
            self.error = error
        except Exception as error:  # noqa: BLE001  the boundary: see messages.unexpected
            self.error = messages.unexpected(error)
        look_for_garbage()

    def open_library(self) -> Library:
        """Returns the open store. Raises the error why there is none."""
        if self._for_one:
            with self._opening:
                if not self.is_settled.is_set():
                    self.open()
        elif self.library is None and self.is_settled.is_set():
            self._open_again()
        return self._present_library()

    def _present_library(self) -> Library:
        if self.library is None:
            raise self.error or KbprocError("internal.error", "The store is not open.")
        return self.library

    def _open_again(self) -> None:
        """Opens the store if the disk has refused that; tells the clients once it is open.

        Requests that wait for the lock share one try.
        """
        tries = self._tries
        with self._opening:
            error = self.error
            is_passing = error is not None and error.type in _PASSING and error.retryable
            if tries != self._tries or self._is_closed or not is_passing:
                return
            self._try_to_open()
            if self.library is None:
                return
            unready, self._unready = self._unready, []
        for connection in unready:
            ready = _ready(self.library.store, connection.wire, connection.peer)
            connection.outbox.send(ready)
        _start(self.library)

    def connection(
        self, hello: Hello, outbox: Outbox, *, profiles: tuple[str, ...] = ()
    ) -> Connection:
        """Returns a client's connection, whose requests wait for `begin`.

        `profiles`: for `describe`.
        """
        connection = Connection(
            self.service,
            peer_of(hello, frozenset(self.registry.scopes), profiles),
            outbox,
            wire=self.service.wire.of_client(hello.max_line_bytes, hello.surface),
            max_in_flight=hello.max_in_flight,
        )
        connection.opening.hold()
        return connection

    def begin(self, connection: Connection) -> None:
        """Sends `ready`, or the error why there is no store; then the requests begin."""
        wire = connection.wire
        try:
            library = self._library_for(connection)
            ready = _ready(library.store, wire, connection.peer)
        except KbprocError as error:  # a closed store refuses the read
            connection.outbox.send(_error(wire, error))
        else:
            connection.outbox.send(ready)
            _start(library)
        connection.opening.end()

    def _library_for(self, connection: Connection) -> Library:
        """Returns the store; raises why there is none, of which the connection hears once it is."""
        if self._for_one:
            return self.open_library()
        with self._opening:
            if self.library is None:
                living = (one for one in self._unready if not one.has_gone())
                self._unready = [*living, connection]
            return self._present_library()

    def is_attended(self) -> bool:
        """Returns true while a living client is attached, not for a dead one with open requests."""
        return self._listener is not None and self._listener.is_attended()

    def close(self) -> None:
        """Closes the store, so that another process may own it."""
        self._close(None)

    def leave(self) -> None:
        """Closes the store for a process that ends at once, because its end frees the rest."""
        self._close(PATIENCE_SECONDS)

    def _close(self, patience_s: float | None) -> None:
        with self._opening:
            self._is_closed = True
        library = self.library
        if library is not None:
            library.embedding.stop()
        if self._listener is not None:
            self._listener.close()
        elif isinstance(self._listening, Listening):  # because the store was never needed
            self._listening.close()
        self.service.close(1.0 if patience_s is None else patience_s)
        if library is not None and not library.close(patience_s):
            _logger.info("left the store while work went on: the next owner goes on with it")


def _start(library: Library) -> None:
    """Starts background work; if no thread can be started, the next client tries again."""
    try:
        library.start()
    except RuntimeError as error:
        if not messages.is_no_thread(error):
            raise
        _logger.warning("no work in the background was begun: %s", error)


def _ready(store: SeenStore, wire: messages.Wire, peer: Peer) -> bytes:
    """Returns the event `ready`, with an agent's scopes; an error for an unknown agent."""
    roster = store.published.roster
    try:
        peer = known_peer(peer, roster)
        agent = require_agent(roster, peer.actor, peer.named_by)
    except KbprocError as error:
        return _error(wire, error)
    scopes = scopes_of(agent, peer.scopes, named=peer.scoped)
    bound: dict[str, Any] = {}
    if agent is not None:
        bound = {"agent": agent.slug, "scopes": sorted(scopes)}
    visible = narrowed(store, visible_to(agent, scopes))
    with visible.reading() as snapshot:
        freshness = visible.freshness(snapshot)
    return wire.plain_event("ready", {"seq": freshness.seq, "freshness": freshness, **bound})


def _error(wire: messages.Wire, error: KbprocError) -> bytes:
    return wire.plain_event("error", {"error": msgspec.to_builtins(messages.error_data(error))})


class Listener:
    """A thread that admits clients; their requests wait until the store is open."""

    def __init__(self, owner: Owner, listening: Listening) -> None:
        self._owner = owner
        self._listening = listening
        self._folder = folder_number(owner.config.store)
        self._is_short = False
        self._clients: set[AttachedClient] = set()
        self._changing = threading.Lock()
        self._worker = Worker("listener", self._step)
        self._worker.start()

    def _step(self, is_woken: bool) -> float:
        """Admits a client, if one comes; a shortage of descriptors or threads passes."""
        try:
            connection = self._listening.accept()
            if connection is not None:
                self._admit(connection)
                self._is_short = False
        except (OSError, RuntimeError) as error:
            if not self._worker.is_stopped and not self._is_short:
                _logger.warning("a process could not be let in: %s", error)
                self._is_short = True  # so that all tries log one line
            return _SHORTAGE_SECONDS
        return 0.0

    def _admit(self, connection: sockets.Socket) -> None:
        """Serves the connection. Raises RuntimeError if no thread can be started for it."""
        client = AttachedClient(connection, self._owner, self._remove, folder=self._folder)
        # A new descriptor has the lowest free number, so that the number counts those in use.
        if connection.fileno() >= most_descriptors():
            client.turn_away()
            return
        with self._changing:
            if self._worker.is_stopped:
                connection.close()
                return
            self._clients.add(client)
        try:
            start_thread(client.run, "client")
        except RuntimeError:
            self._remove(client)
            connection.close()
            raise

    def _remove(self, client: AttachedClient) -> None:
        with self._changing:
            self._clients.discard(client)

    def is_attended(self) -> bool:
        with self._changing:
            return any(not client.has_gone() for client in self._clients)

    def close(self) -> None:
        """Admits no more clients, and hands each one over to the next owner."""
        with self._changing:
            self._worker.stop()
            clients = list(self._clients)
        self._listening.stop()
        for thread in [apart(client.hand_over, "leaving") for client in clients]:
            if thread.ident is not None:
                thread.join()


def most_descriptors() -> float:
    """Returns how many may be in use to admit a process; the rest is for the store itself."""
    import resource

    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return math.inf
    return limit - max(_LEAST_SPARED, limit // 4)


class AttachedClient:
    """The owner's end of one link, from the client's hello to its hand-over."""

    def __init__(
        self,
        connection: sockets.Socket,
        owner: Owner,
        on_end: Callable[[AttachedClient], None],
        *,
        folder: str,
    ) -> None:
        """`on_end` is called once, when serving has ended; `folder`: see Hello."""
        self._folder = folder
        self._socket = connection
        self._owner = owner
        self._on_end = on_end
        self._connection: Connection | None = None
        self._closing = threading.Lock()
        self._handed_over = False

    @property
    def _pid(self) -> int:
        return self._owner.host.pid()

    def turn_away(self) -> None:
        """Refuses the client, because the owner has no descriptor for it, and closes."""
        with contextlib.closing(self._socket), contextlib.suppress(OSError):
            self._socket.settimeout(_TURN_AWAY_SECONDS)
            self._socket.recv(link.HELLO_BYTES)  # because the client reads only after its hello
            error = KbprocError(
                "server.overloaded",
                f"Process {self._pid}, which has the store open, has too many "
                "open files to serve one more process.",
                hint="End processes that use the store, or raise the limit of open files "
                "(ulimit -n) before it starts. Then ask again.",
                retry_after_ms=1000,
            )
            self._refuse(error)

    def run(self) -> None:
        try:
            if link.peer(self._socket).uid == os.getuid():
                self._serve()
        except (OSError, Gone):
            pass  # the client has gone
        except Exception:
            _logger.exception("a connection failed")
        finally:
            self._on_end(self)
            with self._closing:
                self._socket.close()

    def _serve(self) -> None:
        admitted = self._admit()
        if admitted is None:
            return
        hello, rest = admitted
        outbox = Outbox(self._socket.fileno())
        connection = self._owner.connection(hello, outbox)
        connection.has_gone = self.has_gone
        with self._closing:
            if self._handed_over:
                return
            self._connection = connection
        start_thread(partial(self._begin, connection), "begin")
        lines = InputLines(self._socket.fileno(), hello.max_line_bytes, Signals(), rest)
        try:
            serve_lines(connection, lines)
        finally:
            self._hang_up()
            outbox.close()

    def _begin(self, connection: Connection) -> None:
        """Begins work once the store is open; lines are read earlier, so that timeouts can pass."""
        self._owner.is_settled.wait()
        self._owner.begin(connection)

    def _admit(self) -> tuple[Hello, bytes] | None:
        """Returns the hello and the bytes after it; None for a client that is refused."""
        line, rest = link.first_line(self._socket, _until(time.monotonic() + _HELLO_SECONDS))
        if not line:
            return None
        try:
            hello = self._read_hello(line)
        except KbprocError as error:
            self._refuse(error)
            return None
        self._send(self._welcome())
        return hello, rest

    def _welcome(self) -> Welcome:
        methods = self._owner.registry.methods.values()
        return Welcome(
            share=SHARE,
            ok=True,
            pid=self._pid,
            writes=[m.name for m in methods if m.kind != "read"],
            lasting=[m.name for m in methods if m.kind != "read" and m.from_log],
            reads=[m.name for m in methods if m.kind == "read" and not m.streams],
        )

    def _refuse(self, error: KbprocError) -> None:
        data = msgspec.to_builtins(messages.error_data(error))
        self._send(Welcome(share=SHARE, ok=False, error=data))

    def _send(self, welcome: Welcome) -> None:
        self._socket.sendall(msgspec.json.encode(welcome) + b"\n")

    def _read_hello(self, line: bytes) -> Hello:
        """Reads the hello. Raises store.incompatible, store.locked, input.invalid_json."""
        try:
            number = msgspec.json.decode(line, type=dict[str, Any]).get("share")
            if number == SHARE:
                return self._check_folder(link.decode_hello(line))
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise KbprocError("input.invalid_json", f"That was no hello: {error}.") from None
        raise KbprocError(
            "store.incompatible",
            f"The store is open in process {self._pid}, kbproc {__version__}, which "
            f"shares it by protocol {SHARE}, not {number!r}.",
            hint="Use the same version of kbproc everywhere, or end that process first.",
        )

    def _check_folder(self, hello: Hello) -> Hello:
        """Returns the hello. Raises store.locked for a client that means another folder."""
        if hello.folder not in ("", self._folder):
            raise KbprocError(
                "store.locked",
                f"Process {self._pid} listens here for another store.",
                hint="Remove the file kbproc.sock in the store that you named, if no process of "
                "its own has it open.",
            )
        return hello

    def has_gone(self) -> bool:
        """Returns true once the client has closed its end, so that no answer reaches it."""
        poll = select.poll()
        with self._closing:
            if self._socket.fileno() < 0:
                return True
            poll.register(self._socket, 0)
            return bool(poll.poll(0))

    def hand_over(self) -> None:
        """Answers what is nearly done; the client sends the other requests to the next owner."""
        with self._closing:
            self._handed_over = True
            connection = self._connection
        if connection is not None:
            connection.outbox.send(link.LEAVING)
            connection.hand_over(_HAND_OVER_SECONDS)
        self._hang_up()

    def _hang_up(self) -> None:
        """Ends the link; nothing is written later, as its descriptor may be used anew."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(sockets.SHUT_RDWR)


def _until(deadline: float) -> link.Check:
    """Returns a check that raises Gone after the deadline."""

    def check() -> None:
        if time.monotonic() > deadline:
            raise Gone

    return check
