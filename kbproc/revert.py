"""Undoing records of the log.

Owns: how far each document and knowledge base can go back, the events that take it
there, and what has to stay as it is, and why.
Refuses to know: how the past is read (history.py), params and the wire.

A record is undone where nothing came after it: for each document, the records to be
undone that end its timeline are taken off, and what was there before them comes
back. Where another record came later, that one stays, and the plan says so. Later
records that only brought back an earlier state are looked through, so that one can
go back step by step.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

from kbproc import events as ev
from kbproc.commit import Decision, Here
from kbproc.documents import is_bulk, targets_of
from kbproc.history import (
    DocumentState,
    PastRecords,
    Timeline,
    Touch,
    Unknown,
    Unwound,
    touches_of,
    towards,
    unwind,
)
from kbproc.model import DEFAULT_KB, Target
from kbproc.restore import kind_of_source, taken_by
from kbproc.words import plural

if TYPE_CHECKING:
    from kbproc.log import Log
    from kbproc.views.queries import DocumentRow, EventRow, KbRow, Queries

MOST_LISTED = 1000
_FEW_DOCUMENTS = 100
_BLOCK = 10_000
_ALL = 1_000_000_000

_KB_TYPES = frozenset({"kb.created", "kb.updated", "kb.deleted"})
_STAYS = {
    "purge.ended": "what a purge has erased can't come back",
    "text.erased": "what a purge has erased can't come back",
    "file.failed": "it only notes a file that could not be read; ingest it again",
    "file.cleared": "it only notes a file that had failed before; ingest it again",
    "log.repaired": "damaged records that were given up can't come back",
    "model.used": "switch back with model.use",
}


class Reverted(Struct, kw_only=True, frozen=True):
    """A record of which something, or all, was undone."""

    seq: int
    ts: str
    actor: str
    method: str


class Kept(Struct, kw_only=True, frozen=True):
    """What of record `seq` was not undone."""

    seq: int
    why: str
    document_id: int | None = None
    kb: str | None = None


class Reversal(Struct, kw_only=True, frozen=True):
    """What was undone. `documents` and `kbs` count what changed; `ids` and `kept` hold
    the first thousand."""

    reverted: list[Reverted]
    documents: int
    ids: list[int]
    kbs: list[str]
    kept: list[Kept]
    hint: str | None = None


# ------------------------------------------------------------------ knowledge bases


class _KbLine:
    """A knowledge base's name and description after each record; None: it was not there."""

    def __init__(self) -> None:
        self.touches: list[Touch] = []
        self.states: list[tuple[str, str] | None] = []

    def add(self, touch: Touch, event: ev.Event) -> None:
        self.touches.append(touch)
        if isinstance(event, ev.KbCreated | ev.KbUpdated):
            self.states.append((event.name, event.description))
        else:
            self.states.append(None)

    def state_after(self, index: int) -> tuple[str, str] | None:
        return self.states[index] if index >= 0 else None

    def alike(self, one: int, other: int) -> bool:
        return self.state_after(one) == self.state_after(other)


def _kb_lines(queries: Queries, records: PastRecords) -> dict[str, _KbLine]:
    lines: dict[str, _KbLine] = {}
    seqs = queries.matching_records(0, _ALL, sorted(_KB_TYPES), None, None)
    for touch in touches_of(queries.events_of_records(seqs)):
        for event in records.events(touch.seq) or ():
            if isinstance(event, ev.KbCreated | ev.KbUpdated | ev.KbDeleted):
                lines.setdefault(event.slug, _KbLine()).add(touch, event)
    return lines


def _all_rows(queries: Queries, to_seq: int) -> Iterator[EventRow]:
    for first in range(1, to_seq + 1, _BLOCK):
        yield from queries.events_of_records(range(first, min(first + _BLOCK, to_seq + 1)))


def _lines_of(
    queries: Queries, records: PastRecords, ids: Sequence[int], to_seq: int
) -> Iterator[Timeline]:
    """One query each for few; for many, one look at everything is quicker."""
    if len(ids) <= _FEW_DOCUMENTS:
        yield from (Timeline(records, id, queries.events_of_document(id)) for id in ids)
        return
    found: dict[int, list[EventRow]] = {id: [] for id in ids}
    for row in _all_rows(queries, to_seq):
        if row.document_id in found:
            found[row.document_id].append(row)
    yield from (Timeline(records, id, rows) for id, rows in found.items())


