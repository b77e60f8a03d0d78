"""A connection to a cluster's servers that is made again whenever it is lost.

Owns: its thread and event loop, and trying one server after the other.
Refuses to know: what it is used for.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Awaitable, Callable
from itertools import count

from nats.aio.client import Client
from nats.errors import Error as NatsError

from kbproc.base.errors import KbprocError
from kbproc.log.jetstream.settings import StreamSettings
from kbproc.log.jetstream.stream import close, connected, end_all

LOST = (NatsError, OSError, asyncio.TimeoutError)
_PAUSE_S = 0.25
_ENDS_S = 10.0
_logger = logging.getLogger(__name__)

Use = Callable[[Client], Awaitable[None]]


class Line:
    """From `start` to `close`. `use` gets each connection, and has it until it returns."""

    def __init__(self, settings: StreamSettings, use: Use, lost: Callable[[], None]) -> None:
        """`lost`: there is no connection (any more)."""
        self._settings = settings
        self._use = use
        self._lost = lost
        self._told = ""
        self._loop = asyncio.new_event_loop()
        self._keeping: asyncio.Task[None] | None = None
        self._thread = threading.Thread(target=self._live, name="cluster", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def call(self, act: Callable[[], object]) -> None:
        """In the loop, soon."""
        with contextlib.suppress(RuntimeError):  # it is closed
            self._loop.call_soon_threadsafe(act)

    def close(self) -> None:
        if self._thread.is_alive():
            self.call(self._end)
            self._thread.join(_ENDS_S)

    def _live(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._keeping = self._loop.create_task(self._keep())
        with contextlib.suppress(asyncio.CancelledError):
            self._loop.run_until_complete(self._keeping)
        end_all(self._loop)

    def _end(self) -> None:
        if self._keeping is not None:
            self._keeping.cancel()

    async def _keep(self) -> None:
        for turn in count():
            server = self._settings.servers[turn % len(self._settings.servers)]
            try:
                await using(server, self._settings.credentials, self._use)
            except (*LOST, KbprocError) as error:
                self._tell(f"{server}: {error or type(error).__name__}")
            self._lost()
            await asyncio.sleep(_PAUSE_S)

    def _tell(self, why: str) -> None:
        if why != self._told:
            _logger.info("vectors are not shared now: %s", why)
            self._told = why


async def using(server: str, credentials: str | None, use: Use) -> None:
    """One connection. Raises what `use` raises, and LOST."""
    connection = await connected(server, credentials)
    try:
        await use(connection)
    finally:
        await close(connection)
