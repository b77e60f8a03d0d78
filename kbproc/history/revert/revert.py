"""Undoing records of the log.

Owns: how far each document can go back, the events that take it there, and what has
to stay as it is, and why.
Refuses to know: how the past is read (history.py), knowledge bases and agents
(revert_named.py), which entry took whose place (revert_links.py), params and the wire.

A record is undone where nothing came after it: for each document, the records to be
undone that end its timeline are taken off, and what was there before them comes
back. Where another record came later, that one stays, and the plan says so. Later
records that only brought back an earlier state are looked through, so that one can
go back step by step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from kbproc.base.wording import plural
from kbproc.documents.documents import is_bulk, targets_of
from kbproc.events.codec import KINDS
from kbproc.events.document import DocDeleted
from kbproc.events.entry import LINK_TAGS
from kbproc.events.event import Event
from kbproc.history.restore import kind_of_source, taken_by
from kbproc.history.revert import links, named
from kbproc.history.revert.undoing import Undoing, by
from kbproc.history.timeline import (
    DocumentState,
    PastRecords,
    Timeline,
    Touch,
    Unknown,
    Unwound,
    towards,
    unwind,
)
from kbproc.log.interface import Log
from kbproc.store.decision import Decision, Here
from kbproc.views.catalog.queries.all import Queries
from kbproc.views.catalog.rows import DocumentRow, EventRow

_FEW_DOCUMENTS = 100
_BLOCK = 10_000

_A_NOTE = "is a note: put its earlier text back with note.put; note.get with as_of shows it"


def _all_rows(queries: Queries, to_seq: int) -> Iterator[EventRow]:
    for first in range(1, to_seq + 1, _BLOCK):
        yield from queries.events_of_records(range(first, min(first + _BLOCK, to_seq + 1)))


def _rows_of(queries: Queries, ids: Sequence[int], to_seq: int) -> dict[int, list[EventRow]]:
    """One query each for few; for many, one look at everything is quicker."""
    if len(ids) <= _FEW_DOCUMENTS:
        return {id: queries.events_of_document(id) for id in ids}
    found: dict[int, list[EventRow]] = {id: [] for id in ids}
    for row in _all_rows(queries, to_seq):
        if row.document_id in found:
            found[row.document_id].append(row)
    return found


class _Back(NamedTuple):
    """A document that gets a state back."""

    row: DocumentRow
    line: Timeline
    wanted: DocumentState
    undone: list[Touch]


def revert(here: Here, log: Log, seqs: Collection[int]) -> Decision:
    """Undoes these records as far as nothing stands in the way. Raises store.corrupt."""
    return _Revert(here, log, frozenset(seqs)).decide()


class _Revert:
    """A revert on its way to a decision: first what comes back, then what goes."""

    def __init__(self, here: Here, log: Log, seqs: frozenset[int]) -> None:
        self._here = here
        self._queries = here.queries
        self._records = PastRecords(log, here.head.seq)
        self._seqs = seqs
        self._undoing = Undoing()

    def decide(self) -> Decision:
        rows = self._queries.events_of_records(sorted(self._seqs))
        self._keep_the_rest(rows)
        going = named.bring(self._here, self._records, self._undoing, self._seqs, rows)
        ids = sorted({row.document_id for row in rows if row.document_id})
        found = _rows_of(self._queries, ids, self._here.head.seq)
        self._bring_documents(self._hide_documents(found))
        links.relink(self._here, self._records, self._undoing, self._seqs, found)
        named.remove(self._here, self._undoing, going)
        hidden = Counter(self._undoing.hidden.values())
        bulk = any(is_bulk(self._here, kb, count) for kb, count in hidden.items())
        return self._undoing.decision(self._seqs, bulk=bulk)

    def _hide_documents(self, found: dict[int, list[EventRow]]) -> list[_Back]:
        """Hides those that were not there before; returns those that were different."""
        documents = self._queries.documents_by_id(found)
        backs = []
        for id, rows in found.items():
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

    def _keep_the_rest(self, rows: Sequence[EventRow]) -> None:
        """Records that changed nothing that could be put back."""
        for seq in sorted(self._seqs - {row.seq for row in rows}):
            lost = self._records.events(seq) is None
            why = "it was damaged and given up" if lost else "it changed nothing"
            self._undoing.keep_record(seq, why)
        seen = set()
        for row in rows:
            known = row.document_id or row.type in named.KNOWN
            if known or (row.seq, row.type) in seen:
                continue
            seen.add((row.seq, row.type))
            why = f"{row.type}: {KINDS.get(row.type, Event).stays}"
            self._undoing.keep_record(row.seq, why, row.kb)
