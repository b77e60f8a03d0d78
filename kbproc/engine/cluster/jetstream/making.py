"""Making a stream, filling it and looking at it, for whoever has no shared log open.

Owns: one connection for one question.
Refuses to know: why it is asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from functools import partial
from typing import TypeVar

from nats.aio.client import Client

from kbproc.base.errors import KbprocError
from kbproc.log.interface import Log
from kbproc.log.jetstream.connection import LOST, using, words
from kbproc.log.jetstream.settings import StreamSettings
from kbproc.log.jetstream.stream import MOST_IN_A_BATCH, Line, Refused, Stream
from kbproc.log.record import Record, decode, encode

_PARCEL_BYTES = 8 << 20

T = TypeVar("T")


def ask(settings: StreamSettings, work: Callable[[Stream], Awaitable[T]]) -> T:
    """Of the first server that answers. Raises store.io."""
    return asyncio.run(_ask(settings, work))


async def _ask(settings: StreamSettings, work: Callable[[Stream], Awaitable[T]]) -> T:
    async def use(connection: Client) -> T:
        return await work(Stream(connection, settings))

    why: Exception = ConnectionError("no server is named")
    for server in settings.servers:
        try:
            return await using(server, settings.credentials, use)
        except (*LOST, Refused) as error:
            why = error
    raise KbprocError(
        "store.io",
        f"None of {', '.join(settings.servers)} can be used: {words(why)}.",
        hint="Check the addresses, and that the servers run with JetStream.",
    )


def fill(settings: StreamSettings, log: Log, *, tell: Callable[[int], None]) -> None:
    """Publishes what the stream lacks of the log, in order; `tell` gets how far it has come.

    Nobody writes to the log meanwhile. Raises store.io, store.corrupt for a stream that holds
    other records.
    """
    ask(settings, partial(fill_stream, log=log, tell=tell))


def compare(settings: StreamSettings, log: Log) -> None:
    """The stream holds the log's last record. Raises store.io, resource.conflict."""
    ask(settings, partial(_compare, log=log, seq=log.head.seq))


async def fill_stream(
    stream: Stream, log: Log, tell: Callable[[int], None], *, closed: bool = False
) -> None:
    """See `fill`; `closed`: see Stream.publish."""
    last = (await stream.state()).last_seq
    await _compare(stream, log, last)
    for records in _parcels(log.read(last, log.head.seq)):
        after = records[0].seq - 1
        if records[-1].seq - after != len(records):
            raise _differs("A repaired log, which lacks records, can't be published")
        lines = [Line(record.hash, encode(record)) for record in records]
        batch = records[0].hash
        last = await stream.publish(lines, after_seq=after, batch=batch, closed=closed)
        tell(last)
    if last != log.head.seq:
        raise _differs(f"The stream holds {last} records, and the log {log.head.seq}")
    await _compare(stream, log, last)


async def _compare(stream: Stream, log: Log, seq: int) -> None:
    """What the stream ends with is a record of the log."""
    if seq:
        line, own = await stream.message(seq), next(log.read(seq - 1, seq), None)
        if line is None or own is None or decode(line).position != own.position:
            raise _differs("The stream holds records that are not this store's")


def _parcels(found: Iterable[Record]) -> Iterator[list[Record]]:
    parcel, size = list[Record](), 0
    for record in found:
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
