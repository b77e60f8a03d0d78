"""The fold of what happens to agents.

Owns: their rows.
Refuses to know: their notes, which are documents.
"""

from __future__ import annotations

import msgspec

from kbproc.events.agent import AgentDeleted, AgentWritten
from kbproc.log.record import Record
from kbproc.views.catalog.batch import Batch


def written(batch: Batch, record: Record, event: AgentWritten) -> None:
    """The first one's time stays; an agent made again after its end is a new one."""
    db = batch.settled()
    row = db.execute(
        "select created_at from agents where slug = ? and deleted_at is null", [event.slug]
    ).fetchone()
    db.execute("delete from agents where slug = ?", [event.slug])
    quotas = msgspec.json.encode(event.quotas, order="sorted").decode()
    may = (event.kbs, event.folder, event.scopes, quotas, event.instructions)
    times = (row[0] if row else record.ts, record.ts, None)
    db.insert("agents", [(event.slug, event.description, *may, event.revision, *times)])
    batch.roster_changed = True


def deleted(batch: Batch, record: Record, event: AgentDeleted) -> None:
    """The row stays: who was an agent once is never a mere name again."""
    sql = "update agents set deleted_at = ? where slug = ?"
    batch.settled().execute(sql, [record.ts, event.slug])
    batch.roster_changed = True
