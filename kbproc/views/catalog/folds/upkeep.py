"""The fold of what happens to the store as a whole.

Owns: that ids which are gone from the log are not used again, and what a purge leaves.
Refuses to know: files, and how anything is erased from them.
"""

from __future__ import annotations

from kbproc.events.event import Event
from kbproc.events.upkeep import Erased, LogRepaired
from kbproc.log.record import Record
from kbproc.views.catalog.batch import Batch


def ids_gone(batch: Batch, record: Record, event: Erased | LogRepaired) -> None:
    batch.gave_away(next_document=event.next_document, next_chunk=event.next_chunk)


def nothing(batch: Batch, record: Record, event: Event) -> None:
    """The table of events says it all."""
