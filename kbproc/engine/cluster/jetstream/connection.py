"""Connects to a cluster's servers, and reconnects in a thread whenever the connection is lost.

The thread runs the event loop and tries one server after the other.
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

from kbproc.base.threads import start_thread
from kbproc.engine.cluster.jetstream.credentials import login
from kbproc.engine.cluster.jetstream.settings import StreamSettings

ANSWERS_S = 2.0
LOST = (NatsError, OSError, asyncio.TimeoutError)
_PING_S = 2

T = TypeVar("T")


class ConnectionKeeper:
    """A thread that calls `attend` with each server's address in turn, from `start` to `close`.

    `attend` returns once its connection is lost. Its loop's objects belong to this thread; other
    threads reach them through `call` and `submit`.
    """

    def __init__(
        self,
        settings: StreamSettings,
        attend: Callable[[str], Awaitable[None]],
        *,
        name: str,
        pause_s: float,
    ) -> None:
        """`name`: the thread's name. `pause_s`: seconds between two calls of `attend`."""
        self._servers = settings.servers
        self._attend = attend
        self._pause_s = pause_s
        self._loop = asyncio.new_event_loop()
        self._task: asyncio.Task[None] | None = None
        self._name = name
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = start_thread(self._live, self._name)

    def call(self, act: Callable[[], object]) -> None:
        """Schedules `act` in the event loop; callable from any thread. A closed loop drops it."""
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(act)

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Runs the coroutine in the event loop; callable from any thread."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def close(self, patience_s: float) -> None:
        if self._thread is not None and self._thread.is_alive():
            self.call(self._end)
            self._thread.join(patience_s)

    def _end(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _live(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._task = self._loop.create_task(self._keep())
        with contextlib.suppress(asyncio.CancelledError):
            self._loop.run_until_complete(self._task)
        _end_all(self._loop)

    async def _keep(self) -> None:
        """Attends one server after the other until it is cancelled."""
        for attempt in count():
            await self._attend(self._servers[attempt % len(self._servers)])
            await asyncio.sleep(self._pause_s)


async def using(server: str, credentials: str | None, use: Callable[[Client], Awaitable[T]]) -> T:
    """Calls `use` with a connection of its own. Raises what `use` raises, and LOST."""
    connection = await connected(server, credentials)
    try:
        return await use(connection)
    finally:
        await close(connection)


def words(error: BaseException) -> str:
    """Returns the error's text, or its class's name, since nats leaves some texts empty."""
    return str(error) or type(error).__name__


async def connected(server: str, credentials: str | None) -> Client:
    """Returns a connection that never reconnects by itself.

    `server` of the scheme tls is refused unless it encrypts; SSL_CERT_FILE names the certificates
    that are trusted, as elsewhere. Raises what nats raises, OSError, TimeoutError.
    """

    async def ignore(error: Exception) -> None:
        """Ignores the error, because nats raises it as well or ends the connection."""

    proof = login(credentials) if credentials else {}
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
        **proof,
    )
    try:
        await asyncio.wait_for(connecting, 2 * ANSWERS_S)
        # nats-py encrypts where the server asks for it, whatever the scheme says.
        if server.startswith("tls://") and not connection._server_info.get("tls_required"):
            raise ConnectionError("the server does not ask for TLS (tls in its configuration)")
    except BaseException:
        await close(connection)
        raise
    return connection


async def close(connection: Client) -> None:
    """Closes the connection and, in any case, its socket.

    A client that is closing already returns at once, and one whose task is cancelled while it
    closes leaves the socket to the loop, which ends. One whose TLS handshake failed waits for ever.
    """
    try:
        with contextlib.suppress(*LOST):
            await asyncio.wait_for(connection.close(), ANSWERS_S)
    finally:
        if connection._transport is not None:
            connection._transport.close()  # type: ignore[no-untyped-call]


def _end_all(loop: asyncio.AbstractEventLoop) -> None:
    """Cancels the loop's remaining tasks, which subscriptions leave behind, and closes it."""
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()
