"""Letting go of what documents held before.

Owns: which contents a moment leaves behind: those replaced by then, and those of documents
deleted by then.
Refuses to know: how they are erased (purge.py), and who may ask.
"""

from __future__ import annotations

from kbproc.base.wording import plural
from kbproc.documents.deletion import targets_of
from kbproc.events.upkeep import ContentForgotten
from kbproc.history.timeline import PastRecords
from kbproc.log.interface import Log
from kbproc.store.decision import Decision, Here
from kbproc.views.catalog.queries.all import Queries

_HINT = (
    "What is forgotten can't be restored, reverted to or read with as_of any more. Backups and "
    "exports made earlier still hold it."
)
_NOTHING = "Nothing was replaced or deleted before then that is not forgotten already."


def compaction(here: Here, log: Log, before: str) -> Decision:
    """Forgets all contents that were replaced, or whose document was deleted, before then.

    Titles, tags, times and authors of each revision stay; `store.purge` erases those, too.
    Its data: how many contents are forgotten, and what to say of that.
    """
    known = _kept_by_now(here.queries, log, here.head.seq)
    kept, gone, deleted = dict[int, int](), dict[int, int](), set[int]()
    for id, is_deleted, revisions in here.queries.contents_before(before):
        first = revisions[-1] + is_deleted
        if count := sum(known.get(id, 0) <= revision < first for revision in revisions):
            kept[id], gone[id] = first, count
            deleted |= {id} if is_deleted else set()
    rows = sorted(here.queries.documents_by_id(list(gone)).values(), key=lambda row: row.id)
    hint = _HINT if rows else _NOTHING
    return Decision(
        events=[ContentForgotten(id=row.id, kept=kept[row.id]) for row in rows],
        data=(sum(gone.values()), hint),
        targets=targets_of(rows),
        changes=[
            *_says("earlier content", [gone[id] for id in gone if id not in deleted], "document"),
            *_says("content", [gone[id] for id in deleted], "deleted document"),
        ],
        counts={"documents": len(gone), "contents": sum(gone.values())},
        hint=hint,
    )


def _kept_by_now(queries: Queries, log: Log, to_seq: int) -> dict[int, int]:
    """document id → its first revision that was not forgotten earlier."""
    records, kept = PastRecords(log, to_seq), dict[int, int]()
    for seq in queries.matching_records(0, to_seq, [ContentForgotten.tag()], None, None):
        for event in records.events(seq) or []:
            if isinstance(event, ContentForgotten):
                kept[event.id] = max(event.kept, kept.get(event.id, 0))
    return kept


def _says(what: str, counts: list[int], whose: str) -> list[str]:
    if not counts:
        return []
    return [f"forget {plural(sum(counts), what)} of {plural(len(counts), whose)} for good"]
