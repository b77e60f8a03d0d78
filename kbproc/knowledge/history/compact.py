"""Forgets earlier contents of documents.

A moment selects the contents: those that were replaced before it, and those of documents that
were deleted before it.
"""

from __future__ import annotations

from kbproc.base.wording import plural
from kbproc.engine.events.upkeep import ContentForgotten
from kbproc.engine.log.interface import Log
from kbproc.engine.projections.catalog.queries import Queries
from kbproc.engine.store.decision import Decision, DecisionState
from kbproc.knowledge.documents.revision import targets_of
from kbproc.knowledge.history.timeline import PastRecords

_HINT = (
    "What is forgotten can't be restored, reverted to or read with as_of any more. Backups and "
    "exports made earlier still hold it."
)
_NOTHING = "Nothing was replaced or deleted before then that is not forgotten already."


def compaction(here: DecisionState, log: Log, before: str) -> Decision:
    """Forgets all contents that were replaced, or whose document was deleted, before `before`.

    Titles, tags, times and authors of each revision stay; `store.purge` erases those, too.
    The decision's data: how many contents are forgotten, and the hint for the caller.
    """
    first_retained = _first_retained(here.queries, log, here.head.seq)
    new_first, counts, deleted = dict[int, int](), dict[int, int](), set[int]()
    for id, is_deleted, revisions in here.queries.contents_before(before):
        first = revisions[-1] + is_deleted
        if count := sum(first_retained.get(id, 0) <= revision < first for revision in revisions):
            new_first[id], counts[id] = first, count
            deleted |= {id} if is_deleted else set()
    rows = sorted(here.queries.documents_by_id(list(counts)).values(), key=lambda row: row.id)
    hint = _HINT if rows else _NOTHING
    return Decision(
        events=[ContentForgotten(id=row.id, kept=new_first[row.id]) for row in rows],
        data=(sum(counts.values()), hint),
        targets=targets_of(rows),
        changes=[
            *_change_lines(
                "earlier content",
                [counts[id] for id in counts if id not in deleted],
                "document",
            ),
            *_change_lines("content", [counts[id] for id in deleted], "deleted document"),
        ],
        counts={"documents": len(counts), "contents": sum(counts.values())},
        hint=hint,
    )


def _first_retained(queries: Queries, log: Log, to_seq: int) -> dict[int, int]:
    """Returns document id → its first revision that was not forgotten earlier."""
    records, first_revisions = PastRecords(log, to_seq), dict[int, int]()
    for seq in queries.matching_records(0, to_seq, [ContentForgotten.tag()], None, None):
        for event in records.events(seq) or []:
            if isinstance(event, ContentForgotten):
                first_revisions[event.id] = max(event.kept, first_revisions.get(event.id, 0))
    return first_revisions


def _change_lines(contents: str, counts: list[int], document: str) -> list[str]:
    if not counts:
        return []
    return [f"forget {plural(sum(counts), contents)} of {plural(len(counts), document)} for good"]
