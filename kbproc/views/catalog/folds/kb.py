"""The fold of what happens to knowledge bases.

Owns: their rows, and the failures that go with one.
Refuses to know: documents: each goes by an event of its own.
"""

from __future__ import annotations

from kbproc.events.kb import KbCreated, KbDeleted, KbUpdated
from kbproc.log.record import Record
from kbproc.views.catalog.batch import Batch


def created(batch: Batch, record: Record, event: KbCreated) -> None:
    batch.add("kbs", (event.slug, event.name, event.description, 1, record.ts, record.ts))
    batch.roster_changed = True


def updated(batch: Batch, record: Record, event: KbUpdated) -> None:
    batch.settled().execute(
        "update kbs set name = ?, description = ?, revision = revision + 1, updated_at = ? "
        "where slug = ?",
        [event.name, event.description, record.ts, event.slug],
    )


def deleted(batch: Batch, record: Record, event: KbDeleted) -> None:
    db = batch.settled()
    db.execute("delete from kbs where slug = ?", [event.slug])
    db.execute("delete from failures where kb = ?", [event.slug])
    batch.roster_changed = True
