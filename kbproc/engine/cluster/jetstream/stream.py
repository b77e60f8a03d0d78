"""Speaks JetStream's protocol for one stream over one connection.

It knows the subjects, headers, error codes and JSON of JetStream; it publishes several records as
one, and follows the stream in order.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

import msgspec
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import NoRespondersError

from kbproc.engine.cluster.jetstream.connection import ANSWERS_S, LOST
from kbproc.engine.cluster.jetstream.purged import ErasedMessages
from kbproc.engine.cluster.jetstream.settings import StreamSettings
from kbproc.engine.cluster.jetstream.shelf import ObjectShelf

MOST_IN_A_BATCH = 1000
_MAKING_S = 15.0  # the servers elect a leader first
_HEARTBEAT_S = 0.5
_SILENT_S = 2.0
_NO_MESSAGE, _NO_STREAM = 10037, 10059
_BEHIND, _DOUBLE = 10071, 10201
_INCOMPLETE = 10176

_SPARE = 4096  # bytes of a message that are reserved for headers
_ELSEWHERE = "Kbproc-Body"  # header with the name of the message's bytes on the shelf
Take = Callable[[int, bytes], Awaitable[None]]


class StreamRefused(Exception):
    """The server's own error. `status`: a number as in HTTP."""

    def __init__(self, code: int, description: str, status: int = 400) -> None:
        super().__init__(description)
        self.code = code
        self._status = status

    @property
    def is_taken(self) -> bool:
        """True if another message has that seq already, or this very message has."""
        return self.code in {_BEHIND, _DOUBLE}

    @property
    def is_passing(self) -> bool:
        """True if the same request may succeed a moment later."""
        return self.is_taken or self._status >= 500 or self.code == _INCOMPLETE

    @property
    def is_no_stream(self) -> bool:
        return self.code == _NO_STREAM


class StreamMessage(NamedTuple):
    """A message to be published; its `key` is unique."""

    key: str
    data: bytes


class StoredMessage(NamedTuple):
    """A message as the leader holds it.

    `line`: its bytes. `body`: their name on the shelf if they lie there; `line` is None if the
    shelf lacks them.
    """

    line: bytes | None
    body: str | None = None


class StreamState(NamedTuple):
    """The stream's state.

    `replicas`: the number of servers that keep it. `is_open`: nodes can write. `has_gaps`: messages
    were erased.
    """

    last_seq: int
    replicas: int
    is_open: bool
    has_gaps: bool = False


