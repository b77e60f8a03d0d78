"""One request from its line to its answer, and its events on the way.

Owns: running it, parking it, its one answer, and the order of its events.
Refuses to know: who else is in flight (server.py) and what a method does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kbproc.base.errors import KbprocError
from kbproc.calls.call import Emit
from kbproc.calls.reply import Answer, Parked
from kbproc.calls.run import run
from kbproc.wire import messages
from kbproc.wire.stream import Stream

if TYPE_CHECKING:
    from kbproc.wire.connection import Connection

Reply = Callable[[bytes | None], None]


class Flight:
    """One request from its line to its answer."""

    def __init__(
        self,
        connection: Connection,
        message: messages.Request,
        id: messages.Id | None,
        answer: Reply,
    ) -> None:
        self._connection = connection
        self._message = message
        self._answer = answer
        self.id = id
        self.key: messages.Id | Flight = self if id is None else id
        self.method = message.method
        self.parked = False
        service = connection.service
        emit: Emit = _silent
        if id is not None:
            self._stream = self._make_stream(id)
            emit = self._stream.emit
        self.call = service.call(connection.peer, emit, self.is_cancelled, connection.settings)
        self.call.crowded = self.is_crowded
        self.call.max_line_bytes = connection.wire.max_line_bytes

    def _make_stream(self, id: messages.Id) -> Stream:
        return Stream(
            wire=self._connection.wire,
            id=id,
            host=self._connection.service.host,
            send=self._connection.outbox.send,
            crowded=self.is_crowded,
            wait=self._wait_for_room,
        )

    def _wait_for_room(self) -> None:
        """Not while it is parked: all that is parked shares one thread."""
        if not self.parked:
            self._connection.outbox.wait_for_room(self.is_cancelled)

    def is_cancelled(self) -> bool:
        return self.id in self._connection.cancelled

    def is_crowded(self) -> bool:
        """True if the client has much to read before it gets to anything new."""
        return self._connection.outbox.congested

    def tell_room(self, tell: Callable[[], None]) -> None:
        """`tell` is called when it is crowded no more."""
        self._connection.outbox.on_room = tell

    def check_waiting(self, detail: dict[str, Any]) -> None:
        """Raises operation.cancelled: what waits ends with its connection."""
        if self._connection.ending:
            raise KbprocError(
                "operation.cancelled", "The connection ended meanwhile.", detail=detail
            )
        self.call.check_cancelled(**detail)

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
            self.fail(messages.unexpected(error))
        else:
            if isinstance(reached, Parked):
                self.parked = True
                self._connection.service.waiting.add(self, reached)
            else:
                self._succeed(reached)

    def _succeed(self, answer: Answer) -> None:
        line = None
        if self.id is not None:
            line = self._connection.wire.result(
                self.id, self.call.registry.methods[self.method], answer
            )
        self._deliver(line)

    def fail(self, error: KbprocError) -> None:
        line = None
        if self.id is not None:
            line = self._connection.wire.error(self.id, error)
        self._deliver(line)

    def _deliver(self, line: bytes | None) -> None:
        """The place is free before the answer can be read: the client may use the id again."""
        self._connection.finished(self)
        self._answer(line)
        self._connection.answered()


def _silent(name: str, fields: dict[str, Any]) -> None:
    """A notification's events go nowhere."""
