"""Keeps the replacements of messages that were erased from a stream.

The replacements are records without their text. One object on a shelf holds all of them, and only
the newest object counts; its name begins with the seq of the record up to which it is complete.
The object is written before a message is erased. So every seq of a stream has a record, and a
message that is missing from both is damage. An older object may hold text that was erased since,
so it is deleted.
"""

from __future__ import annotations

import asyncio

from kbproc.base.hashes import blake2b
from kbproc.engine.cluster.jetstream.shelf import ObjectShelf
from kbproc.engine.log import record as records

_READS_S = 60.0


class ErasedMessages:
    """The replacements as one connection sees them. `lines`: seq → line at the last `refresh`."""

    def __init__(self, shelf: ObjectShelf) -> None:
        self.shelf = shelf
        self.lines: dict[int, bytes] = {}
        self._name = ""

    @property
    def to_seq(self) -> int:
        """The seq up to which the replacements are complete; 0 if nothing was ever erased."""
        return int(self._name[:12] or 0)

    async def line(self, seq: int) -> bytes | None:
        """Returns the replacement of message `seq`; None if no node has erased the message."""
        return self.lines.get(seq) or (await self.refresh()).get(seq)

    async def refresh(self) -> dict[int, bytes]:
        names = await self.shelf.names()
        newest = names[-1] if names else ""
        while newest != self._name:
            data = await asyncio.wait_for(self.shelf.get(newest), _READS_S) if newest else b""
            if data is not None:
                self.lines = {records.seq_of(line) or 0: line for line in data.splitlines()}
                self._name = newest
            names = await self.shelf.names()  # a newer one may have taken its place
            newest = names[-1] if names else ""
        return self.lines

    async def put(self, lines: dict[int, bytes], to_seq: int, replicas: int) -> None:
        data = b"".join(line + b"\n" for _, line in sorted(lines.items()))
        if not self._name:
            await self.shelf.create(replicas)
        await self.shelf.put(f"{to_seq:012d}-{blake2b(data, digest_size=8).hexdigest()}", data)
        await self.refresh()

    async def tidy(self) -> None:
        """Erases all objects but the newest."""
        for name in (await self.shelf.names())[:-1]:
            await self.shelf.erase(name)
