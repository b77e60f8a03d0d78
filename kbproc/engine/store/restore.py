"""Stores sources again that a power failure has lost, from the records that hold their text.

The catalog notes up to which record all sources were synced. So only later records need be looked
at, and never more than MOST_RECORDS.
"""

from __future__ import annotations

from kbproc.engine.events.document import DocWritten, possible_sources
from kbproc.engine.log.interface import Log
from kbproc.engine.sources.blobs import Blobs, digest

MOST_RECORDS = 1024  # pending at a time


def sources(log: Log, since: int, blobs: Blobs) -> None:
    """Stores lost sources of the records after `since` again. Raises store.io."""
    if since >= log.head.seq:
        return
    from kbproc.engine.events import codec  # not for a store that was closed

    lost: dict[str, bytes] = {}
    for record in log.read(max(since, log.head.seq - MOST_RECORDS), log.head.seq):
        for event in codec.decode(record.events):
            if isinstance(event, DocWritten) and event.source_sha256:
                name = event.source_sha256
                texts = () if blobs.is_sound(name) else possible_sources(event.chunks)
                for data in texts:
                    if digest(data) == name:
                        lost[name] = data
    if lost:
        blobs.restore(lost)
