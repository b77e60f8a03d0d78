"""Erases texts from a stream and its shelves that a node's log does not hold any more.

The replacement of a message is stored before the message is erased.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection

from msgspec import UNSET

from kbproc.base.errors import KbprocError
from kbproc.base.failpoints import reach
from kbproc.engine.cluster.jetstream.stream import LogStream
from kbproc.engine.log import record as records
from kbproc.engine.log.interface import Log

_AT_ONCE = 32


async def erase(stream: LogStream, log: Log, sources: Collection[str], to_seq: int) -> None:
    """Erases messages whose text `log` has purged, and these sources, from stream and shelves.

    `to_seq`: up to there the log holds no text that was purged. The call can be repeated, and
    several nodes may make it at the same time. Raises store.corrupt for a stream of other
    records.
    """
    for name in sources:
        await stream.shelf.erase(name)
    redacted = {
        record.seq: records.encode(record)
        for record in log.read(to_seq=log.head.seq)
        if record.check is not UNSET and record.lost is UNSET
    }
    shelved, gaps = dict(await stream.purged.refresh()), await stream.gaps()
    if stream.purged.to_seq <= to_seq:
        originals = await _originals(
            stream, {s: line for s, line in redacted.items() if s not in gaps}
        )
        erased_seqs = gaps & (redacted.keys() | shelved.keys())
        # At the same purge the shelved lines win, since their node may have known more. Otherwise
        # the lines of the later purge win, since they hold less text.
        preferred, fallback = (
            (shelved, redacted) if stream.purged.to_seq == to_seq else (redacted, shelved)
        )
        replacements = {
            seq: preferred.get(seq) or fallback[seq] for seq in erased_seqs | originals.keys()
        }
        if replacements != shelved and replacements:
            await stream.purged.put(replacements, to_seq, (await stream.state()).replicas)
        reach("shared.shelved")
        await _each(originals, lambda seq: _remove(stream, seq, originals[seq]))
    await stream.purged.tidy()
    reach("shared.erased")


async def _originals(stream: LogStream, redacted: dict[int, bytes]) -> dict[int, str | None]:
    """Returns seq → name on the shelf (or None) of the messages that differ from `redacted`."""
    bodies: dict[int, str | None] = {}

    async def look(seq: int) -> None:
        stored, line = await stream.original(seq), redacted[seq]
        if stored is None or stored.line == line:
            return
        if stored.line is not None and (
            records.decode(stored.line).position != records.decode(line).position
        ):
            raise KbprocError(
                "store.corrupt", f"The stream does not hold record {seq} as this node."
            )
        bodies[seq] = stored.body

    await _each(redacted, look)
    return bodies


async def _remove(stream: LogStream, seq: int, body: str | None) -> None:
    """Erases a message, its bytes on the shelf first: without them it reads as erased."""
    if body is not None:
        await stream.shelf.erase(body)
    await stream.erase(seq)


async def _each(seqs: Collection[int], act: Callable[[int], Awaitable[None]]) -> None:
    """Calls `act` for each seq, up to 32 at a time."""
    remaining = list(seqs)
    for first in range(0, len(remaining), _AT_ONCE):
        await asyncio.gather(*map(act, remaining[first : first + _AT_ONCE]))
