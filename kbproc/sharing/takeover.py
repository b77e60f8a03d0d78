"""How an attached process finds the next owner of its store, or becomes the owner.

Owns: the store that this process opens once the lease falls to it.
Refuses to know: what is in flight meanwhile (relay.py). Light, until this process owns
the store.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from kbproc.base.host import Host
from kbproc.settings.config import Config
from kbproc.sharing import reach
from kbproc.sharing.listening import Listening, reach_or_listen
from kbproc.sharing.reach import Gone
from kbproc.store.folder import refusal

if TYPE_CHECKING:
    from kbproc.sharing.owner import Owner


class Takeover:
    """The way to whichever process owns the store next, which may be this one."""

    def __init__(self, config: Config, host: Host) -> None:
        self._config = config
        self._host = host
        self._owner: Owner | None = None

    def reach_owner(self) -> socket.socket:
        """A connection to the owner of now, this process if the lease is free.

        Raises Gone if that owner ends at once; KbprocError if the store can't be had.
        """
        found = reach_or_listen(self._config, self._host.pid())
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

    def close(self) -> None:
        """Ends this process's ownership, if it came to that."""
        if self._owner is not None:
            self._owner.close()
