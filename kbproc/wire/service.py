"""What all connections of one process share.

Owns: the methods, the way to the store, the threads for reads, the parking, the
deadlines, and what each request's `Call` is made of.
Refuses to know: connections, and how a request is answered.
"""

from __future__ import annotations

from collections.abc import Callable

from kbproc.base.host import Host
from kbproc.calls.call import Call, Emit, Peer
from kbproc.calls.registry import Registry
from kbproc.library.library import Library
from kbproc.settings.config import MAX_IN_FLIGHT
from kbproc.wire import messages
from kbproc.wire.deadlines import Deadlines
from kbproc.wire.parking import Parking
from kbproc.wire.pool import Pool

WORKERS, AT_ONCE = 8, 2  # threads for reads: in all, and as long as those go on


class Service:
    """What all connections of a process share; `open_library` raises why there is no store."""

    def __init__(
        self,
        *,
        registry: Registry,
        host: Host,
        open_library: Callable[[], Library],
        wire: messages.Wire,
        max_in_flight: int = MAX_IN_FLIGHT,
    ) -> None:
        self.registry = registry
        self.host = host
        self.open_library = open_library
        self.wire = wire
        self.max_in_flight = max_in_flight
        self.pool = Pool(WORKERS, AT_ONCE)
        self.parking = Parking(host, self._on_change)
        self.deadlines = Deadlines(host)

    def _on_change(self, wake: Callable[[], None]) -> None:
        self.open_library().store.on_change(wake)

    def close(self, timeout_s: float = 1.0) -> None:
        """`timeout_s`: for each of the threads to end."""
        self.parking.close(timeout_s)
        self.deadlines.close()
        self.pool.close(timeout_s)

    def call(
        self,
        peer: Peer,
        emit: Emit,
        cancelled: Callable[[], bool],
        *,
        begin_turn: Callable[[], None],
        crowded: Callable[[], bool],
        max_line_bytes: int,
    ) -> Call:
        return Call(
            registry=self.registry,
            host=self.host,
            peer=peer,
            open_library=self.open_library,
            emit=emit,
            now=self.host.now(),
            cancelled=cancelled,
            gathers=True,
            begin_turn=begin_turn,
            crowded=crowded,
            max_line_bytes=max_line_bytes,
        )
