"""Keeps a node connected to its stream, in a thread of its own.

It checks server and stream before they are used, says why while neither can be used, and follows
the stream from where the node is.

`run` is the only way into the thread's loop for other threads.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import logging
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar
from urllib.parse import urlsplit

import msgspec
from nats.aio.client import Client

from kbproc.base.errors import KbprocError
from kbproc.engine.cluster.jetstream.connection import (
    ANSWERS_S,
    LOST,
    ConnectionKeeper,
    close,
    connected,
    words,
)
from kbproc.engine.cluster.jetstream.settings import StreamSettings
from kbproc.engine.cluster.jetstream.stream import LogStream, StreamRefused, StreamState

OLDEST = (2, 12, 1)
_PAUSE_S = 0.1
# A new leader may lack records for a moment that the old one has acknowledged.
DOUBT_S = 5.0
_SILENT = (None, None)
_logger = logging.getLogger(__name__)

T = TypeVar("T")


class Unreachable(Exception):
    """The server did not respond, so it is unknown whether it has carried out the request."""


class StreamNode(Protocol):
    """The log that a link connects to its stream."""

    @property
    def arrived_seq(self) -> int:
        """The seq of the last message that the node has."""

    async def fork(self, stream: LogStream, state: StreamState) -> str | None:
        """Returns how the stream contradicts this node's records, in words; None if it doesn't."""

    async def take(self, seq: int, line: bytes) -> None:
        """Takes the next message."""


class StreamLink:
    """A connection that is kept from `start` to `close`; `stream` is None while it is unusable.

    `problem`: why it is unusable. `damage`: how the stream contradicts this node's records.
    """

    def __init__(self, settings: StreamSettings, node: StreamNode) -> None:
        self.problem = "no server has been asked yet"
        self.damage: str | None = None
        self.refusal: KbprocError | None = None
        self.last_seq = 0
        self.stream: LogStream | None = None
        self._settings = settings
        self._node = node
        self._down_since = time.monotonic()
        self._changed = threading.Condition()
        self._connection: Client | None = None
        self._connecting = ConnectionKeeper(
            settings, self._attend, name="jetstream", pause_s=_PAUSE_S
        )

    def start(self) -> None:
        self._connecting.start()

    def close(self) -> None:
        self._connecting.close(2 * ANSWERS_S)

    def wait(self, patience_s: float) -> bool:
        """Waits for a connection, or until none can come; returns True if there is one."""
        with self._changed:
            self._changed.wait_for(self._is_decided, max(patience_s, 0))
            return self.stream is not None

    @property
    def down_s(self) -> float:
        """Seconds without a connection; meaningless while there is one."""
        return time.monotonic() - self._down_since

    def _is_decided(self) -> bool:
        return self.stream is not None or self.refusal is not None or self.damage is not None

    def run(self, work: Callable[[LogStream], Awaitable[T]], timeout_s: float = 2 * ANSWERS_S) -> T:
        """Runs `work` in the loop, from any other thread. Raises Unreachable, StreamRefused."""
        stream = self.stream
        if stream is None:
            raise Unreachable(self.problem)

        async def act() -> T:
            try:
                return await asyncio.wait_for(work(stream), timeout_s)
            except LOST as error:
                await self._drop()
                raise Unreachable(words(error)) from error

        try:
            return self._connecting.submit(act()).result(2 * timeout_s)
        except TimeoutError as error:
            raise Unreachable(words(error)) from error

    # ------------------------------------------------------------------ in the loop's thread

    async def _attend(self, server: str) -> None:
        try:
            await self._use(server)
        except StreamRefused as error:
            self._fail(f"{server}: {error}")
        except LOST as error:
            self._fail(f"{server}: {words(error)}")
        except KbprocError as error:
            self._fail(error.message, error)
        except Exception as error:
            _logger.exception("what %s said was not understood", server)
            self._fail(f"{server}: {words(error)}")

    async def _use(self, server: str) -> None:
        """Follows the stream over this server as long as both can be used."""
        self._connection = connection = await connected(server, self._settings.credentials)
        try:
            await check_server(connection, self._settings)
            stream = LogStream(connection, self._settings)
            self.last_seq = await self._checked_last_seq(stream)
            while connection.is_connected:
                self._show(stream)
                await stream.follow(self._node.arrived_seq, self._node.take)
                self.last_seq = await self._checked_last_seq(stream)
            self._fail(f"{server}: the connection was lost")
        finally:
            self._hide()
            await self._drop()

    async def _checked_last_seq(self, stream: LogStream) -> int:
        """Returns the stream's last seq. Raises store.corrupt for a stream that is not the one
        that the node has followed, once that is beyond doubt.
        """
        started = time.monotonic()
        while True:
            try:
                state = await stream.state()
                difference = await self._node.fork(stream, state)
            except StreamRefused as error:
                if not error.is_no_stream:
                    raise
                state, difference = (
                    StreamState(0, 1, False),
                    f"There is no stream {self._settings.name}",
                )
                if not self._node.arrived_seq:
                    raise _unfit(difference, "kbproc cluster init makes it.") from error
            if difference is None:
                self.damage = None
                return state.last_seq
            if time.monotonic() - started > DOUBT_S:
                break
            await asyncio.sleep(_PAUSE_S)
        self.damage = f"{difference}."
        raise KbprocError("store.corrupt", self.damage)

    async def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await close(connection)

    def _show(self, stream: LogStream) -> None:
        with self._changed:
            self.stream, self.refusal = stream, None
            self._changed.notify_all()

    def _hide(self) -> None:
        with self._changed:
            if self.stream is not None:
                self.stream, self._down_since = None, time.monotonic()

    def _fail(self, problem: str, refusal: KbprocError | None = None) -> None:
        with self._changed:
            self.problem, self.refusal = problem, refusal
            self._changed.notify_all()


async def check_server(connection: Client, settings: StreamSettings) -> None:
    """Raises store.incompatible for a server that can lose acknowledged records, and
    StreamRefused for one that does not say.

    No other server of the cluster may report that it does not sync; a server that is down reports
    nothing.
    """
    version = connection.connected_server_version
    if (version.major, version.minor, version.patch) < OLDEST:
        raise _unfit(
            f"The NATS server has version {version.major}.{version.minor}.{version.patch}",
            "Use nats-server 2.12.1 or later.",
        )
    if settings.unsafe_sync:
        return
    loop = asyncio.get_running_loop()
    requests = [loop.run_in_executor(None, _sync_of, url) for url in settings.monitor]
    reports = await asyncio.gather(*requests)
    for url, (_, syncs) in zip(settings.monitor, reports, strict=True):
        if syncs is False:
            raise _unfit(
                f"The NATS server at {url} does not sync what it acknowledges",
                "Set sync_interval: always in its jetstream block; unsafe_sync = true takes the "
                "loss of acknowledged writes into account.",
            )
    if (
        connection._server_info.get("server_id"),
        True,
    ) not in reports:  # nats-py has the id only in this private attribute
        if 0 < reports.count(_SILENT) < len(reports):
            raise StreamRefused(0, "it does not say whether it syncs what it acknowledges")
        raise _unfit(
            "It is unknown whether the NATS server syncs what it acknowledges",
            "Name the monitoring address of each server, http://HOST:8222, as monitor; or take the "
            "loss of acknowledged writes into account by unsafe_sync.",
        )


def _sync_of(url: str) -> tuple[str | None, bool | None]:
    """Returns the id of the server at this monitoring address, and whether it syncs every write.

    Both are None if the server gives no such report.
    """
    parts = urlsplit(url)
    connection_class = (
        http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    )
    try:
        connection = connection_class(parts.netloc, timeout=ANSWERS_S)
        with contextlib.closing(connection):
            connection.request("GET", "/varz")
            varz = msgspec.json.decode(connection.getresponse().read())
        return varz["server_id"], bool(varz["jetstream"]["config"].get("sync_always"))
    except (OSError, http.client.HTTPException, msgspec.DecodeError, KeyError, TypeError):
        return _SILENT


def _unfit(why: str, hint: str) -> KbprocError:
    return KbprocError("store.incompatible", f"{why}.", hint=hint, lasting=True)
