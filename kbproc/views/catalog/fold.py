"""The fold of every event into the catalog's tables.

Owns: the table of folds, in which every event has its line; the rows of what happened
and of what requests were answered; the catalog's head.
Refuses to know: what an event changes: folds/ says that, a noun a file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

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
from kbproc.views.catalog.folds import agent, document, entry, kb, session
from kbproc.views.catalog.rows import token_row


def nothing(batch: Batch, record: Record, event: Event) -> None:
    """The table of events says it all."""


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
    ContentForgotten: nothing,
    PurgeEnded: nothing,
    Erased: session.piece_erased,
    ModelUsed: nothing,
    LogRepaired: nothing,
    **dict.fromkeys(session.KINDS, session.said),
}
# In the order in which they are written.
_GATHERED = (document.Documents, entry.Links, entry.Revived, session.Conversations)


def fold(db: Tables, records: Iterable[Record]) -> bool:
    """Folds `records` in, in order; True if the roster has changed."""
    batch = Batch(db, _GATHERED)
    last: Record | None = None
    for record in records:
        for index, event in enumerate(codec.decode(record.events)):
            batch.index = index
            FOLDS[type(event)](batch, record, event)
            batch.given = batch.given.and_by(event.gives())
            _happened(batch, record, index, event)
        _answered(batch, record)
        last = record
    batch.flush()
    if last is not None:
        ids = ", ".join(f"{name} = greatest({name}, ?)" for name in batch.given._fields)
        values = [last.seq, last.hash, last.ts, *batch.given]
        db.execute(f"update head set seq = ?, hash = ?, ts = ?, {ids}", values)  # noqa: S608
    return batch.roster_changed


def _happened(batch: Batch, record: Record, index: int, event: Event) -> None:
    """One row of the table of events: what happened, never what it said."""
    about = event.concerns()
    first = (record.seq, index, record.ts, record.actor, record.method, event.tag(), about.within)
    for id in about.documents or (None,):
        batch.add("events", (*first, id, about.revision, about.session, about.message))


def _answered(batch: Batch, record: Record) -> None:
    """What a request with the same token is answered from now on."""
    if record.token is not None:
        key = (record.actor, record.method, record.token)
        batch.add("tokens", (*key, *msgspec.structs.astuple(token_row(record))))
