"""Undoing records of the log.

Owns: the order in which sessions, documents, links, knowledge bases and agents are put back, and
records that changed nothing of these.
Refuses to know: how far each can go back, params and the wire.

A record is undone where nothing came after it: for each document, the records to be
undone that end its timeline are taken off, and what was there before them comes
back. Where another record came later, that one stays, and the plan says so. Later
records that only brought back an earlier state are looked through, so that one can
go back step by step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence

from kbproc.documents.deletion import is_bulk
from kbproc.events.codec import KINDS
from kbproc.events.event import Event
from kbproc.history.revert import links, named
from kbproc.history.revert.documents import Documents
from kbproc.history.revert.sessions import KNOWN as OF_SESSIONS
from kbproc.history.revert.sessions import Sessions
from kbproc.history.revert.undoing import Undoing
from kbproc.history.timeline import PastRecords
from kbproc.log.interface import Log
from kbproc.store.decision import Decision, Here
from kbproc.views.catalog.queries.all import Queries
from kbproc.views.catalog.rows import EventRow

_FEW_DOCUMENTS = 100
_BLOCK = 10_000


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
        withdrawn = Sessions(self._queries, self._undoing, self._seqs).undo(rows)
        self._keep_the_rest(rows, withdrawn)
        going = named.bring(self._here, self._records, self._undoing, self._seqs, rows)
        ids = sorted({row.document_id for row in rows if row.document_id})
        found = _rows_of(self._queries, ids, self._here.head.seq)
        Documents(self._queries, self._records, self._undoing, self._seqs).undo(found)
        links.relink(self._here, self._records, self._undoing, self._seqs, found)
        named.remove(self._here, self._undoing, going)
        hidden = Counter(self._undoing.hidden.values())
        bulk = any(is_bulk(self._here, kb, count) for kb, count in hidden.items())
        return self._undoing.decision(self._seqs, bulk=bulk)

    def _keep_the_rest(self, rows: Sequence[EventRow], withdrawn: Collection[int]) -> None:
        """Records that changed nothing that could be put back, nor went with their question."""
        for seq in sorted(self._seqs - {row.seq for row in rows}):
            lost = self._records.events(seq) is None
            why = "it was damaged and given up" if lost else "it changed nothing"
            self._undoing.keep_record(seq, why)
        seen = set()
        for row in rows:
            known = row.document_id or row.type in named.KNOWN | OF_SESSIONS
            if known or row.message_id in withdrawn or (row.seq, row.type) in seen:
                continue
            seen.add((row.seq, row.type))
            why = f"{row.type}: {KINDS.get(row.type, Event).stays}"
            self._undoing.keep_record(row.seq, why, row.kb)
