"""How an attached process finds the next owner of its store, or becomes the owner.

Owns: the store that this process opens once the lease falls to it.
Refuses to know: what is in flight meanwhile (relay.py). Light, until this process owns
the store.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from kbproc.base.errors import KbprocError
from kbproc.base.host import Host
from kbproc.settings.config import Config
from kbproc.sharing import reach
from kbproc.sharing.listening import Listening, reach_or_listen
from kbproc.sharing.reach import Check, Gone, Hello
from kbproc.sharing.waiting import Waiting
from kbproc.store.folder import refusal
from kbproc.wire.outbox import Outbox

if TYPE_CHECKING:
    from kbproc.sharing.owner import Owner
    from kbproc.wire.connection import Connection


class Takeover:
    """The way to whichever process owns the store next, which may be this one."""

    def __init__(self, config: Config, host: Host) -> None:
        self._config = config
        self._host = host
        self._owner: Owner | None = None
        self._refusal: tuple[str, Connection] | None = None

    def waiting(self) -> Waiting:
        """A wait for the owner that begins now."""
        return Waiting(self._config.store)

    def reach_owner(self, check: Check) -> socket.socket:
        """A connection to the owner of now, this process if the lease is free.

        `check` is called while a process holds the lease and does not listen; it may raise.
        Raises Gone if that owner ends at once; KbprocError if the store can't be had.
        """
        found = reach_or_listen(self._config, self._host.pid(), check)
        if found is None:  # the store could be written when this process attached
            raise refusal(self._config.store)
        if isinstance(found, socket.socket):
            return found
        self._owner = self._open(found)
        connection = reach.connect_to(found.path)
        if connection is None:
            raise Gone
        return connection

    def _open(self, listening: Listening) -> Owner:
        from kbproc.sharing.owner import Owner
        from kbproc.wire.logs import log_to_stderr

        log_to_stderr(self._config.log_level, self._host)
        owner = Owner(self._config, self._host)
        owner.open(listening)
        return owner

    def without_store(self, error: KbprocError, hello: Hello, outbox: Outbox) -> Connection:
        """A connection that answers what needs no store, and everything else with the error."""
        if self._refusal is None or self._refusal[0] != error.message:
            from kbproc.sharing.client import begin, connection_of
            from kbproc.sharing.owner import Owner

            owner = Owner(self._config, self._host)
            owner.open(error)
            connection = connection_of(owner.service, hello, outbox)
            begin(owner.opened, connection)
            self._refusal = error.message, connection
        return self._refusal[1]

    def close(self) -> None:
        """Ends this process's ownership, if it came to that."""
        if self._owner is not None:
            self._owner.leave()
