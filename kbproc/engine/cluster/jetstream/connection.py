"""A connection to a cluster's servers, and a thread that makes it again whenever it is lost.

Owns: how a server is connected to and left, trying one server after the other, and the thread with
the event loop that does so.
Refuses to know: what a connection is used for, and what its loss means.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from itertools import count
from typing import Any, TypeVar

from nats.aio.client import Client
from nats.errors import Error as NatsError

from kbproc.log.jetstream.settings import StreamSettings

ANSWERS_S = 2.0
LOST = (NatsError, OSError, asyncio.TimeoutError)
_PING_S = 2

T = TypeVar("T")


class Connecting:
    """From `start` to `close`. `attend` gets each server's address, and has its turn until it
    returns; nothing of what it does is used by another thread but through `call` and `submit`.
    """

    def __init__(
        self,
        settings: StreamSettings,
        attend: Callable[[str], Awaitable[None]],
        *,
        name: str,
        pause_s: float,
    ) -> None:
        """`name`: the thread's. `pause_s`: between two turns."""
        self._servers = settings.servers
        self._attend = attend
        self._pause_s = pause_s
        self._loop = asyncio.new_event_loop()
        self._keeping: asyncio.Task[None] | None = None
        self._thread = threading.Thread(target=self._live, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def call(self, act: Callable[[], object]) -> None:
        """In the loop, soon."""
        with contextlib.suppress(RuntimeError):  # it is closed
            self._loop.call_soon_threadsafe(act)

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """In the loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def close(self, patience_s: float) -> None:
        if self._thread.is_alive():
            self.call(self._end)
            self._thread.join(patience_s)

    def _end(self) -> None:
        if self._keeping is not None:
            self._keeping.cancel()

    def _live(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._keeping = self._loop.create_task(self._keep())
        with contextlib.suppress(asyncio.CancelledError):
            self._loop.run_until_complete(self._keeping)
        _end_all(self._loop)

    async def _keep(self) -> None:
        """Until it is cancelled."""
        for turn in count():
            await self._attend(self._servers[turn % len(self._servers)])
            await asyncio.sleep(self._pause_s)


async def using(server: str, credentials: str | None, use: Callable[[Client], Awaitable[T]]) -> T:
    """One connection. Raises what `use` raises, and LOST."""
    connection = await connected(server, credentials)
    try:
        return await use(connection)
    finally:
        await close(connection)


def words(error: BaseException) -> str:
    """What nats says of an error, which may be nothing."""
    return str(error) or type(error).__name__


async def connected(server: str, credentials: str | None) -> Client:
    """Raises what nats raises, OSError, TimeoutError. It never connects again by itself."""

    async def ignore(error: Exception) -> None:
        """It is raised, too, or ends the connection."""

    connection = Client()
    connecting = connection.connect(
        [server],
        error_cb=ignore,
        allow_reconnect=False,
        max_reconnect_attempts=1,  # 0 would be without end
        reconnect_time_wait=0,
        connect_timeout=int(ANSWERS_S),
        ping_interval=_PING_S,
        max_outstanding_pings=2,
        user_credentials=credentials,
    )
    try:
        await asyncio.wait_for(connecting, 2 * ANSWERS_S)
    except BaseException:
        await close(connection)
        raise
    return connection


async def close(connection: Client) -> None:
    """Its socket is closed whatever happens: a client that is closing already returns at once, and
    one whose own task is cut off while it closes leaves the socket to the loop, which ends.
    """
    try:
        with contextlib.suppress(*LOST):
            await connection.close()
    finally:
        if connection._transport is not None:
            connection._transport.close()  # type: ignore[no-untyped-call]


def _end_all(loop: asyncio.AbstractEventLoop) -> None:
    """What is left when a loop ends: a client's subscriptions leave tasks behind."""
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()
