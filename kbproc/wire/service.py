"""What all connections of one process share.

Owns: the store being opened, the pool, the parking.
Refuses to know: connections and requests.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kbproc.base.host import Host
from kbproc.calls.call import Call, Emit, Peer
from kbproc.calls.method import Registry
from kbproc.settings.config import MAX_IN_FLIGHT
from kbproc.store.store import Store
from kbproc.wire import messages
from kbproc.wire.parking import Waiting
from kbproc.wire.pool import Pool

WORKERS = 8


class Service:
    """What all connections of a process share."""

    def __init__(
        self,
        *,
        registry: Registry,
        host: Host,
        open_store: Callable[[], Store],
        wire: messages.Wire,
        max_in_flight: int = MAX_IN_FLIGHT,
        settings: dict[str, Any] | None = None,
    ) -> None:
        self.registry = registry
        self.host = host
        self.open_store = open_store
        self.wire = wire
        self.max_in_flight = max_in_flight
        self.settings = settings or {}
        self.pool = Pool(WORKERS)
        self.waiting = Waiting(self)

    def close(self) -> None:
        for part in (self.waiting, self.pool):
            part.close()

    def call(
        self,
        peer: Peer,
        emit: Emit,
        cancelled: Callable[[], bool],
        settings: dict[str, Any] | None = None,
    ) -> Call:
        return Call(
            registry=self.registry,
            host=self.host,
            peer=peer,
            open_store=self.open_store,
            emit=emit,
            now=self.host.now(),
            cancelled=cancelled,
            settings={**self.settings, **(settings or {})},
        )
