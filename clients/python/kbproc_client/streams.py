"""A request as whoever asked sees it: its events one by one, then its result.

Owns: waiting for them in a thread or on an event loop, and that leaving early cancels.
Refuses to know: servers, and which methods there are.
"""

from __future__ import annotations

import contextlib
import queue
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from .asked import Asked
from .data import Event, Meta
from .engine import Engine
from .errors import KbprocError

if TYPE_CHECKING:
    import asyncio

D = TypeVar("D")


class Result(NamedTuple, Generic[D]):
    """What a request was answered with; `data` is None in a dry run, whose plan is in `meta`."""

    data: D
    meta: Meta


class _End(NamedTuple):
    told: dict[str, Any] | KbprocError


_Told = tuple[Event, int] | _End  # an event with its bytes


class _Request(Generic[D]):
    """What both kinds of waiting have in common."""

    _asked: Asked

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._end: _End | None = None

    def _result(self) -> Result[D]:
        """Once the end has come."""
        told = self._end.told if self._end else {}
        if isinstance(told, KbprocError):
            raise told
        return Result(told["data"], told["meta"])

    def _event(self, told: _Told) -> Event | None:
        """None at the end."""
        if isinstance(told, _End):
            self._end = told
            return None
        event, size = told
        self._engine.take(self._asked, size)
        return event

    def cancel(self) -> None:
        """Asks the server to stop, unless it has ended; its answer still comes."""
        if self._end is None:
            self._engine.cancel(self._asked)


class Stream(_Request[D]):
    """Its events, by iteration, which raises KbprocError if the answer is an error.

    Leaving the loop or the `with` block early cancels the request.
    """

    def __init__(
        self,
        engine: Engine,
        method: str,
        params: dict[str, Any],
        timeout: float | None,
        *,
        events: bool = True,
    ) -> None:
        """`events`: whether anybody will read them."""
        super().__init__(engine)
        told: queue.SimpleQueue[_Told] = queue.SimpleQueue()
        self._told = told
        self._asked = engine.ask(
            method,
            params,
            timeout=timeout,
            heard=(lambda event, size: told.put((event, size))) if events else None,
            ended=lambda end: told.put(_End(end)),
        )

    def __iter__(self) -> Iterator[Event]:
        try:
            while (event := self._take()) is not None:
                yield event
        finally:
            self.cancel()
        self._result()

    def _take(self) -> Event | None:
        """Waits for the next one; None at the end."""
        return self._event(self._told.get()) if self._end is None else None

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


class AsyncStream(_Request[D]):
    """As Stream, on the event loop on which it was asked; a cancelled task cancels the request."""

    def __init__(
        self,
        engine: Engine,
        method: str,
        params: dict[str, Any],
        timeout: float | None,
        *,
        events: bool = True,
    ) -> None:
        import asyncio  # half of what importing this package would cost

        super().__init__(engine)
        self._loop = asyncio.get_running_loop()
        self._told: asyncio.Queue[_Told] = asyncio.Queue()
        self._asked = engine.ask(
            method,
            params,
            timeout=timeout,
            heard=(lambda event, size: self._put((event, size))) if events else None,
            ended=lambda end: self._put(_End(end)),
        )

    def _put(self, told: _Told) -> None:
        """From the engine's thread. On a loop that is closed nobody waits any more."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._told.put_nowait, told)

    async def __aiter__(self) -> AsyncIterator[Event]:
        try:
            while (event := await self._take()) is not None:
                yield event
        finally:
            self.cancel()
        self._result()

    async def _take(self) -> Event | None:
        return self._event(await self._told.get()) if self._end is None else None

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
