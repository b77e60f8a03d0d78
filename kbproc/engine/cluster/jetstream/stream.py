"""One stream over one connection: what is asked of the server, and what it says.

Owns: subjects, headers, error codes and JSON of JetStream; publishing several records as one;
following the stream in order.
Refuses to know: what a record is, which connection is used when, and threads: it lives in the
thread of its loop.
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

from kbproc.log.jetstream.connection import ANSWERS_S, LOST
from kbproc.log.jetstream.purged import Purged
from kbproc.log.jetstream.settings import StreamSettings
from kbproc.log.jetstream.shelf import Shelf

MOST_IN_A_BATCH = 1000
_MAKING_S = 15.0  # several servers agree on who leads
_HEARTBEAT_S = 0.5
_SILENT_S = 2.0
_NO_MESSAGE, _NO_STREAM = 10037, 10059
_BEHIND, _DOUBLE = 10071, 10201
_INCOMPLETE = 10176

_SPARE = 4096  # bytes of a message that headers take
_ELSEWHERE = "Kbproc-Body"  # names what lies on the shelf in the place of a message's bytes
Take = Callable[[int, bytes], Awaitable[None]]


class Refused(Exception):
    """The server's own error. `status`: as in HTTP."""

    def __init__(self, code: int, says: str, status: int = 400) -> None:
        super().__init__(says)
        self.code = code
        self._status = status

    @property
    def is_taken(self) -> bool:
        """Another message has that place, or this very message has."""
        return self.code in {_BEHIND, _DOUBLE}

    @property
    def is_passing(self) -> bool:
        """The same may be taken a moment later."""
        return self.is_taken or self._status >= 500 or self.code == _INCOMPLETE

    @property
    def is_no_stream(self) -> bool:
        return self.code == _NO_STREAM


class Line(NamedTuple):
    """A message to be published; `key` tells it from every other."""

    key: str
    data: bytes


class Original(NamedTuple):
    """A message. `line`: its bytes; None if the shelf is to have them under `body`, and has not."""

    line: bytes | None
    body: str | None = None


class State(NamedTuple):
    """`replicas`: so many servers keep it. `is_open`: nodes can write. `has_gaps`: some went."""

    last_seq: int
    replicas: int
    is_open: bool
    has_gaps: bool = False


