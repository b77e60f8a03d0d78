"""Compares a stream with the log of a sound node, and refills the stream from the log.

While it is refilled the stream admits no writers: a node that has the same records as the
half-filled stream would otherwise append to it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Iterable
from functools import partial
from typing import Literal, NamedTuple

import msgspec

from kbproc.engine.cluster.jetstream.link import check_server
from kbproc.engine.cluster.jetstream.making import ask, fill_stream
from kbproc.engine.cluster.jetstream.settings import StreamSettings
from kbproc.engine.cluster.jetstream.stream import LogStream, StreamRefused, StreamState
from kbproc.engine.log import record as records
from kbproc.engine.log.interface import Log
from kbproc.engine.log.record import START, Position, Record

Remedy = Literal["nothing", "append", "replace", "follow"]
_MOST_AHEAD = 1_000
_SILENT_S = 1.0
_AGAIN_S = 0.1


class Standing(NamedTuple):
    """A stream compared with a log.

    `stream`: None if there is none. `equal`: the last record that both hold, with all before it.
    `sound`: how far the stream can be followed.
    """

    log: Position
    stream: StreamState | None
    equal: Position
    sound: Position

    @property
    def remedy(self) -> Remedy:
        """The way to make both equal; `follow`: the stream is sound, and longer than the log."""
        last = 0 if self.stream is None else self.stream.last_seq
        if self.stream is None or self.equal.seq < min(last, self.log.seq):
            return "replace"
        if last > self.log.seq:
            return "follow" if self.sound.seq == last else "replace"
        return "append" if last < self.log.seq or not self.stream.is_open else "nothing"


def compare(settings: StreamSettings, log: Log) -> Standing:
    """Compares stream and log from end to end. Raises store.io, store.corrupt."""

    async def work(stream: LogStream) -> Standing:
        await check_server(stream.connection, settings)
        return await _compare(stream, log)

    return ask(settings, work)


def refill(
    settings: StreamSettings,
    log: Log,
    comparison: Standing,
    replicas: int | None,
    tell: Callable[[int], None],
) -> None:
    """Makes the stream hold the log's records; `tell` gets each seq reached. Raises store.io.

    An interrupted refill can be repeated. `replicas`: None keeps the number of the stream.
    """
    previous_copies = comparison.stream.replicas if comparison.stream is not None else None
    copies = replicas or previous_copies or settings.copies
    ask(settings, partial(_refill, log=log, comparison=comparison, copies=copies, tell=tell))


async def _compare(stream: LogStream, log: Log) -> Standing:
    try:
        state = await stream.state()
    except StreamRefused as error:
        if not error.is_no_stream:
            raise
        return Standing(log.head, None, START, START)
    own_records, is_equal = log.read(to_seq=log.head.seq), True
    equal = sound = START
    async with contextlib.aclosing(_lines(stream, state.last_seq)) as lines:
        async for line in lines:
            record = _decoded(line)
            if record is None or records.fault(record, sound.seq, sound.hash) is not None:
                break
            sound = record.position
            own_record = next(own_records, None) if is_equal else None
            is_equal = own_record is not None and own_record.position == sound
            equal = sound if is_equal else equal
    return Standing(log.head, state, equal, sound)


async def _lines(stream: LogStream, last_seq: int) -> AsyncGenerator[bytes]:
    """Yields messages from the first one on, up to a gap.

    Where a server has no more of them, the leader is asked for the next one.
    """
    seq = 0
    while seq < last_seq:
        async with contextlib.aclosing(_burst(stream, seq)) as burst:
            async for line in burst:
                seq += 1
                yield line
                if seq == last_seq:
                    return
        following = await stream.message(seq + 1)
        if following is None:
            return
        seq += 1
        yield following


async def _burst(stream: LogStream, after_seq: int) -> AsyncGenerator[bytes]:
    """Yields the messages after `after_seq`, until none comes for a second."""
    ahead = asyncio.Queue[bytes | None](_MOST_AHEAD)

    async def take(seq: int, line: bytes) -> None:
        await ahead.put(line)

    async def follow() -> None:
        try:
            await stream.follow(after_seq, take)
        finally:
            await ahead.put(None)

    following = asyncio.create_task(follow())
    try:
        with contextlib.suppress(TimeoutError):
            while line := await asyncio.wait_for(ahead.get(), _SILENT_S):
                yield line
    finally:
        await _end(following)


async def _end(task: asyncio.Task[None]) -> None:
    """Cancels the task until it has ended.

    One cancellation is not enough: the task may wait to put its end mark into a full queue, and
    Python 3.11's wait_for loses a cancellation that comes in the moment in which it is done.
    """
    while not task.done():
        task.cancel()
        await asyncio.wait([task], timeout=_AGAIN_S)
    if not task.cancelled():
        await task  # raises the task's own error


async def put_sources(stream: LogStream, sources: Iterable[tuple[str, bytes]]) -> int:
    """Stores the sources, by name, that the shelf lacks or has damaged; returns how many."""
    return sum([await stream.shelf.restore(name, data) for name, data in sources])


async def _refill(
    stream: LogStream, log: Log, comparison: Standing, copies: int, tell: Callable[[int], None]
) -> None:
    if comparison.remedy == "replace":
        if comparison.stream is not None:
            await stream.delete()
        await stream.create(copies, is_open=False)
    else:
        await stream.admit(writers=False)
    await fill_stream(stream, log, tell, closed=True)
    await stream.admit(writers=True)


def _decoded(line: bytes) -> Record | None:
    try:
        return records.decode(line)
    except msgspec.DecodeError:
        return None
