"""A stream beside the log of a node that is whole: where they part, and filling the stream again.

Owns: reading a whole stream against a log, and making the one hold what the other holds.
Refuses to know: who wants it, and what the node's own stream is used for meanwhile.

While it is filled the stream admits no writers: a node that has as much as is there by then would
go on from there.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from kbproc.log import record as records
from kbproc.log.interface import Log
from kbproc.log.jetstream.link import check_server
from kbproc.log.jetstream.making import ask, fill_stream
from kbproc.log.jetstream.settings import StreamSettings
from kbproc.log.jetstream.stream import Refused, State, Stream
from kbproc.log.record import START, Position, Record

Remedy = Literal["nothing", "append", "replace", "follow"]
_MOST_AHEAD = 1_000
_SILENT_S = 1.0


class Standing(NamedTuple):
    """A stream beside a log. `stream`: None if there is none. `equal`: the last record that both
    hold, with all before it. `sound`: how far the stream can be followed.
    """

    log: Position
    stream: State | None
    equal: Position
    sound: Position

    @property
    def remedy(self) -> Remedy:
        """`follow`: the stream is whole, and holds more than the log."""
        last = 0 if self.stream is None else self.stream.last_seq
        if self.stream is None or self.equal.seq < min(last, self.log.seq):
            return "replace"
        if last > self.log.seq:
            return "follow" if self.sound.seq == last else "replace"
        return "append" if last < self.log.seq or not self.stream.is_open else "nothing"


def compare(settings: StreamSettings, log: Log) -> Standing:
    """Reads all of both. Raises store.io, store.corrupt."""

    async def work(stream: Stream) -> Standing:
        await check_server(stream.connection, settings)
        return await _compare(stream, log)

    return ask(settings, work)


def refill(
    settings: StreamSettings,
    log: Log,
    found: Standing,
    replicas: int | None,
    tell: Callable[[int], None],
) -> None:
    """What is cut off can be begun anew. `tell` gets how far it has come. Raises store.io."""
    kept = found.stream.replicas if found.stream is not None else None
    copies = replicas or kept or settings.copies
    ask(settings, partial(_refill, log=log, found=found, copies=copies, tell=tell))


async def _compare(stream: Stream, log: Log) -> Standing:
    try:
        state = await stream.state()
    except Refused as error:
        if not error.is_no_stream:
            raise
        return Standing(log.head, None, START, START)
    own, is_equal = log.read(to_seq=log.head.seq), True
    equal = sound = START
    async with contextlib.aclosing(_lines(stream, state.last_seq)) as lines:
        async for line in lines:
            record = _decoded(line)
            if record is None or records.fault(record, *sound) is not None:
                break
            sound = record.position
            mine = next(own, None) if is_equal else None
            is_equal = mine is not None and mine.position == sound
            equal = sound if is_equal else equal
    return Standing(log.head, state, equal, sound)


async def _lines(stream: Stream, last_seq: int) -> AsyncGenerator[bytes]:
    """From the first message on, as far as they come one after the other. Where a server has no
    more of them, the one that leads is asked.
    """
    seq = 0
    while seq < last_seq:
        async with contextlib.aclosing(_told(stream, seq)) as told:
            async for line in told:
                seq += 1
                yield line
                if seq == last_seq:
                    return
        following = await stream.message(seq + 1)
        if following is None:
            return
        seq += 1
        yield following


async def _told(stream: Stream, after_seq: int) -> AsyncGenerator[bytes]:
    """Until none comes for a moment."""
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
        following.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await following


async def put_sources(stream: Stream, paths: Sequence[Path]) -> int:
    """Those that are not there whole; returns how many."""
    return sum([await stream.shelf.restore(path.name, path.read_bytes()) for path in paths])


async def _refill(
    stream: Stream, log: Log, found: Standing, copies: int, tell: Callable[[int], None]
) -> None:
    if found.remedy == "replace":
        if found.stream is not None:
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
