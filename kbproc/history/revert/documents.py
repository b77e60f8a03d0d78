"""Undoing what happened to documents.

Owns: how far each document can go back, the events that take it there, and what keeps
one as it is.
Refuses to know: knowledge bases and agents (named.py), which entry took whose place
(links.py), and how the past is read.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from kbproc.base.wording import plural
from kbproc.documents.deletion import targets_of
from kbproc.events.document import DocDeleted
from kbproc.events.entry import LINK_TAGS
from kbproc.events.event import Event
from kbproc.history.restore import kind_of_source, taken_by
from kbproc.history.revert.undoing import Undoing, by
from kbproc.history.revert.unwind import Unwound, unwind
from kbproc.history.state import DocumentState, Unknown, towards
from kbproc.history.timeline import PastRecords, Timeline, Touch
from kbproc.views.catalog.queries.all import Queries
from kbproc.views.catalog.rows import DocumentRow, EventRow

_A_NOTE = "is a note: put its earlier text back with note.put; note.get with as_of shows it"


class _Back(NamedTuple):
    """A document that gets a state back."""

    row: DocumentRow
    line: Timeline
    wanted: DocumentState
    undone: list[Touch]


class Documents:
    """First those are hidden that were not there before, so that they make room for the others."""

    def __init__(
        self, queries: Queries, records: PastRecords, undoing: Undoing, seqs: Collection[int]
    ) -> None:
        self._queries = queries
        self._records = records
        self._undoing = undoing
        self._seqs = seqs

    def undo(self, rows_of: Mapping[int, Sequence[EventRow]]) -> None:
        """`rows_of`: document → all that happened to it."""
        self._bring_documents(self._hide_documents(rows_of))

    def _hide_documents(self, rows_of: Mapping[int, Sequence[EventRow]]) -> list[_Back]:
        """Hides those that were not there before; returns those that were different."""
        documents = self._queries.documents_by_id(rows_of)
        backs = []
        for id, rows in rows_of.items():
            kept = [row for row in rows if row.type not in LINK_TAGS]
            line = Timeline(self._records, id, kept)
            back = self._unwound(line, documents.get(id))
            if back is not None:
                backs.append(back)
        return backs

    def _unwound(self, line: Timeline, row: DocumentRow | None) -> _Back | None:
        wanted_seqs = [touch for touch in line.touches if touch.seq in self._seqs]
        if row is None:
            self._keep(wanted_seqs, line.id, "", "was lost to damage")
            return None
        if line.purge is not None:
            self._keep(wanted_seqs, row.id, "", f"was purged {by(line.purge)}")
            return None
        if row.type == "note":
            self._keep(wanted_seqs, row.id, row.title, _A_NOTE)
            return None
        unwound = unwind(line, self._seqs)
        for touch, other in unwound.already:
            self._keep([touch], row.id, row.title, f"is as it was before: undone {by(other)}")
        if unwound.blocked:
            last = line.touches[unwound.to]
            verb = "deleted" if "doc.deleted" in last.types else "changed again"
            self._keep(unwound.blocked, row.id, row.title, f"was {verb} {by(last)}")
        if not unwound.undone:
            return None
        return self._taken_back(line, row, unwound)

    def _taken_back(self, line: Timeline, row: DocumentRow, unwound: Unwound) -> _Back | None:
        wanted, undone = line.state_after(unwound.to), unwound.undone
        if isinstance(wanted, Unknown):
            self._keep(undone, row.id, row.title, "was something that the log has lost since")
        elif line.alike(unwound.to, len(line.touches) - 1):
            self._keep(undone, row.id, row.title, "is as it was before")
        elif wanted is None or wanted.deleted:
            self._hide(row, undone)
        else:
            return _Back(row, line, wanted, undone)
        return None

    def _hide(self, row: DocumentRow, undone: list[Touch]) -> None:
        self._undoing.hidden[row.id] = row.kb
        self._does(row, undone, [DocDeleted(id=row.id)], f"hide “{row.title}”")

    def _bring_documents(self, backs: Sequence[_Back]) -> None:
        gone = [back.wanted for back in backs if back.row.deleted_at]
        taken = taken_by(self._queries, gone, leaving=self._undoing.ids)
        slugs = {*self._queries.kb_slugs(), *self._undoing.names["kb"]}
        for back in backs:
            row, kb = back.row, back.wanted.written.kb
            if kb not in slugs:
                self._keep(back.undone, row.id, row.title, f"has no knowledge base: {kb} is gone")
            elif row.id in taken:
                same = f"which has the same {kind_of_source(back.wanted)}"
                says = f"has made room for document {taken[row.id]}, {same}"
                self._keep(back.undone, row.id, row.title, says)
            else:
                self._bring(back)

    def _bring(self, back: _Back) -> None:
        row, wanted = back.row, back.wanted
        if row.deleted_at:
            self._undoing.brought[row.id] = row.kb
        what = "bring back" if row.deleted_at else "put back"
        count = plural(wanted.chunk_count, "chunk")
        events = towards(back.line.now, wanted, row.revision + 1)
        self._does(row, back.undone, events, f"{what} “{wanted.title}” ({count})")

    def _does(self, row: DocumentRow, undone: list[Touch], events: list[Event], says: str) -> None:
        self._undoing.ids[row.id] = None
        self._undoing.does(undone, events, says, targets_of([row]))

    def _keep(self, touches: Sequence[Touch], id: int, title: str, says: str) -> None:
        self._undoing.keep(touches, says, id=id, title=title, what="document")
