"""The process that owns a store: it has the store open, for itself and for others.

Owns: opening the store under its lease, letting other processes in, and sending them
away at the end.
Refuses to know: requests, how one attached process is served (guest.py), and where this
process listens (listening.py).
"""

from __future__ import annotations

import logging
import math
import resource
import socket
import threading
from typing import Any

from kbproc.base.errors import KbprocError
from kbproc.base.host import Host
from kbproc.base.threads import apart
from kbproc.calls.registry import Registry
from kbproc.library.library import Library
from kbproc.methods.all import registry as all_methods
from kbproc.settings.config import MAX_LINE_BYTES, Config
from kbproc.settings.trust import Trust
from kbproc.sharing.client import Opened
from kbproc.sharing.guest import Guest
from kbproc.sharing.listening import Listening
from kbproc.sharing.reach import folder_number
from kbproc.wire import messages
from kbproc.wire.service import Service

_logger = logging.getLogger(__name__)
# For work in the background when a server ends: somebody may wait for the store.
PATIENCE_SECONDS = 0.1
_SHORTAGE_SECONDS = 0.1  # until the next try where the system has refused
_LEAST_SPARED = 16  # descriptors for the store's own work: a query in SQL takes some ten


class Owner:
    """The store of this process, and the processes that attach to it."""

    def __init__(
        self,
        config: Config,
        host: Host,
        *,
        model: dict[str, Any] | None = None,
        registry: Registry | None = None,
        for_one: bool = False,
    ) -> None:
        """`for_one`: it asks for one thing itself, and ends."""
        self.config = config
        self.host = host
        self.registry = registry or all_methods().loaded()
        self.opened = Opened()
        self.service = Service(
            registry=self.registry,
            host=host,
            open_library=self.opened.get,
            wire=messages.Wire(MAX_LINE_BYTES),
        )
        self._model = model
        self._for_one = for_one
        self._listener: Listener | None = None

    def open(self, listening: Listening | KbprocError | None = None) -> None:
        """Opens the store and lets others in; `opened` says how it went.

        `listening`: the lease and the socket, or why they could not be had. None takes the
        lease of the store, or none if that is read-only, and lets nobody in.
        """
        try:
            if isinstance(listening, KbprocError):
                raise listening
            if listening is not None:
                self._listener = Listener(self, listening)
            self.opened.library = Library.open(
                self.config.store,
                host=self.host,
                cache=self.config.cache,
                model=self._model,
                lease=None if listening is None else listening.lease,
                trust=Trust(self.config.approved),
                llm=self.config.llm,
                rerank=self.config.rerank,
                for_one=self._for_one,
            )
        except KbprocError as error:
            self.opened.error = error
        except Exception as error:  # noqa: BLE001  the boundary: see messages.unexpected
            self.opened.error = messages.unexpected(error)
        self.opened.settled.set()

    def is_attended(self) -> bool:
        """True while a living client is attached; a dead one may have requests in flight."""
        return self._listener is not None and self._listener.is_attended()

    def close(self) -> None:
        """Lets go of the store, so that another process may own it."""
        self._close(None)

    def leave(self) -> None:
        """The same for a process that ends at once: its end lets go of whatever is still open."""
        self._close(PATIENCE_SECONDS)

    def _close(self, patience_s: float | None) -> None:
        library = self.opened.library
        if library is not None:
            library.embedding.stop()
        if self._listener is not None:
            self._listener.close()
        self.service.close(1.0 if patience_s is None else patience_s)
        if library is not None and not library.close(patience_s):
            _logger.info("left the store while work went on: the next owner goes on with it")


class Listener:
    """Lets other processes in; their requests wait until the store is open."""

    def __init__(self, owner: Owner, listening: Listening) -> None:
        self._owner = owner
        self._listening = listening
        self._folder = folder_number(owner.config.store)
        self._closed = threading.Event()
        self._guests: set[Guest] = set()
        self._changing = threading.Lock()
        threading.Thread(target=self._run, name="listener", daemon=True).start()

    def _run(self) -> None:
        """Until the owner closes: a shortage of descriptors or threads passes."""
        while not self._closed.is_set():
            try:
                connection = self._listening.accept()
                if connection is not None:
                    self._let_in(connection)
            except (OSError, RuntimeError) as error:
                if not self._closed.wait(_SHORTAGE_SECONDS):
                    _logger.warning("a process could not be let in: %s", error)

    def _let_in(self, connection: socket.socket) -> None:
        """Raises RuntimeError where no thread can be started for it."""
        owner = self._owner
        guest = Guest(connection, owner.service, owner.opened, self._left, folder=self._folder)
        # The lowest free number is a new descriptor's: so it tells how many are in use.
        if connection.fileno() >= most_descriptors():
            guest.turn_away()
            return
        with self._changing:
            if self._closed.is_set():
                connection.close()
                return
            self._guests.add(guest)
        try:
            threading.Thread(target=guest.run, name="guest", daemon=True).start()
        except RuntimeError:
            self._left(guest)
            connection.close()
            raise

    def _left(self, guest: Guest) -> None:
        with self._changing:
            self._guests.discard(guest)

    def is_attended(self) -> bool:
        with self._changing:
            return any(not guest.has_gone() for guest in self._guests)

    def close(self) -> None:
        """Lets nobody in any more, and sends every guest to the next owner."""
        with self._changing:
            self._closed.set()
            guests = list(self._guests)
        self._listening.stop()
        for thread in [apart(guest.hand_over, "leaving") for guest in guests]:
            if thread.ident is not None:
                thread.join()


def most_descriptors() -> float:
    """How many may be in use when a process is let in; the rest is for the store's own work."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return math.inf
    return limit - max(_LEAST_SPARED, limit // 4)
