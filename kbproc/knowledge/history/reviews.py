"""Reverts records that reviewed entries: what the review before them says holds again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kbproc.engine.events.document import DocWritten
from kbproc.engine.events.entry import REVIEW_TAG, EntryReviewed
from kbproc.engine.projections.catalog.rows import EventRow
from kbproc.knowledge.documents.lookup import is_purged
from kbproc.knowledge.documents.revision import targets_of
from kbproc.knowledge.history.reversal import KindReversal, StateLine, Subject, TouchLine
from kbproc.knowledge.history.revisions import review_in_words
from kbproc.knowledge.history.timeline import Unknown, touches_of


class ReviewReversal(KindReversal):
    """Reverts reviews of entries that are still there; a hidden entry gets its review back, too."""

    same = "is reviewed as it was before"
    lost = "had a review that the log has lost since"

    def change_after(self, line: TouchLine, at: int) -> str:
        return "was reviewed again"

    def undo(self, rows_of: Mapping[int, Sequence[EventRow]]) -> None:
        """Reverts the reviews of these entries. `rows_of`: entry → all its events."""
        lines = {
            id: self._line(id, rows)
            for id, rows in rows_of.items()
            if any(row.type == REVIEW_TAG and row.seq in self._seqs for row in rows)
        }
        documents = self._queries.documents_by_id(lines)
        for id, line in lines.items():
            row, subject = documents.get(id), Subject("document", id, f"entry {id}")
            if row is None or is_purged(row):
                self.keep(subject, line.touches, "is gone for good")
            elif earlier := self.earlier(subject, line):
                change = f"entry {id} “{row.title}”: {review_in_words(earlier.state)}"
                self._undoing.does(
                    subject, earlier.undone, [earlier.state], change, targets_of([row])
                )
                self._undoing.bound.append(change)

    def _line(self, id: int, rows: Sequence[EventRow]) -> StateLine:
        """Returns an entry's reviews, one per record."""
        touches = touches_of([row for row in rows if row.type == REVIEW_TAG])
        reviews = [self._review(id, touch.seq) for touch in touches]
        return StateLine(touches, reviews, before=self._first(id, rows))

    def _review(self, id: int, seq: int) -> EntryReviewed | Unknown:
        """Returns the last review of the entry in a record."""
        events = self._records.events(seq) or ()
        reviews = [one for one in events if isinstance(one, EntryReviewed) and one.id == id]
        return reviews[-1] if reviews else Unknown(why="lost")

    def _first(self, id: int, rows: Sequence[EventRow]) -> EntryReviewed | Unknown:
        """Returns what held before any review."""
        for row in rows:
            for event in self._records.events(row.seq) or ():
                if isinstance(event, DocWritten) and event.id == id and event.entry is not None:
                    facts = event.entry
                    return EntryReviewed(
                        id=id, review_after=facts.review_after, anchors=facts.anchors or None
                    )
        return Unknown(why="lost")
