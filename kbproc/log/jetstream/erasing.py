"""Erasing from a stream and its shelves what a node's log does not hold any more.

Owns: finding it, and the order in which it goes: first what stands in its place is there.
Refuses to know: why a record has no text.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection

from msgspec import UNSET

from kbproc.base.errors import KbprocError
from kbproc.base.failpoints import reach
from kbproc.log import record as records
from kbproc.log.interface import Log
from kbproc.log.jetstream.stream import Stream

_AT_ONCE = 32


async def erase(stream: Stream, log: Log, sources: Collection[str], to_seq: int) -> None:
    """Whatever `log` holds without its text, and these sources, leaves the stream and its shelves.

    `to_seq`: up to there the log holds no text that was purged. It may be done again, and by
    several at the same time. Raises store.corrupt for a stream of other records.
    """
    for name in sources:
        await stream.shelf.erase(name)
    bare = {
        record.seq: records.encode(record)
        for record in log.read(to_seq=log.head.seq)
        if record.check is not UNSET and record.lost is UNSET
    }
    known, gaps = dict(await stream.purged.refresh()), await stream.gaps()
    if stream.purged.to_seq <= to_seq:
        still_there = await _originals(
            stream, {s: line for s, line in bare.items() if s not in gaps}
        )
        gone = gaps & (bare.keys() | known.keys())
        # Whoever was there first may have known more; whoever knows a later purge has less text.
        best, other = (known, bare) if stream.purged.to_seq == to_seq else (bare, known)
        stands = {seq: best.get(seq) or other[seq] for seq in gone | still_there.keys()}
        if stands != known and stands:
            await stream.purged.put(stands, to_seq, (await stream.state()).replicas)
        reach("shared.shelved")
        await _each(still_there, lambda seq: _remove(stream, seq, still_there[seq]))
    await stream.purged.tidy()
    reach("shared.erased")


async def _originals(stream: Stream, bare: dict[int, bytes]) -> dict[int, str | None]:
    """Numbers of messages that hold something else than this; and where their bytes lie."""
    found: dict[int, str | None] = {}

    async def look(seq: int) -> None:
        there, line = await stream.original(seq), bare[seq]
        if there is None or there.line == line:
            return
        if there.line is not None and (
            records.decode(there.line).position != records.decode(line).position
        ):
            raise KbprocError(
                "store.corrupt", f"The stream does not hold record {seq} as this node."
            )
        found[seq] = there.body

    await _each(bare, look)
    return found


async def _remove(stream: Stream, seq: int, body: str | None) -> None:
    """A message whose bytes are gone already is read as one that is erased."""
    if body is not None:
        await stream.shelf.erase(body)
    await stream.erase(seq)


async def _each(seqs: Collection[int], act: Callable[[int], Awaitable[None]]) -> None:
    """Some at the same time."""
    listed = list(seqs)
    for first in range(0, len(listed), _AT_ONCE):
        await asyncio.gather(*map(act, listed[first : first + _AT_ONCE]))
