"""What documents were before: their earlier texts, and those that are deleted.

Owns: finding both in the log by what the catalog tells of it.
Refuses to know: why it is asked, and bringing anything back.
"""

from __future__ import annotations

from kbproc.events import codec
from kbproc.events.document import DocDeleted, DocWritten
from kbproc.store.state import SeenStore
from kbproc.views.catalog.queries.all import Queries
from kbproc.views.catalog.rows import DocumentRow

_EVERY = 1_000_000_000


def had_text(store: SeenStore, document: int, sha256: str) -> bool:
    """Whether some revision of it has that source."""
    with store.reading() as snapshot:
        told = snapshot.queries.events_of_document(document)
    seqs = [event.seq for event in told if event.type == DocWritten.tag()]
    return any(
        isinstance(event, DocWritten) and (event.id, event.source_sha256) == (document, sha256)
        for seq in reversed(seqs)
        for record in store.log.read(seq - 1, seq)
        for event in codec.decode(record.events)
    )


def deleted(
    queries: Queries, kb: str, source_id: str, actor: str | None = None
) -> DocumentRow | None:
    """The newest one whose deletion is recorded; of this actor, if one is named."""
    seqs = queries.matching_records(0, _EVERY, [DocDeleted.tag()], actor, None)
    ids = [event.document_id for event in queries.events_of_records(seqs)]
    rows = queries.documents_by_id([id for id in ids if id is not None]).values()
    its = [
        row
        for row in rows
        if (row.kb, row.source_id) == (kb, source_id) and row.deleted_at is not None
    ]
    return max(its, key=lambda row: row.touched, default=None)
