"""One request from its line to its answer, and its events on the way.

Owns: running it, parking it, its one answer, and the order of its events.
Refuses to know: who else is in flight (server.py) and what a method does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kbproc import rpc
from kbproc.call import Answer, Emit, Parked, run
from kbproc.errors import KbprocError
from kbproc.host import Host

if TYPE_CHECKING:
    from kbproc.server import Connection

_PROGRESS_EVERY_MS = 100.0

Reply = Callable[[bytes | None], None]


class Stream:
    """The events of one request, numbered without a gap."""

    def __init__(self, connection: Connection, id: rpc.Id, host: Host) -> None:
        self._connection = connection
        self._id = id
        self._host = host
        self._index = 0
        self._started = self._last_progress = host.monotonic_ms()

    def _eta(self, now: float, current: int, total: int | None) -> int | None:
        """Milliseconds that are left if it goes on as it went."""
        if not current or total is None:
            return None
        return round((now - self._started) / current * (total - current))

    def emit(self, name: str, fields: dict[str, Any]) -> None:
        """Progress is thinned out before it is numbered; other events wait for room."""
        outbox = self._connection.outbox
        if name == "progress":
            now, last = self._host.monotonic_ms(), fields.pop("last", False)
            if not last and (outbox.congested or now - self._last_progress < _PROGRESS_EVERY_MS):
                return
            self._last_progress = now
            fields["eta_ms"] = self._eta(now, fields["current"], fields["total"])
        elif outbox.congested:
            outbox.wait_for_room(lambda: self._id in self._connection.cancelled)
        stamped = {"request_id": self._id, "index": self._index, **fields}
        line = self._connection.service.wire.event(name, stamped)
        if line is not None:
            self._index += 1
            outbox.send(line)


class Flight:
    """One request from its line to its answer."""

    def __init__(
        self,
        connection: Connection,
        message: rpc.Request,
        id: rpc.Id | None,
        answer: Reply,
    ) -> None:
        self._connection = connection
        self._message = message
        self._answer = answer
        self.id = id
        self.key: rpc.Id | Flight = self if id is None else id
        self.method = message.method
        self.parked = False
        service = connection.service
        emit: Emit = _silent
        if id is not None:
            self._stream = Stream(connection, id, service.host)
            emit = self._stream.emit
        self.call = service.call(connection.peer, emit, self.is_cancelled)

    def is_cancelled(self) -> bool:
        return self.id in self._connection.cancelled

    def check_waiting(self) -> None:
        """Raises operation.cancelled: what waits ends with its connection."""
        if self._connection.ending:
            raise KbprocError("operation.cancelled", "The connection ended meanwhile.")
        self.call.check_cancelled()

    def run(self) -> None:
        self._settle(self._begin)

    def resume(self, step: Callable[[], Answer | Parked]) -> None:
        """Back from waiting."""
        self._connection.pool_for(self.method).submit(lambda: self._settle(step))

    def _begin(self) -> Answer | Parked:
        self.call.check_cancelled()
        found = self.call.registry.find(self.method)
        if found.streams and self.id is not None:
            self._stream.emit("init", {})
        return run(self.call, self.method, self._message.params)

    def _settle(self, step: Callable[[], Answer | Parked]) -> None:
        try:
            reached = step()
        except KbprocError as error:
            self.fail(error)
        except Exception as error:  # noqa: BLE001  the boundary: see rpc.unexpected
            self.fail(rpc.unexpected(error))
        else:
            if isinstance(reached, Parked):
                self.parked = True
                self._connection.service.waiting.add(self, reached)
            else:
                self._succeed(reached)

    def _succeed(self, answer: Answer) -> None:
        line = None
        if self.id is not None:
            line = self._connection.service.wire.result(
                self.id, self.call.registry.methods[self.method], answer
            )
        self._deliver(line)

    def fail(self, error: KbprocError) -> None:
        line = None
        if self.id is not None:
            line = self._connection.service.wire.error(self.id, error)
        self._deliver(line)

    def _deliver(self, line: bytes | None) -> None:
        """The place is free before the answer can be read: the client may use the id again."""
        self._connection.finished(self)
        self._answer(line)
        self._connection.answered()


def _silent(name: str, fields: dict[str, Any]) -> None:
    """A notification's events go nowhere."""
