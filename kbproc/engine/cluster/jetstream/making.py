"""Makes, fills and inspects a stream for callers that have no shared log open.

Each call has a connection of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from functools import partial
from typing import TypeVar

from nats.aio.client import Client

from kbproc.base.errors import KbprocError
from kbproc.engine.cluster.jetstream.connection import LOST, using, words
from kbproc.engine.cluster.jetstream.settings import StreamSettings
from kbproc.engine.cluster.jetstream.stream import (
    MOST_IN_A_BATCH,
    LogStream,
    StreamMessage,
    StreamRefused,
)
from kbproc.engine.log.interface import Log
from kbproc.engine.log.record import Record, decode, encode

_PARCEL_BYTES = 8 << 20

T = TypeVar("T")


def ask(settings: StreamSettings, work: Callable[[LogStream], Awaitable[T]]) -> T:
    """Runs `work` with the first server that can be used. Raises store.io."""
    return asyncio.run(_ask(settings, work))


async def _ask(settings: StreamSettings, work: Callable[[LogStream], Awaitable[T]]) -> T:
    async def use(connection: Client) -> T:
        return await work(LogStream(connection, settings))

    why: Exception = ConnectionError("no server is named")
    for server in settings.servers:
        try:
            return await using(server, settings.credentials, use)
        except (*LOST, StreamRefused) as error:
            why = error
    raise unusable(settings.servers, words(why))


def unusable(servers: Iterable[str], why: str) -> KbprocError:
    """Returns the error for servers none of which can be used."""
    return KbprocError(
        "store.io",
        f"None of {', '.join(servers)} can be used: {why}.",
        hint="Check the addresses, the credentials, and that the servers run with JetStream.",
    )


def fill(settings: StreamSettings, log: Log, *, tell: Callable[[int], None]) -> None:
    """Publishes the log's records that the stream lacks, in order; `tell` gets each seq reached.

    The log must not be written to at the same time. Raises store.io, store.corrupt for a stream
    that holds other records.
    """
    ask(settings, partial(fill_stream, log=log, tell=tell))


def compare(settings: StreamSettings, log: Log) -> None:
    """Checks that the stream holds the log's last record. Raises store.io, resource.conflict."""
    ask(settings, partial(_compare, log=log, seq=log.head.seq))


async def fill_stream(
    stream: LogStream, log: Log, tell: Callable[[int], None], *, closed: bool = False
) -> None:
    """Fills the stream; see `fill`. `closed`: see LogStream.publish."""
    last = (await stream.state()).last_seq
    await _compare(stream, log, last)
    for records in _parcels(log.read(last, log.head.seq)):
        after = records[0].seq - 1
        if records[-1].seq - after != len(records):
            raise _differs("A repaired log, which lacks records, can't be published")
        lines = [StreamMessage(record.hash, encode(record)) for record in records]
        batch = records[0].hash
        last = await stream.publish(lines, after_seq=after, batch=batch, closed=closed)
        tell(last)
    if last != log.head.seq:
        raise _differs(f"The stream holds {last} records, and the log {log.head.seq}")
    await _compare(stream, log, last)


async def _compare(stream: LogStream, log: Log, seq: int) -> None:
    """Raises resource.conflict unless stream and log hold the same record `seq`."""
    if seq:
        line, own = await stream.message(seq), next(log.read(seq - 1, seq), None)
        if line is None or own is None or decode(line).position != own.position:
            raise _differs("The stream holds records that are not this store's")


def _parcels(records: Iterable[Record]) -> Iterator[list[Record]]:
    parcel, size = list[Record](), 0
    for record in records:
        parcel.append(record)
        size += len(record.events)
        if len(parcel) == MOST_IN_A_BATCH or size > _PARCEL_BYTES:
            yield parcel
            parcel, size = [], 0
    if parcel:
        yield parcel


def _differs(why: str) -> KbprocError:
    return KbprocError(
        "resource.conflict",
        f"{why}.",
        hint="Choose another name for the stream, or join the one that is there with a new store.",
    )
