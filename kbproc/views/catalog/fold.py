"""The fold of every event into the catalog's tables.

Owns: the table of folds, in which every event has its line; the rows of what happened
and of what requests were answered; the catalog's head.
Refuses to know: what an event changes: folds/ says that, a noun a file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from kbproc.events import codec
from kbproc.events.agent import AgentDeleted, AgentWritten
from kbproc.events.document import (
    ChunkDeleted,
    DocChanged,
    DocDeleted,
    DocWritten,
    FileCleared,
    FileFailed,
)
from kbproc.events.entry import EntryRevived, EntrySuperseded
from kbproc.events.event import Event
from kbproc.events.kb import KbCreated, KbDeleted, KbUpdated
from kbproc.events.upkeep import (
    ContentForgotten,
    DocPurged,
    Erased,
    LogRepaired,
    ModelUsed,
    PurgeEnded,
)
from kbproc.log.record import Record
from kbproc.views.catalog.batch import Batch, Tables
from kbproc.views.catalog.folds import agent, document, entry, kb, upkeep

FOLDS: dict[type[Event], Callable[[Batch, Record, Any], None]] = {
    KbCreated: kb.created,
    KbUpdated: kb.updated,
    KbDeleted: kb.deleted,
    DocWritten: document.written,
    DocChanged: document.changed,
    DocDeleted: document.deleted,
    ChunkDeleted: document.chunks_deleted,
    FileFailed: document.file_failed,
    FileCleared: document.file_cleared,
    EntrySuperseded: entry.superseded,
    EntryRevived: entry.revived,
    AgentWritten: agent.written,
    AgentDeleted: agent.deleted,
    DocPurged: document.purged,
    ContentForgotten: upkeep.nothing,
    PurgeEnded: upkeep.nothing,
    Erased: upkeep.ids_gone,
    ModelUsed: upkeep.nothing,
    LogRepaired: upkeep.ids_gone,
}
# In the order in which they are written.
_GATHERED = (document.Documents, entry.Links, entry.Revived)


def fold(db: Tables, records: Iterable[Record]) -> bool:
    """Folds `records` in, in order; True if the roster has changed."""
    batch = Batch(db, _GATHERED)
    last: Record | None = None
    for record in records:
        for index, event in enumerate(codec.decode(record.events)):
            FOLDS[type(event)](batch, record, event)
            _happened(batch, record, index, event)
        _answered(batch, record)
        last = record
    batch.flush()
    if last is not None:
        db.execute(
            "update head set seq = ?, hash = ?, ts = ?, next_document = greatest("
            "next_document, ?), next_chunk = greatest(next_chunk, ?)",
            [last.seq, last.hash, last.ts, batch.next_document, batch.next_chunk],
        )
    return batch.roster_changed


def _happened(batch: Batch, record: Record, index: int, event: Event) -> None:
    """One row of the table of events: what happened, never what it said."""
    about = event.concerns()
    first = (record.seq, index, record.ts, record.actor, record.method, event.tag(), about.within)
    for id in about.documents or (None,):
        batch.event((*first, id, about.revision))


def _answered(batch: Batch, record: Record) -> None:
    """What a request with the same token is answered from now on."""
    if record.token is None:
        return
    key = (record.actor, record.method, record.token, record.params_hash, record.salt)
    result = bytes(record.result).decode()
    batch.token((*key, record.seq, None if result == "null" else result))
