"""A request as whoever asked sees it: its events one by one, then its result.

Owns: waiting for them in a thread or on an event loop, and that leaving early cancels.
Refuses to know: servers, and which methods there are.
"""

from __future__ import annotations

import contextlib
import queue
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

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


class _Request(Generic[D]):
    """What both kinds of waiting have in common."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._end: _End | None = None

    def _result(self) -> Result[D]:
        """Once the end has come."""
        told = self._end.told if self._end else {}
        if isinstance(told, KbprocError):
            raise told
        return Result(told["data"], told["meta"])

    def _is_event(self, told: Event | _End) -> bool:
        if isinstance(told, _End):
            self._end = told
        return self._end is None


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
        told: queue.SimpleQueue[Event | _End] = queue.SimpleQueue()
        self._told = told
        self._asked = engine.ask(
            method,
            params,
            timeout=timeout,
            heard=told.put if events else None,
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
        if self._end is None and self._is_event(told := self._told.get()):
            return told  # type: ignore[return-value]
        return None

    def result(self) -> Result[D]:
        """Waits for the end, past all events. Raises KbprocError."""
        try:
            while self._take() is not None:
                pass
        finally:
            self.cancel()
        return self._result()

    def cancel(self) -> None:
        """Asks the server to stop, unless it has ended; its answer still comes."""
        if self._end is None:
            self._engine.cancel(self._asked)

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
        self._told: asyncio.Queue[Event | _End] = asyncio.Queue()
        self._asked = engine.ask(
            method,
            params,
            timeout=timeout,
            heard=self._put if events else None,
            ended=lambda end: self._put(_End(end)),
        )

    def _put(self, told: Event | _End) -> None:
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
        if self._end is None and self._is_event(told := await self._told.get()):
            return told  # type: ignore[return-value]
        return None

    async def result(self) -> Result[D]:
        try:
            while await self._take() is not None:
                pass
        finally:
            self.cancel()
        return self._result()

    def cancel(self) -> None:
        if self._end is None:
            self._engine.cancel(self._asked)

    async def __aenter__(self) -> AsyncStream[D]:
        return self

    async def __aexit__(self, *error: object) -> None:
        self.cancel()
