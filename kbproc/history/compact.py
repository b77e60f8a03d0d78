"""Letting go of what documents held before.

Owns: which contents a moment leaves behind: those replaced by then, and those of documents
deleted by then.
Refuses to know: how they are erased (purge.py), and who may ask.
"""

from __future__ import annotations

from collections.abc import Iterable

from kbproc.base.wording import plural
from kbproc.documents.deletion import targets_of
from kbproc.documents.lookup import is_purged
from kbproc.events.upkeep import ContentForgotten
from kbproc.history.timeline import PastRecords
from kbproc.log.interface import Log
from kbproc.store.decision import Decision, Here
from kbproc.views.catalog.queries.all import Queries

HINT = (
    "What is forgotten can't be restored, reverted to or read with as_of any more. Backups and "
    "exports made earlier still hold it."
)


def compaction(here: Here, log: Log, before: str) -> Decision:
    """Forgets all contents that were replaced, or whose document was deleted, before then.

    Titles, tags, times and authors of each revision stay; `store.purge` erases those, too.
    Its data: how many contents are forgotten.
    """
    replaced = here.queries.replaced_before(before)
    deleted = here.queries.deleted_before(before)
    kept = {id: revisions[-1] for id, revisions in (replaced | deleted).items()}
    gone = _contents(replaced | deleted, _kept_by_now(here.queries, log, here.head.seq))
    rows = [row for row in here.queries.documents_by_id(list(gone)).values() if not is_purged(row)]
    ids = sorted(row.id for row in rows)
    return Decision(
        events=[ContentForgotten(id=id, kept=kept[id]) for id in ids],
        data=sum(gone[id] for id in ids),
        targets=targets_of(sorted(rows, key=lambda row: row.id)),
        changes=[
            *_says(gone[id] for id in ids if id not in deleted),
            *_says((gone[id] for id in ids if id in deleted), "deleted "),
        ],
        counts={"documents": len(ids), "contents": sum(gone[id] for id in ids)},
        hint=HINT,
    )


def _kept_by_now(queries: Queries, log: Log, to_seq: int) -> dict[int, int]:
    """document id → its first revision that was not forgotten earlier."""
    records, kept = PastRecords(log, to_seq), dict[int, int]()
    for seq in queries.matching_records(0, to_seq, [ContentForgotten.tag()], None, None):
        for event in records.events(seq) or []:
            if isinstance(event, ContentForgotten):
                kept[event.id] = max(event.kept, kept.get(event.id, 0))
    return kept


def _contents(written: dict[int, list[int]], kept: dict[int, int]) -> dict[int, int]:
    """document id → how many of its contents go; the last of its revisions stays."""
    counts = {
        id: sum(revision >= kept.get(id, 0) for revision in revisions[:-1])
        for id, revisions in written.items()
    }
    return {id: count for id, count in counts.items() if count}


def _says(counts: Iterable[int], which: str = "") -> list[str]:
    found = list(counts)
    if not found:
        return []
    contents, documents = (
        plural(sum(found), "earlier content" if not which else "content"),
        plural(len(found), f"{which}document"),
    )
    return [f"forget {contents} of {documents} for good"]
