"""A node's connection to its stream, kept up in a thread of its own.

Owns: what a server and a stream must be before they are used, what is told while there is none, and
following the stream from where the node is.
Refuses to know: what a record is, and what becomes of what arrives.

Nothing of the thread's loop is used by another thread but `run`.
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
from kbproc.log.jetstream.connection import ANSWERS_S, LOST, Connecting, close, connected, words
from kbproc.log.jetstream.settings import StreamSettings
from kbproc.log.jetstream.stream import Refused, State, Stream

OLDEST = (2, 12, 1)
_PAUSE_S = 0.1
# A new leader may not know yet what the old one has acknowledged.
_DOUBT_S = 5.0
_SILENT = (None, None)
_logger = logging.getLogger(__name__)

T = TypeVar("T")


class Unreachable(Exception):
    """Nobody knows whether the server has done what it was asked."""


class Node(Protocol):
    """Whose connection it is."""

    @property
    def arrived_seq(self) -> int:
        """The last message's that it has."""

    async def fork(self, stream: Stream, state: State) -> str | None:
        """What is wrong with the stream by what this node holds; None if nothing is."""

    async def take(self, seq: int, line: bytes) -> None:
        """The next message."""


class Link:
    """From `start` to `close`. `stream` is None while there is no connection that may be used.

    `problem`: why there is none. `damage`: the stream is not what this node has seen of it.
    """

    def __init__(self, settings: StreamSettings, node: Node) -> None:
        self.problem = "no server has been asked yet"
        self.damage: str | None = None
        self.refusal: KbprocError | None = None
        self.last_seq = 0
        self.stream: Stream | None = None
        self._settings = settings
        self._node = node
        self._down_since = time.monotonic()
        self._changed = threading.Condition()
        self._connection: Client | None = None
        self._connecting = Connecting(settings, self._attend, name="jetstream", pause_s=_PAUSE_S)

    def start(self) -> None:
        self._connecting.start()

    def close(self) -> None:
        self._connecting.close(2 * ANSWERS_S)

    def wait(self, patience_s: float) -> bool:
        """Until there is a connection, or it is clear that there will be none."""
        with self._changed:
            self._changed.wait_for(self._is_decided, max(patience_s, 0))
            return self.stream is not None

    @property
    def down_s(self) -> float:
        """For how long there has been none; of no meaning while there is one."""
        return time.monotonic() - self._down_since

    def _is_decided(self) -> bool:
        return self.stream is not None or self.refusal is not None or self.damage is not None

    def run(self, work: Callable[[Stream], Awaitable[T]], timeout_s: float = 2 * ANSWERS_S) -> T:
        """In the loop. Raises Unreachable, Refused."""
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
        except Refused as error:
            self._fail(f"{server}: {error}")
        except LOST as error:
            self._fail(f"{server}: {words(error)}")
        except KbprocError as error:
            self._fail(error.message, error)
        except Exception as error:
            _logger.exception("what %s said was not understood", server)
            self._fail(f"{server}: {words(error)}")

    async def _use(self, server: str) -> None:
        """As long as it can be used."""
        self._connection = connection = await connected(server, self._settings.credentials)
        try:
            await check_server(connection, self._settings)
            stream = Stream(connection, self._settings)
            self.last_seq = await self._sound(stream)
            while connection.is_connected:
                self._show(stream)
                await stream.follow(self._node.arrived_seq, self._node.take)
                self.last_seq = await self._sound(stream)
            self._fail(f"{server}: the connection was lost")
        finally:
            self._lower()
            await self._drop()

    async def _sound(self, stream: Stream) -> int:
        """Its last seq. Raises store.corrupt for a stream that is not the one that the node has
        followed, once that is beyond doubt.
        """
        begun = time.monotonic()
        while True:
            try:
                state = await stream.state()
                wrong = await self._node.fork(stream, state)
            except Refused as error:
                if not error.is_no_stream:
                    raise
                state, wrong = State(0, 1, False), f"There is no stream {self._settings.name}"
                if not self._node.arrived_seq:
                    raise _unfit(wrong, "kbproc cluster init makes it.") from error
            if wrong is None:
                self.damage = None
                return state.last_seq
            if time.monotonic() - begun > _DOUBT_S:
                break
            await asyncio.sleep(_PAUSE_S)
        self.damage = f"{wrong}."
        raise KbprocError("store.corrupt", self.damage)

    async def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await close(connection)

    def _show(self, stream: Stream) -> None:
        with self._changed:
            self.stream, self.refusal = stream, None
            self._changed.notify_all()

    def _lower(self) -> None:
        with self._changed:
            if self.stream is not None:
                self.stream, self._down_since = None, time.monotonic()

    def _fail(self, problem: str, refusal: KbprocError | None = None) -> None:
        with self._changed:
            self.problem, self.refusal = problem, refusal
            self._changed.notify_all()


async def check_server(connection: Client, settings: StreamSettings) -> None:
    """Raises store.incompatible for one that can lose what it has acknowledged, Refused for one
    that does not say.

    Of the others none may say that it does not sync; one that is down says nothing.
    """
    found = connection.connected_server_version
    if (found.major, found.minor, found.patch) < OLDEST:
        raise _unfit(
            f"The NATS server has version {found.major}.{found.minor}.{found.patch}",
            "Use nats-server 2.12.1 or later.",
        )
    if settings.unsafe_sync:
        return
    loop = asyncio.get_running_loop()
    asked = [loop.run_in_executor(None, _sync_of, url) for url in settings.monitor]
    told = await asyncio.gather(*asked)
    for url, (_, syncs) in zip(settings.monitor, told, strict=True):
        if syncs is False:
            raise _unfit(
                f"The NATS server at {url} does not sync what it acknowledges",
                "Set sync_interval: always in its jetstream block; unsafe_sync = true takes the "
                "loss of acknowledged writes into account.",
            )
    if (
        connection._server_info.get("server_id"),
        True,
    ) not in told:  # nats-py tells it nowhere else
        if 0 < told.count(_SILENT) < len(told):
            raise Refused(0, "it does not say whether it syncs what it acknowledges")
        raise _unfit(
            "Nobody knows whether the NATS server syncs what it acknowledges",
            "Name the monitoring address of each server in store.toml, "
            '[log] monitor = ["http://…"]; unsafe_sync = true does without.',
        )


def _sync_of(url: str) -> tuple[str | None, bool | None]:
    """The id of the server at this monitoring address, and whether it syncs every write."""
    parts = urlsplit(url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    try:
        connection = kind(parts.netloc, timeout=ANSWERS_S)
        with contextlib.closing(connection):
            connection.request("GET", "/varz")
            found = msgspec.json.decode(connection.getresponse().read())
        return found["server_id"], bool(found["jetstream"]["config"].get("sync_always"))
    except (OSError, http.client.HTTPException, msgspec.DecodeError, KeyError, TypeError):
        return _SILENT


def _unfit(why: str, hint: str) -> KbprocError:
    return KbprocError("store.incompatible", f"{why}.", hint=hint, lasting=True)
