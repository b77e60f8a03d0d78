"""The process that owns a store: it has the store open, for itself and for others.

Owns: opening the store under the lock, listening for other processes, and sending them
away at the end.
Refuses to know: requests, how one attached process is served (guest.py), and how others
find this one (reach.py).
"""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
from pathlib import Path
from typing import Any

from kbproc.base.errors import KbprocError
from kbproc.base.host import Host
from kbproc.calls.method import Registry
from kbproc.methods.registry import registry as all_methods
from kbproc.settings.config import MAX_LINE_BYTES, Config
from kbproc.sharing import reach
from kbproc.sharing.guest import Guest
from kbproc.sharing.opened import Opened
from kbproc.store.folder import sign_lock
from kbproc.store.store import Store
from kbproc.wire import messages
from kbproc.wire.service import Service

_BACKLOG = 512
_logger = logging.getLogger(__name__)


class Owner:
    """The store of this process, and the processes that attach to it."""

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
            wire=messages.Wire(MAX_LINE_BYTES),
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
                self.config.store,
                host=self.host,
                cache=self.config.cache,
                model=self._model,
                lock=lock,
            )
        except KbprocError as error:
            self.opened.error = error
        except Exception as error:  # noqa: BLE001  the boundary: see messages.unexpected
            self.opened.error = messages.unexpected(error)
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
        """From here on another process may own the store."""
        if self._listener is not None:
            self._listener.close()
        self.service.close()
        if self.opened.store is not None:
            self.opened.store.close()


class Listener:
    """The store's socket. It is bound at once: who connects waits until the store is open."""

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
            guest = Guest(connection, self._owner.service, self._owner.opened, self._left)
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
        """Lets nobody in any more, and sends every guest to the next owner."""
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
        for path in reach.socket_paths(config.store, config.runtime):
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
