"""A request as its caller sees it: its events one by one, then its result.

The caller waits in a thread or on an event loop; leaving early cancels the request.
"""

from __future__ import annotations

import contextlib
import queue
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from .data import Event, Meta
from .errors import KbprocError
from .request import PendingRequest
from .server import Server

if TYPE_CHECKING:
    import asyncio

D = TypeVar("D")


class Result(NamedTuple, Generic[D]):
    """The result of a request; `data` is None in a dry run, whose plan is in `meta`."""

    data: D
    meta: Meta


class _StreamEnd(NamedTuple):
    outcome: dict[str, Any] | KbprocError


_StreamItem = tuple[Event, int] | _StreamEnd  # an event with its bytes


class _BaseStream(Generic[D]):
    """The common part of both kinds of stream."""

    _pending: PendingRequest

    def __init__(self, server: Server) -> None:
        self._server = server
        self._end: _StreamEnd | None = None

    def _result(self) -> Result[D]:
        """Returns the result, once the end has come."""
        outcome = self._end.outcome if self._end else {}
        if isinstance(outcome, KbprocError):
            raise outcome
        return Result(outcome["data"], outcome["meta"])

    def _event(self, item: _StreamItem) -> Event | None:
        """Returns the event; None at the end."""
        if isinstance(item, _StreamEnd):
            self._end = item
            return None
        event, size = item
        self._server.take(self._pending, size)
        return event

    def cancel(self) -> None:
        """Asks the server to stop, unless the request has ended; its answer still comes."""
        if self._end is None:
            self._server.cancel(self._pending)


class Stream(_BaseStream[D]):
    """The events of a request, by iteration, which raises KbprocError for an error.

    Leaving the loop or the `with` block early cancels the request.
    """

    def __init__(
        self,
        server: Server,
        method: str,
        params: dict[str, Any],
        timeout: float | None,
        *,
        events: bool = True,
    ) -> None:
        """`events`: whether the caller will read them."""
        super().__init__(server)
        items: queue.SimpleQueue[_StreamItem] = queue.SimpleQueue()
        self._items = items
        self._pending = server.ask(
            method,
            params,
            timeout=timeout,
            on_event=(lambda event, size: items.put((event, size))) if events else None,
            on_end=lambda end: items.put(_StreamEnd(end)),
        )

    def __iter__(self) -> Iterator[Event]:
        try:
            while (event := self._take()) is not None:
                yield event
        finally:
            self.cancel()
        self._result()

    def _take(self) -> Event | None:
        """Waits for the next event; None at the end."""
        return self._event(self._items.get()) if self._end is None else None

    def result(self) -> Result[D]:
        """Waits for the end, past all events. Raises KbprocError."""
        try:
            while self._take() is not None:
                pass
        finally:
            self.cancel()
        return self._result()

    def __enter__(self) -> Stream[D]:
        return self

    def __exit__(self, *error: object) -> None:
        self.cancel()


class AsyncStream(_BaseStream[D]):
    """A Stream on the event loop that made it; a cancelled task cancels the request."""

    def __init__(
        self,
        server: Server,
        method: str,
        params: dict[str, Any],
        timeout: float | None,
        *,
        events: bool = True,
    ) -> None:
        import asyncio  # because it would double this package's import time

        super().__init__(server)
        self._loop = asyncio.get_running_loop()
        self._items: asyncio.Queue[_StreamItem] = asyncio.Queue()
        self._pending = server.ask(
            method,
            params,
            timeout=timeout,
            on_event=(lambda event, size: self._put((event, size))) if events else None,
            on_end=lambda end: self._put(_StreamEnd(end)),
        )

    def _put(self, item: _StreamItem) -> None:
        """Passes an item from the server's thread to the loop; a closed loop has no readers."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._items.put_nowait, item)

    async def __aiter__(self) -> AsyncIterator[Event]:
        try:
            while (event := await self._take()) is not None:
                yield event
        finally:
            self.cancel()
        self._result()

    async def _take(self) -> Event | None:
        return self._event(await self._items.get()) if self._end is None else None

    async def result(self) -> Result[D]:
        try:
            while await self._take() is not None:
                pass
        finally:
            self.cancel()
        return self._result()

    async def __aenter__(self) -> AsyncStream[D]:
        return self

    async def __aexit__(self, *error: object) -> None:
        self.cancel()