class Stream:
    """Raises Refused, and whatever the connection raises."""

    def __init__(self, connection: Client, settings: StreamSettings) -> None:
        self.connection = connection
        self._name = settings.name
        self._subject = settings.subject
        self._closed_subject = settings.closed_subject
        self._heard = 0.0
        self.shelf = Shelf(connection, settings.name, _MAKING_S)
        self.purged = Purged(Shelf(connection, f"{settings.name}_purged", _MAKING_S))

    async def create(self, replicas: int, window_s: float = 600, *, is_open: bool = True) -> None:
        """Raises Refused for one that is there with other settings, too.

        `window_s`: for how long the server knows a message again. `is_open`: see `admit`.
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
        except Refused as error:
            if not error.is_no_stream:
                raise

    async def admit(self, *, writers: bool) -> None:
        """Nodes read a stream that admits no writers, and `publish` may fill it `closed`."""
        config = (await self._ask("STREAM.INFO"))["config"]
        subject = self._subject if writers else self._closed_subject
        if config["subjects"] != [subject]:
            await self._ask("STREAM.UPDATE", {**config, "subjects": [subject]}, _MAKING_S)

    async def state(self) -> State:
        found = await self._ask("STREAM.INFO")
        config = found["config"]
        is_open, state = config["subjects"] == [self._subject], found["state"]
        has_gaps = state["messages"] < state["last_seq"]
        return State(state["last_seq"], config["num_replicas"], is_open, has_gaps)

    async def gaps(self) -> set[int]:
        """Numbers of messages that are not there any more."""
        found = await self._ask("STREAM.INFO", {"deleted_details": True}, _MAKING_S)
        first = found["state"]["first_seq"]
        return {*range(1, first), *(found["state"].get("deleted") or ())}

    async def message(self, seq: int) -> bytes | None:
        """What the leader holds there, or what stands in its place."""
        found = await self.original(seq)
        line = None if found is None else found.line
        return line if line is not None else await self.purged.line(seq)

    async def original(self, seq: int) -> Original | None:
        """What the leader holds there."""
        import base64

        try:
            found = await self._ask("STREAM.MSG.GET", {"seq": seq})
        except Refused as error:
            if error.code == _NO_MESSAGE:
                return None
            raise
        said = base64.b64decode(found["message"].get("hdrs", "")).decode()
        body = next((line for line in said.splitlines() if line.startswith(_ELSEWHERE)), None)
        if body is not None:
            name = body.partition(":")[2].strip()
            return Original(await self.shelf.get(name), name)
        return Original(base64.b64decode(found["message"].get("data", "")))

    async def _body(self, name: str, seq: int) -> bytes:
        return await self.shelf.get(name) or await self.purged.line(seq) or b""

    async def erase(self, seq: int) -> None:
        """Its bytes, too; however often it is called."""
        try:
            await self._ask("STREAM.MSG.DELETE", {"seq": seq})
        except Refused:
            if await self.original(seq) is not None:
                raise

    async def publish(
        self, lines: Sequence[Line], *, after_seq: int, batch: str, closed: bool = False
    ) -> int:
        """All of them right after `after_seq`, or none; returns the last one's seq.

        `batch` is a name that nothing was published under. `closed`: to a stream that admits no
        writers.
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
            seq: int = _told((await request).data)["seq"]
        except NoRespondersError:
            raise Refused(0, "the stream takes no writes now", 503) from None
        return seq

    def _is_long(self, line: Line) -> bool:
        return len(line.data) > self.connection.max_payload - _SPARE

    def _message(self, line: Line, after_seq: int | None) -> tuple[bytes, dict[str, str]]:
        """What is sent, and its headers."""
        headers = {"Nats-Msg-Id": line.key}
        if after_seq is not None:
            headers["Nats-Expected-Last-Sequence"] = str(after_seq)
        if not self._is_long(line):
            return line.data, headers
        return b"", {**headers, _ELSEWHERE: line.key}

    async def follow(self, after_seq: int, take: Take) -> None:
        """Every message after `after_seq`, in order, as it comes, or what stands in its place. Ends
        once one is missing, the server is silent or has less than the one that leads, or the
        connection is lost: then whoever follows begins anew.
        """
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()
        expected = after_seq + 1

        async def heard(message: Msg) -> None:
            if message.headers and message.headers.get("Status") == "100":
                self._heard = loop.time()
                await self._keep_flowing(message)
                return
            self._heard = math.inf  # it is taken, however long that takes
            try:
                await arrived(message)
            finally:
                self._heard = loop.time()

        async def arrived(message: Msg) -> None:
            nonlocal expected
            seq = _place(message.reply)
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
        subscription = await self.connection.subscribe(inbox, cb=heard)
        stalled = loop.create_task(self._stalled(lambda: expected - 1))
        try:
            await self._consume(inbox, expected)
            self._heard = loop.time()
            while not stalled.done() and self._is_heard(loop.time()):
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(ended.wait(), _HEARTBEAT_S)
                    return
        finally:
            stalled.cancel()
            if self.connection.is_connected:
                await subscription.unsubscribe()

    def _is_heard(self, now: float) -> bool:
        return self.connection.is_connected and now - self._heard < _SILENT_S

    async def _stalled(self, came: Callable[[], int]) -> None:
        """Until nothing has come for a while though the one that leads has more: a server that
        can take no part in the stream any more sends what it has, and then heartbeats for ever.

        `came`: the seq of the last message.
        """
        before, last_seq = -1, 0
        while (seq := came()) != before or seq >= last_seq or self._heard == math.inf:
            before = seq
            with contextlib.suppress(Refused, *LOST):  # nobody leads for a moment
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
        """The server waits until what it has sent is taken."""
        stalled = (message.headers or {}).get("Nats-Consumer-Stalled")
        if message.reply or stalled:
            await self.connection.publish(message.reply or stalled or "")

    async def _ask(
        self, what: str, said: dict[str, Any] | None = None, timeout_s: float = ANSWERS_S
    ) -> dict[str, Any]:
        asked = b"" if said is None else msgspec.json.encode(said)
        subject = f"$JS.API.{what}.{self._name}"
        try:
            answer = await self.connection.request(subject, asked, timeout=timeout_s)
        except TimeoutError:
            raise TimeoutError(f"{what} is not answered") from None
        return _told(answer.data)


def _told(data: bytes) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.json.decode(data)
    if wrong := found.get("error"):
        status = wrong.get("code", 0)
        raise Refused(wrong.get("err_code", 0), wrong.get("description", ""), status)
    return found


def _place(reply: str) -> int:
    """Of `$JS.ACK.STREAM.CONSUMER.DELIVERED.SEQ…`, which may have a domain and an account first."""
    words = reply.split(".")
    return int(words[5] if len(words) == 9 else words[7])
