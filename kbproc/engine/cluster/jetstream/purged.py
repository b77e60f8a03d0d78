"""What stands in the place of messages that were erased from a stream.

Owns: the shelf of records without their text, of which only the newest object counts.
Refuses to know: which messages are erased, and why. It lives in the thread of its loop.

One object holds all of them; its name begins with the number of the record up to which it is
complete. It is there before a message goes, so every number of a stream has a record, and a message
that is missing from both is damage. An older object may hold what was erased since, so it goes.
"""

from __future__ import annotations

import asyncio
from hashlib import blake2b

from kbproc.log import record as records
from kbproc.log.jetstream.shelf import Shelf

_READS_S = 60.0


class Purged:
    """As one connection sees it. `lines`: by number, as of the last `refresh`."""

    def __init__(self, shelf: Shelf) -> None:
        self.shelf = shelf
        self.lines: dict[int, bytes] = {}
        self._name = ""

    @property
    def to_seq(self) -> int:
        """Up to this record it is complete; 0 where nothing was ever erased."""
        return int(self._name[:12] or 0)

    async def line(self, seq: int) -> bytes | None:
        """What stands there; None: nobody has erased that message rightly."""
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
        """Only the newest stays."""
        for name in (await self.shelf.names())[:-1]:
            await self.shelf.erase(name)