class LogStream:
    """One stream; its methods raise StreamRefused, and the errors of the connection."""

    def __init__(self, connection: Client, settings: StreamSettings) -> None:
        self.connection = connection
        self._name = settings.name
        self._subject = settings.subject
        self._closed_subject = settings.closed_subject
        self._last_message_at = 0.0
        self.shelf = ObjectShelf(connection, settings.name, _MAKING_S)
        self.purged = ErasedMessages(ObjectShelf(connection, f"{settings.name}_purged", _MAKING_S))

    async def create(self, replicas: int, window_s: float = 600, *, is_open: bool = True) -> None:
        """Makes the stream. Raises StreamRefused, for an existing one with other settings as well.

        `window_s`: how long the server recognises repeated messages. `is_open`: see `admit`.
        """
        await self._ask(
            "STREAM.CREATE",
            {
                "name": self._name,
                "subjects": [self._subject if is_open else self._closed_subject],
                "storage": "file",
                "num_replicas": replicas,
                "retention": "limits",
                "discard": "new",
                "duplicate_window": int(window_s * 10**9),
                "allow_atomic": True,
                "allow_direct": False,  # a follower may lag behind
                "deny_purge": True,
            },
            _MAKING_S,
        )
        await self.shelf.create(replicas)

    async def delete(self) -> None:
        try:
            await self._ask("STREAM.DELETE", timeout_s=_MAKING_S)
        except StreamRefused as error:
            if not error.is_no_stream:
                raise

    async def admit(self, *, writers: bool) -> None:
        """Opens or closes the stream for writers; `publish` with `closed` fills a closed one."""
        config = (await self._ask("STREAM.INFO"))["config"]
        subject = self._subject if writers else self._closed_subject
        if config["subjects"] != [subject]:
            await self._ask("STREAM.UPDATE", {**config, "subjects": [subject]}, _MAKING_S)

    async def state(self) -> StreamState:
        info = await self._ask("STREAM.INFO")
        config = info["config"]
        is_open, state = config["subjects"] == [self._subject], info["state"]
        has_gaps = state["messages"] < state["last_seq"]
        return StreamState(state["last_seq"], config["num_replicas"], is_open, has_gaps)

    async def gaps(self) -> set[int]:
        """Returns the seqs of the messages that were erased."""
        info = await self._ask("STREAM.INFO", {"deleted_details": True}, _MAKING_S)
        first = info["state"]["first_seq"]
        return {*range(1, first), *(info["state"].get("deleted") or ())}

    async def message(self, seq: int) -> bytes | None:
        """Returns the leader's bytes of message `seq`, or the replacement of an erased one."""
        stored = await self.original(seq)
        line = None if stored is None else stored.line
        return line if line is not None else await self.purged.line(seq)

    async def original(self, seq: int) -> StoredMessage | None:
        """Returns message `seq` as the leader holds it; None if it has none."""
        import base64

        try:
            response = await self._ask("STREAM.MSG.GET", {"seq": seq})
        except StreamRefused as error:
            if error.code == _NO_MESSAGE:
                return None
            raise
        headers = base64.b64decode(response["message"].get("hdrs", "")).decode()
        header = next((line for line in headers.splitlines() if line.startswith(_ELSEWHERE)), None)
        if header is not None:
            name = header.partition(":")[2].strip()
            return StoredMessage(await self.shelf.get(name), name)
        return StoredMessage(base64.b64decode(response["message"].get("data", "")))

    async def _body(self, name: str, seq: int) -> bytes:
        return await self.shelf.get(name) or await self.purged.line(seq) or b""

    async def erase(self, seq: int) -> None:
        """Erases a message and its bytes; can be repeated."""
        try:
            await self._ask("STREAM.MSG.DELETE", {"seq": seq})
        except StreamRefused:
            if await self.original(seq) is not None:
                raise

    async def publish(
        self, lines: Sequence[StreamMessage], *, after_seq: int, batch: str, closed: bool = False
    ) -> int:
        """Publishes all messages right after `after_seq`, or none; returns the last one's seq.

        `batch`: an unused name. `closed`: publish to a stream that admits no writers.
        """
        subject = self._closed_subject if closed else self._subject
        for line in lines:
            if self._is_long(line):
                await self.shelf.put(line.key, line.data)
        *rest, last = lines
        for number, line in enumerate(rest, start=1):
            data, headers = self._message(line, after_seq if number == 1 else None)
            headers |= {"Nats-Batch-Id": batch, "Nats-Batch-Sequence": str(number)}
            await self.connection.publish(subject, data, headers=headers)
        data, headers = self._message(last, None if rest else after_seq)
        if rest:
            headers |= {"Nats-Batch-Id": batch, "Nats-Batch-Sequence": str(len(lines))}
            headers["Nats-Batch-Commit"] = "1"
        request = self.connection.request(subject, data, timeout=ANSWERS_S, headers=headers)
        try:
            seq: int = _result_of((await request).data)["seq"]
        except NoRespondersError:
            raise StreamRefused(0, "the stream takes no writes now", 503) from None
        return seq

    def _is_long(self, line: StreamMessage) -> bool:
        return len(line.data) > self.connection.max_payload - _SPARE

    def _message(self, line: StreamMessage, after_seq: int | None) -> tuple[bytes, dict[str, str]]:
        """Returns payload and headers of a message."""
        headers = {"Nats-Msg-Id": line.key}
        if after_seq is not None:
            headers["Nats-Expected-Last-Sequence"] = str(after_seq)
        if not self._is_long(line):
            return line.data, headers
        return b"", {**headers, _ELSEWHERE: line.key}

    async def follow(self, after_seq: int, take: Take) -> None:
        """Calls `take` for every message after `after_seq`, in order, or for its replacement.

        It returns once a message is missing, the server is silent or has fewer messages than the
        leader, or the connection is lost: then the caller follows again.
        """
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()
        expected = after_seq + 1

        async def on_message(message: Msg) -> None:
            if message.headers and message.headers.get("Status") == "100":
                self._last_message_at = loop.time()
                await self._keep_flowing(message)
                return
            self._last_message_at = math.inf  # `take` may last long, and that is no silence
            try:
                await deliver(message)
            finally:
                self._last_message_at = loop.time()

        async def deliver(message: Msg) -> None:
            nonlocal expected
            seq = _stream_seq(message.reply)
            while expected < seq and not ended.is_set():
                line = await self.purged.line(expected)
                if line is None:
                    ended.set()
                else:
                    await take(expected, line)
                    expected += 1
            if seq != expected:
                ended.set()
            if ended.is_set():
                return
            body = (message.headers or {}).get(_ELSEWHERE)
            await take(seq, message.data if body is None else await self._body(body, seq))
            expected += 1

        inbox = self.connection.new_inbox()
        subscription = await self.connection.subscribe(inbox, cb=on_message)
        stalled = loop.create_task(self._stalled(lambda: expected - 1))
        try:
            await self._consume(inbox, expected)
            self._last_message_at = loop.time()
            while not stalled.done() and self._is_alive(loop.time()):
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(ended.wait(), _HEARTBEAT_S)
                    return
        finally:
            stalled.cancel()
            if self.connection.is_connected:
                await subscription.unsubscribe()

    def _is_alive(self, now: float) -> bool:
        return self.connection.is_connected and now - self._last_message_at < _SILENT_S

    async def _stalled(self, delivered_seq: Callable[[], int]) -> None:
        """Returns once no message has come for a while though the leader has more.

        A server that can take no part in the stream any more sends the messages that it has, and
        then heartbeats for ever. `delivered_seq` returns the seq of the last message.
        """
        before, last_seq = -1, 0
        while (
            (seq := delivered_seq()) != before
            or seq >= last_seq
            or self._last_message_at == math.inf
        ):
            before = seq
            with contextlib.suppress(StreamRefused, *LOST):  # there may be no leader for a moment
                last_seq = (await self.state()).last_seq
            await asyncio.sleep(_SILENT_S)

    async def _consume(self, inbox: str, first_seq: int) -> None:
        await self._ask(
            "CONSUMER.CREATE",
            {
                "stream_name": self._name,
                "config": {
                    "deliver_subject": inbox,
                    "deliver_policy": "by_start_sequence",
                    "opt_start_seq": first_seq,
                    "ack_policy": "none",
                    "max_deliver": 1,
                    "flow_control": True,
                    "idle_heartbeat": int(_HEARTBEAT_S * 10**9),
                    "mem_storage": True,
                    "num_replicas": 1,
                    "inactive_threshold": 10 * 10**9,
                },
            },
        )

    async def _keep_flowing(self, message: Msg) -> None:
        """Answers flow control, because the server waits until its messages are taken."""
        stalled = (message.headers or {}).get("Nats-Consumer-Stalled")
        if message.reply or stalled:
            await self.connection.publish(message.reply or stalled or "")

    async def _ask(
        self, operation: str, body: dict[str, Any] | None = None, timeout_s: float = ANSWERS_S
    ) -> dict[str, Any]:
        payload = b"" if body is None else msgspec.json.encode(body)
        subject = f"$JS.API.{operation}.{self._name}"
        try:
            answer = await self.connection.request(subject, payload, timeout=timeout_s)
        except TimeoutError:
            raise TimeoutError(f"{operation} is not answered") from None
        return _result_of(answer.data)


def _result_of(data: bytes) -> dict[str, Any]:
    response: dict[str, Any] = msgspec.json.decode(data)
    if error := response.get("error"):
        status = error.get("code", 0)
        raise StreamRefused(error.get("err_code", 0), error.get("description", ""), status)
    return response


def _stream_seq(reply: str) -> int:
    """Returns SEQ of `$JS.ACK.STREAM.CONSUMER.DELIVERED.SEQ…`.

    Some servers put a domain and an account after `ACK`.
    """
    words = reply.split(".")
    return int(words[5] if len(words) == 9 else words[7])