# ------------------------------------------------------------------------ one revert


def _by(touch: Touch) -> str:
    return f"at seq {touch.seq} by {touch.actor}"


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
        self._events: list[ev.Event] = []
        self._targets: list[Target] = []
        self._changes: list[str] = []
        self._obstacles: list[str] = []
        self._kept: list[Kept] = []
        self._undone: dict[int, Touch] = {}
        self._ids: list[int] = []
        self._kbs: list[str] = []
        self._hidden: dict[str, int] = {}
        self._brought: dict[str, int] = {}

    def decide(self) -> Decision:
        rows = self._queries.events_of_records(sorted(self._seqs))
        self._keep_the_rest(rows)
        going = self._bring_kbs(rows)
        backs = self._hide_documents(rows)
        self._bring_documents(backs)
        self._remove_kbs(going)
        return self._decision()

    def _decision(self) -> Decision:
        undone = [touch for _, touch in sorted(self._undone.items())]
        data = Reversal(
            reverted=[Reverted(seq=t.seq, ts=t.ts, actor=t.actor, method=t.method) for t in undone],
            documents=len(self._ids),
            ids=sorted(self._ids)[:MOST_LISTED],
            kbs=self._kbs,
            kept=sorted(self._kept, key=lambda kept: kept.seq)[:MOST_LISTED],
            hint=None if self._events else "There is nothing to revert; kept says why.",
        )
        total = f"undo {len(undone)} of {plural(len(self._seqs), 'record')}"
        count = f"{total}: {plural(len(self._ids), 'document')} changed, {len(self._kept)} kept"
        return Decision(
            events=self._events,
            data=data,
            targets=self._targets,
            changes=[count, *self._obstacles, *self._changes],
            bound=[f"record {seq}" for seq in sorted(self._seqs)],
            bulk=any(is_bulk(self._here, kb, count) for kb, count in self._hidden.items()),
        )

    # -------------------------------------------------------------------- documents

    def _hide_documents(self, rows: Sequence[EventRow]) -> list[_Back]:
        """Hides those that were not there before; returns those that were different."""
        ids = sorted({row.document_id for row in rows if row.document_id})
        documents = self._queries.documents_by_id(ids)
        backs = []
        for line in _lines_of(self._queries, self._records, ids, self._here.head.seq):
            row = documents.get(line.id)
            back = self._unwound(line, row)
            if back is not None:
                backs.append(back)
        return backs

    def _unwound(self, line: Timeline, row: DocumentRow | None) -> _Back | None:
        wanted_seqs = [touch for touch in line.touches if touch.seq in self._seqs]
        if row is None:
            self._keep(wanted_seqs, line.id, "", "was lost to damage")
            return None
        if line.purge is not None:
            self._keep(wanted_seqs, row.id, "", f"was purged {_by(line.purge)}")
            return None
        unwound = unwind(line, self._seqs)
        for touch, by in unwound.already:
            self._keep([touch], row.id, row.title, f"is as it was before: undone {_by(by)}")
        if unwound.blocked:
            by = line.touches[unwound.to]
            verb = "deleted" if "doc.deleted" in by.types else "changed again"
            self._keep(unwound.blocked, row.id, row.title, f"was {verb} {_by(by)}")
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
        self._hidden[row.kb] = self._hidden.get(row.kb, 0) + 1
        self._does(row, undone, [ev.DocDeleted(id=row.id)], f"hide “{row.title}”")

    def _bring_documents(self, backs: Sequence[_Back]) -> None:
        gone = [back.wanted for back in backs if back.row.deleted_at]
        taken = taken_by(self._queries, gone, leaving=set(self._ids))
        slugs = {*self._queries.kb_slugs(), *self._kbs}
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
            self._brought[row.kb] = self._brought.get(row.kb, 0) + 1
        what = "bring back" if row.deleted_at else "put back"
        count = plural(wanted.chunk_count, "chunk")
        events = towards(back.line.now, wanted, row.revision + 1)
        self._does(row, back.undone, events, f"{what} “{wanted.title}” ({count})")

    def _does(
        self, row: DocumentRow, undone: list[Touch], events: list[ev.Event], says: str
    ) -> None:
        self._events += events
        self._ids.append(row.id)
        self._targets += targets_of([row])
        self._changes.append(says)
        self._undone.update((touch.seq, touch) for touch in undone)

    # -------------------------------------------------------------- knowledge bases

    def _bring_kbs(self, rows: Sequence[EventRow]) -> list[tuple[KbRow, list[Touch]]]:
        """Those that were deleted or different; returns those that were not there before."""
        if not any(row.type in _KB_TYPES for row in rows):
            return []
        going = []
        for slug, line in _kb_lines(self._queries, self._records).items():
            unwound = unwind(line, self._seqs)
            for touch, by in unwound.already:
                self._keep_kb([touch], slug, f"is as it was before: undone {_by(by)}")
            if unwound.blocked:
                by = line.touches[unwound.to]
                self._keep_kb(unwound.blocked, slug, f"was changed again {_by(by)}")
            row, wanted = self._queries.kb(slug), line.state_after(unwound.to)
            if not unwound.undone:
                continue
            if wanted is None and row is not None:
                going.append((row, unwound.undone))
            elif wanted is None or (row and (row.name, row.description) == wanted):
                self._keep_kb(unwound.undone, slug, "is as it was before")
            else:
                self._bring_kb(slug, row, wanted, unwound.undone)
        return going

    def _bring_kb(
        self, slug: str, row: KbRow | None, wanted: tuple[str, str], undone: list[Touch]
    ) -> None:
        name, description = wanted
        kind = ev.KbUpdated if row else ev.KbCreated
        event = kind(slug=slug, name=name, description=description)
        self._does_kb(slug, row, undone, event, f"put knowledge base {slug} back")

    def _remove_kbs(self, going: Sequence[tuple[KbRow, list[Touch]]]) -> None:
        for row, undone in going:
            slug = row.slug
            live = self._queries.kb_counts([slug]).get(slug, (0, 0, 0))[0]
            left = live - self._hidden.get(slug, 0) + self._brought.get(slug, 0)
            if slug == DEFAULT_KB:
                self._keep_kb(undone, slug, "is always there")
            elif left:
                self._keep_kb(undone, slug, f"still holds {plural(left, 'document')}")
            else:
                event = ev.KbDeleted(slug=slug)
                self._does_kb(slug, row, undone, event, f"delete knowledge base {slug}")

    def _does_kb(
        self, slug: str, row: KbRow | None, undone: list[Touch], event: ev.Event, says: str
    ) -> None:
        self._events.append(event)
        self._kbs.append(slug)
        if row is not None:
            self._targets.append(Target(kind="kb", id=slug, name=row.name, revision=row.revision))
        self._changes.append(says)
        self._undone.update((touch.seq, touch) for touch in undone)

    # ------------------------------------------------------------- what stays, and why

    def _keep(self, touches: Sequence[Touch], id: int, title: str, says: str) -> None:
        """The title goes into the plan only: an outcome may outlive what a purge erases."""
        why = f"document {id} {says}"
        self._kept += [Kept(seq=touch.seq, document_id=id, why=why) for touch in touches]
        named = f"document {id} “{title}”" if title else f"document {id}"
        if touches:
            self._obstacles.append(f"kept: {named} {says}")

    def _keep_kb(self, touches: Sequence[Touch], slug: str, says: str) -> None:
        why = f"knowledge base {slug} {says}"
        self._kept += [Kept(seq=touch.seq, kb=slug, why=why) for touch in touches]
        if touches:
            self._obstacles.append(f"kept: {why}")

    def _keep_the_rest(self, rows: Sequence[EventRow]) -> None:
        """Records that changed nothing that could be put back."""
        for seq in sorted(self._seqs - {row.seq for row in rows}):
            lost = self._records.events(seq) is None
            why = "it was damaged and given up" if lost else "it changed nothing"
            self._kept.append(Kept(seq=seq, why=why))
            self._obstacles.append(f"kept: record {seq}: {why}")
        seen = set()
        for row in rows:
            known = row.document_id or row.type in _KB_TYPES
            if known or (row.seq, row.type) in seen:
                continue
            seen.add((row.seq, row.type))
            why = f"{row.type}: {_STAYS.get(row.type, 'such a record can not be undone')}"
            self._kept.append(Kept(seq=row.seq, kb=row.kb, why=why))
            self._obstacles.append(f"kept: record {row.seq}: {why}")
