"""Reverts records that reviewed entries: what the review before them says holds again."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from kbproc.engine.events.document import DocWritten
from kbproc.engine.events.entry import REVIEW_TAG, EntryReviewed
from kbproc.engine.projections.catalog.queries import Queries
from kbproc.engine.projections.catalog.rows import DocumentRow, EventRow
from kbproc.knowledge.documents.lookup import is_purged
from kbproc.knowledge.documents.revision import targets_of
from kbproc.knowledge.history.revisions import review_in_words
from kbproc.knowledge.history.timeline import PastRecords, Touch, touches_of
from kbproc.knowledge.history.undoing import StateLine, Undoing, by, unwind


class ReviewReversal:
    """Reverts reviews of entries that are still there; a hidden entry gets its review back, too."""

    def __init__(
        self, queries: Queries, records: PastRecords, undoing: Undoing, seqs: Collection[int]
    ) -> None:
        self._queries = queries
        self._records = records
        self._undoing = undoing
        self._seqs = seqs

    def undo(self, rows_of: Mapping[int, Sequence[EventRow]]) -> None:
        """Reverts the reviews of these entries. `rows_of`: entry → all its events."""
        lines = {
            id: self._line(id, rows)
            for id, rows in rows_of.items()
            if any(row.type == REVIEW_TAG and row.seq in self._seqs for row in rows)
        }
        documents = self._queries.documents_by_id(lines)
        for id, line in lines.items():
            row = documents.get(id)
            if row is None or is_purged(row):
                touches = [touch for touch in line.touches if touch.seq in self._seqs]
                self._keep(touches, id, "is gone for good")
            else:
                self._unwind(row, line)

    def _line(self, id: int, rows: Sequence[EventRow]) -> StateLine:
        """Returns an entry's reviews, one per record."""
        touches = touches_of([row for row in rows if row.type == REVIEW_TAG])
        reviews = [self._review(id, touch.seq) for touch in touches]
        return StateLine(touches, reviews, before=self._first(id, rows))

    def _review(self, id: int, seq: int) -> EntryReviewed | None:
        """Returns the last review of the entry in a record; None if the record was lost."""
        events = self._records.events(seq) or ()
        reviews = [one for one in events if isinstance(one, EntryReviewed) and one.id == id]
        return reviews[-1] if reviews else None

    def _first(self, id: int, rows: Sequence[EventRow]) -> EntryReviewed | None:
        """Returns what held before any review; None if the record was lost."""
        for row in rows:
            for event in self._records.events(row.seq) or ():
                if isinstance(event, DocWritten) and event.id == id and event.entry is not None:
                    return EntryReviewed(id=id, review_after=event.entry.review_after)
        return None

    def _unwind(self, row: DocumentRow, line: StateLine) -> None:
        unwound = unwind(line, self._seqs)
        for touch, other in unwound.already:
            self._keep([touch], row.id, f"is reviewed as it was before: undone {by(other)}")
        if unwound.blocked:
            last = line.touches[unwound.to]
            self._keep(unwound.blocked, row.id, f"was reviewed again {by(last)}")
        if not unwound.undone:
            return
        review = line.state_after(unwound.to)
        if review is None:
            self._keep(unwound.undone, row.id, "had a review that the log has lost since")
        elif line.alike(unwound.to, len(line.touches) - 1):
            self._keep(unwound.undone, row.id, "is reviewed as it was before")
        else:
            self._do(row, unwound.undone, review)

    def _do(self, row: DocumentRow, undone: list[Touch], review: EntryReviewed) -> None:
        undoing = self._undoing
        targets = [] if row.id in undoing.ids else targets_of([row])
        change = f"entry {row.id} “{row.title}”: {review_in_words(review)}"
        undoing.does(undone, [review], change, targets)
        undoing.bound.append(change)
        undoing.ids[row.id] = None

    def _keep(self, touches: Sequence[Touch], id: int, reason: str) -> None:
        self._undoing.keep(touches, reason, id=id, what="entry")
