"""Reverts records of the log.

Sessions, documents, links, knowledge bases and agents are reverted in turn; records that changed
none of these are reported as kept.

A record is reverted where nothing came after it: for each document, the records to revert that
end its timeline are taken off, and the state before them is restored. Where another record came
later, the document stays, and the plan says so. Later records that only restored an earlier state
are skipped, so that a caller can go back step by step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal, NamedTuple

from msgspec.structs import replace

from kbproc.base.settings.config import DEFAULT_KB
from kbproc.base.structs import common_members
from kbproc.base.wording import plural
from kbproc.engine.events import session as says
from kbproc.engine.events.agent import AgentDeleted, AgentWritten
from kbproc.engine.events.codec import KINDS
from kbproc.engine.events.document import DocDeleted
from kbproc.engine.events.entry import LINK_TAGS, REVIEW_TAG
from kbproc.engine.events.event import Event
from kbproc.engine.events.kb import KbCreated, KbDeleted, KbUpdated
from kbproc.engine.events.plan import PlanApproved
from kbproc.engine.log.interface import Log
from kbproc.engine.projections.catalog.queries import Queries
from kbproc.engine.projections.catalog.rows import (
    AgentRow,
    DocumentRow,
    EventRow,
    KbRow,
    SessionRow,
)
from kbproc.engine.store.decision import Decision, DecisionState
from kbproc.engine.store.target import Target
from kbproc.knowledge.documents.entry import Chains
from kbproc.knowledge.documents.lookup import is_purged
from kbproc.knowledge.documents.revision import is_bulk, targets_of
from kbproc.knowledge.history.restore import conflicting_documents, kind_of_source
from kbproc.knowledge.history.reversal import (
    KindReversal,
    StateLine,
    Subject,
    TouchLine,
    Undoing,
    by,
)
from kbproc.knowledge.history.reviews import ReviewReversal
from kbproc.knowledge.history.timeline import (
    DocumentState,
    PastRecords,
    Timeline,
    Touch,
    events_towards,
    links_after,
    touches_of,
)

_FEW_DOCUMENTS = 100
_BLOCK = 10_000
_KEPT_RECORDS = 16
_A_NOTE = "is a note: put its earlier text back with note.put; note.get with as_of shows it"

_NOUNS = {"kb": "knowledge base", "agent": "agent"}
_NAMED_TYPES: dict[Literal["kb", "agent"], frozenset[str]] = {
    "kb": frozenset(kind.tag() for kind in (KbCreated, KbUpdated, KbDeleted)),
    "agent": frozenset(kind.tag() for kind in (AgentWritten, AgentDeleted)),
}
_OF_NAMED = _NAMED_TYPES["kb"] | _NAMED_TYPES["agent"]

_ALL = 1_000_000_000
_BEGINS = frozenset({says.SessionCreated.tag(), says.QuestionAsked.tag()})
_HIDES = frozenset({says.SessionDeleted.tag(), says.QuestionWithdrawn.tag()})
_BRINGS = frozenset({says.SessionRestored.tag(), says.QuestionRestored.tag()})
_OF_SESSIONS = _BEGINS | _HIDES | _BRINGS


def revert(here: DecisionState, log: Log, seqs: Collection[int], *, left_out: int = 0) -> Decision:
    """Reverts these records as far as no later record blocks them. Raises store.corrupt.

    `left_out`: how many records of questions and answers the caller did not name.
    """
    return _RecordRevert(here, log, frozenset(seqs), left_out).decide()


class _RecordRevert:
    """Decides a revert: first the restored objects, then the removed ones."""

    def __init__(self, here: DecisionState, log: Log, seqs: frozenset[int], left_out: int) -> None:
        self._here = here
        self._queries = here.queries
        self._records = PastRecords(log, here.head.seq)
        self._seqs = seqs
        self._undoing = Undoing(left_out)

    def decide(self) -> Decision:
        rows = self._queries.events_of_records(sorted(self._seqs))
        context = self._queries, self._records, self._undoing, self._seqs
        withdrawn = _SessionReversal(*context).undo(rows)
        self._keep_irreversible(rows, withdrawn)
        named = [_NamedReversal(kind, *context) for kind in _NAMED_TYPES]
        for reversal in named:
            reversal.bring(rows)
        ids = sorted({row.document_id for row in rows if row.document_id})
        rows_of = self._rows_of(ids)
        _DocumentReversal(*context).undo(rows_of)
        _LinkReversal(*context).relink(rows_of)
        ReviewReversal(*context).undo(rows_of)
        for reversal in named:
            reversal.remove()
        hidden = Counter(self._undoing.hidden.values())
        bulk = any(is_bulk(self._here, kb, count) for kb, count in hidden.items())
        return self._undoing.decision(self._seqs, bulk=bulk)

    def _rows_of(self, ids: Sequence[int]) -> dict[int, list[EventRow]]:
        """Returns document → its events.

        Few documents take a query each; for many, one pass over all events is faster.
        """
        if len(ids) <= _FEW_DOCUMENTS:
            return {id: self._queries.events_of_document(id) for id in ids}
        rows: dict[int, list[EventRow]] = {id: [] for id in ids}
        for row in self._all_rows():
            if row.document_id in rows:
                rows[row.document_id].append(row)
        return rows

    def _all_rows(self) -> Iterator[EventRow]:
        to_seq = self._here.head.seq
        for first in range(1, to_seq + 1, _BLOCK):
            block = range(first, min(first + _BLOCK, to_seq + 1))
            yield from self._queries.events_of_records(block)

    def _keep_irreversible(self, rows: Sequence[EventRow], withdrawn: Collection[int]) -> None:
        """Reports as kept the records that changed nothing revertible.

        Answers that are withdrawn with their question are not reported.
        """
        for seq in sorted(self._seqs - {row.seq for row in rows}):
            lost = self._records.events(seq) is None
            why = "it was damaged and given up" if lost else "it changed nothing"
            self._undoing.keep_record(seq, why)
        reported = set()
        for row in rows:
            is_reverted = row.document_id or row.type in _OF_NAMED | _OF_SESSIONS
            is_reverted = is_reverted or row.type == PlanApproved.tag()
            if is_reverted or row.message_id in withdrawn or (row.seq, row.type) in reported:
                continue
            reported.add((row.seq, row.type))
            why = f"{row.type}: {KINDS.get(row.type, Event).stays}"
            self._undoing.keep_record(row.seq, why, row.kb)


# ------------------------------------------------------------------ documents


class _Reversion(NamedTuple):
    """A document that gets an earlier state back."""

    row: DocumentRow
    line: Timeline
    state: DocumentState
    undone: list[Touch]


class _DocumentReversal(KindReversal):
    """Reverts documents.

    New documents are hidden first, so that they make room for those that come back.
    """

    def change_after(self, line: TouchLine, at: int) -> str:
        return f"was {'deleted' if 'doc.deleted' in line.touches[at].types else 'changed again'}"

    def undo(self, rows_of: Mapping[int, Sequence[EventRow]]) -> None:
        """Reverts these documents. `rows_of`: document → all its events."""
        self._bring_documents(self._hide_documents(rows_of))

    def _hide_documents(self, rows_of: Mapping[int, Sequence[EventRow]]) -> list[_Reversion]:
        """Hides documents that did not exist before; returns those that had another state."""
        documents = self._queries.documents_by_id(rows_of)
        reversions = []
        for id, rows in rows_of.items():
            own_rows = [row for row in rows if row.type not in LINK_TAGS | {REVIEW_TAG}]
            line = Timeline(self._records, id, own_rows)
            reversion = self._unwound(line, documents.get(id))
            if reversion is not None:
                reversions.append(reversion)
        return reversions

    def _unwound(self, line: Timeline, row: DocumentRow | None) -> _Reversion | None:
        subject = _document(row) if row else Subject("document", line.id, f"document {line.id}")
        if row is None:
            self.keep(subject, line.touches, "was lost to damage")
        elif line.purge is not None:
            self.keep(subject._replace(title=""), line.touches, f"was purged {by(line.purge)}")
        elif row.type == "note":
            self.keep(subject, line.touches, _A_NOTE)
        elif earlier := self.earlier(subject, line):
            if earlier.state is not None and not earlier.state.deleted:
                return _Reversion(row, line, earlier.state, earlier.undone)
            self._hide(row, earlier.undone)
        return None

    def _hide(self, row: DocumentRow, undone: list[Touch]) -> None:
        self._undoing.hidden[row.id] = row.kb
        self._record(row, undone, [DocDeleted(id=row.id)], f"hide “{row.title}”")

    def _bring_documents(self, reversions: Sequence[_Reversion]) -> None:
        deleted = [reversion.state for reversion in reversions if reversion.row.deleted_at]
        conflicts = conflicting_documents(
            self._queries, deleted, leaving=self._undoing.changed["document"]
        )
        slugs = {*self._queries.kb_slugs(), *self._undoing.changed["kb"]}
        for reversion in reversions:
            row, kb = reversion.row, reversion.state.written.kb
            if kb not in slugs:
                reason = f"has no knowledge base: {kb} is gone"
                self.keep(_document(row), reversion.undone, reason)
            elif row.id in conflicts:
                same = f"which has the same {kind_of_source(reversion.state)}"
                reason = f"has made room for document {conflicts[row.id]}, {same}"
                self.keep(_document(row), reversion.undone, reason)
            else:
                self._bring(reversion)

    def _bring(self, reversion: _Reversion) -> None:
        row, state = reversion.row, reversion.state
        if row.deleted_at:
            self._undoing.brought[row.id] = row.kb
        verb = "bring back" if row.deleted_at else "put back"
        count = plural(state.chunk_count, "chunk")
        events = events_towards(reversion.line.now, state, row.revision + 1)
        self._record(row, reversion.undone, events, f"{verb} “{state.title}” ({count})")

    def _record(
        self, row: DocumentRow, undone: list[Touch], events: list[Event], change: str
    ) -> None:
        self._undoing.does(_document(row), undone, events, change, targets_of([row]))


def _document(row: DocumentRow) -> Subject:
    return Subject("document", row.id, f"document {row.id}", row.title)


# ------------------------------------------------------------------ links


class _LinkReversal(KindReversal):
    """Restores links between entries and their successors, except links to hidden entries.

    The documents to hide and to restore are decided before. An entry whose successor is hidden or
    restored is relinked, too.
    """

    same = "is linked as it was before"

    def __init__(
        self, queries: Queries, records: PastRecords, undoing: Undoing, seqs: Collection[int]
    ) -> None:
        super().__init__(queries, records, undoing, seqs)
        # Cached, because one record may concern many entries, which are examined one by one.
        self._links = lru_cache(_KEPT_RECORDS)(lambda seq: links_after(records.events(seq) or ()))
        self._undone: dict[int, list[Touch]] = {}

    def change_after(self, line: TouchLine, at: int) -> str:
        return "was linked otherwise"

    def relink(self, rows_of: Mapping[int, Sequence[EventRow]]) -> None:
        """Reverts the links of these entries. `rows_of`: entry → all its events."""
        lines = {
            id: self._line(id, rows)
            for id, rows in rows_of.items()
            if any(row.type in LINK_TAGS and row.seq in self._seqs for row in rows)
        }
        rows = self._queries.documents_by_id(lines)
        existing = [id for id in lines if id in rows and not is_purged(rows[id])]
        for id in lines.keys() - set(existing):
            self.keep(_entry(id), lines[id].touches, "is gone for good")
        successors: dict[int, int | None] = {}
        for id in existing:
            if earlier := self.earlier(_entry(id), lines[id]):
                self._undone[id], successors[id] = earlier.undone, earlier.state
        undoing = self._undoing
        ids = {*successors, *filter(None, successors.values()), *undoing.hidden, *undoing.brought}
        if not ids:
            return
        chains = Chains(self._queries, ids)
        chains.remove(undoing.hidden)
        chains.bring_back(undoing.brought)
        circles = chains.relink(
            {id: by for id, by in successors.items() if self._may_link(chains, id, by)}
        )
        for id in circles:
            self.keep(_entry(id), self._undone.pop(id), "would come to supersede itself")
        chains.settle()
        self._do(chains)

    def _line(self, id: int, rows: Sequence[EventRow]) -> StateLine:
        """Returns the successors of one entry, one per record; None: it had no successor."""
        touches = touches_of([row for row in rows if row.type in LINK_TAGS])
        successors: list[int | None] = []
        for touch in touches:
            before = successors[-1] if successors else None
            successors.append(self._links(touch.seq).get(id, before))
        return StateLine(touches, successors)

    def _may_link(self, chains: Chains, id: int, by: int | None) -> bool:
        """Returns True if the entry may have this successor; reports it otherwise.

        A hidden entry may have a hidden successor, a live one may not.
        """
        if by is None or chains.is_live(by) or not chains.is_live(id):
            return True
        reason = f"stays as it is: entry {by}, which took its place, is gone"
        self.keep(_entry(id), self._undone.pop(id), reason)
        return False

    def _do(self, chains: Chains) -> None:
        changed = chains.changed
        if not changed:
            return
        undoing, rows = self._undoing, self._queries.documents_by_id(changed)
        undoing.events += chains.events()
        for id in changed:
            successor, title = chains.successor_of(id), rows[id].title
            change = (
                "superseded no more" if successor is None else f"superseded by entry {successor}"
            )
            change, targets = f"entry {id} “{title}”: {change}", targets_of([rows[id]])
            undoing.does(_entry(id), self._undone.get(id, []), [], change, targets)
            undoing.bound.append(f"{id} superseded by {successor}")


def _entry(id: int) -> Subject:
    return Subject("document", id, f"entry {id}")


# ------------------------------------------------------------------ knowledge bases and agents


_of_kb = common_members(KbUpdated, KbCreated)


def _state(event: Event) -> Any:
    """Returns the event's state without its revision, so that equal states compare equal."""
    match event:
        case KbCreated() | KbUpdated():
            return KbUpdated(**_of_kb(event))
        case AgentWritten():
            return replace(event, revision=0)
    return None


class _Removal(NamedTuple):
    """A knowledge base or agent that did not exist before, to be removed once it is empty."""

    row: Any
    undone: list[Touch]


class _NamedReversal(KindReversal):
    """The revert of either knowledge bases or agents.

    A knowledge base that still holds documents stays, and so does an agent that still has notes.
    """

    def __init__(
        self,
        kind: Literal["kb", "agent"],
        queries: Queries,
        records: PastRecords,
        undoing: Undoing,
        seqs: Collection[int],
    ) -> None:
        super().__init__(queries, records, undoing, seqs)
        self._kind = kind
        self._removals: list[_Removal] = []

    def bring(self, rows: Sequence[EventRow]) -> None:
        """Restores deleted and changed ones; those that did not exist before wait for `remove`.

        `rows`: all events of the records to revert.
        """
        if not any(row.type in _NAMED_TYPES[self._kind] for row in rows):
            return
        for slug, line in self._lines().items():
            earlier = self.earlier(self._subject(slug), line)
            if earlier is None:
                continue
            if earlier.state is None:
                self._removals.append(_Removal(self._row(slug), earlier.undone))
            elif user := self._folder_user(earlier.state):
                reason = f"stays as it is: {user} has its folder now"
                self.keep(self._subject(slug), earlier.undone, reason)
            else:
                self._bring(earlier.state, line.states[-1] is not None, earlier.undone)

    def _lines(self) -> dict[str, StateLine]:
        """Returns by slug the states, one per record; None: it did not exist."""
        lines: dict[str, StateLine] = {}
        seqs = self._queries.matching_records(0, _ALL, sorted(_NAMED_TYPES[self._kind]), None, None)
        for touch in touches_of(self._queries.events_of_records(seqs)):
            for event in self._records.events(touch.seq) or ():
                slug = getattr(event.concerns(), self._kind)
                if slug is not None:
                    lines.setdefault(slug, StateLine()).add(touch, _state(event))
        return lines

    def _folder_user(self, state: Any) -> str | None:
        """Returns the slug of another agent that uses this one's notes folder."""
        folder = getattr(state, "folder", None)
        others = self._queries.agents() if folder else []
        return next((o.slug for o in others if o.folder == folder and o.slug != state.slug), None)

    def _subject(self, slug: str) -> Subject:
        return Subject(self._kind, slug, f"{_NOUNS[self._kind]} {slug}")

    def _row(self, slug: str) -> KbRow | AgentRow | None:
        return self._queries.kb(slug) if self._kind == "kb" else self._queries.agent(slug)

    def _bring(self, state: Any, exists: bool, undone: list[Touch]) -> None:
        row = self._row(state.slug)
        if isinstance(state, AgentWritten):
            event: Event = replace(state, revision=row.revision + 1 if row else 1)
        elif exists:
            event = state
        else:
            event = KbCreated(**_of_kb(state))
        self._record(state.slug, row if exists else None, undone, event, "put {} back")

    def remove(self) -> None:
        """Deletes those that did not exist before, or reports why they stay."""
        event_type: Callable[..., Event] = KbDeleted if self._kind == "kb" else AgentDeleted
        for row, undone in self._removals:
            if obstacle := self._obstacle(row):
                self.keep(self._subject(row.slug), undone, obstacle)
            else:
                self._record(row.slug, row, undone, event_type(slug=row.slug), "delete {}")

    def _obstacle(self, row: Any) -> str:
        slug = row.slug
        if self._kind == "agent":
            notes = self._queries.notes_count(slug)
            return f"still has {plural(notes, 'note')}" if notes else ""
        if slug == DEFAULT_KB:
            return "is always there"
        kbs = list(self._undoing.hidden.values()), list(self._undoing.brought.values())
        live = self._queries.kb_counts([slug]).get(slug, (0, 0, 0))[0]
        remaining = live - kbs[0].count(slug) + kbs[1].count(slug)
        return f"still holds {plural(remaining, 'document')}" if remaining else ""

    def _record(self, slug: str, row: Any, undone: list[Touch], event: Event, change: str) -> None:
        targets = []
        if row is not None:
            name = getattr(row, "name", slug)
            targets = [Target(kind=self._kind, id=slug, name=name, revision=row.revision)]
        subject = self._subject(slug)
        self._undoing.does(subject, undone, [event], change.format(subject.name), targets)


# ------------------------------------------------------------------ sessions


class _SessionReversal(KindReversal):
    """Reverts questions, then sessions, since a session without a remaining question may go.

    An answer is hidden and restored with its question. A session whose creation is reverted is
    hidden once no other question remains in it.
    """

    def __init__(
        self, queries: Queries, records: PastRecords, undoing: Undoing, seqs: Collection[int]
    ) -> None:
        super().__init__(queries, records, undoing, seqs)
        self._added: dict[int, int] = {}  # session → questions restored less those withdrawn
        self._withdrawn: list[int] = []

    def change_after(self, line: TouchLine, at: int) -> str:
        return f"was {'brought back' if line.state_after(at) else 'hidden'}"

    def undo(self, rows: Sequence[EventRow]) -> Collection[int]:
        """Reverts the records of `rows`; returns the questions that are hidden with their answers.

        `rows`: all events of the records to revert.
        """
        own_rows = [row for row in rows if row.type in _OF_SESSIONS]
        if not own_rows:
            return ()
        seqs = self._queries.matching_records(0, _ALL, sorted(_HIDES | _BRINGS), None, None)
        rare = self._queries.events_of_records(seqs)
        every = [row for row in own_rows if row.type in _BEGINS]
        every += [row for row in rare if row.type in _HIDES | _BRINGS]
        for id in sorted({row.message_id for row in own_rows if row.message_id}):
            line = _visibility_line([row for row in every if row.message_id == id])
            answer = [row for row in rows if row.message_id == id and row.type not in _OF_SESSIONS]
            self._question(id, line, touches_of(answer))
        for id in sorted({row.session_id or 0 for row in own_rows if not row.message_id}):
            own = [row for row in every if row.session_id == id and not row.message_id]
            self._session(id, _visibility_line(own))
        return self._withdrawn

    def _question(self, id: int, line: StateLine, answer: list[Touch]) -> None:
        row = self._queries.message(id)
        session = self._queries.session(row.session_id) if row else None
        subject = Subject("session", session.id if session else 0, f"question {id}")
        if row is None or session is None:
            self.keep(subject, line.touches, "was purged")
        elif row.status is None:
            self.keep(subject, line.touches, "is being answered: session.stop ends that")
        elif earlier := self.earlier(subject, line):
            back, undone = earlier.state, earlier.undone
            self._added[session.id] = self._added.get(session.id, 0) + (1 if back else -1)
            event_type = says.QuestionRestored if back else says.QuestionWithdrawn
            change = f"bring question {id} back" if back else f"hide question {id} and its answer"
            if not back:
                self._withdrawn.append(id)
                undone = [*undone, *answer]
            event = event_type(session=session.id, message=id)
            self._undoing.does(subject, undone, [event], change, _targets(session))

    def _session(self, id: int, line: StateLine) -> None:
        row, subject = self._queries.session(id), Subject("session", id, f"session {id}")
        if row is None or row.purged:
            self.keep(subject, line.touches, "was purged")
        elif earlier := self.earlier(subject, line):
            back, undone = earlier.state, earlier.undone
            remaining = row.message_count + self._added.get(id, 0)
            if remaining and earlier.is_first and not back:
                self.keep(subject, undone, f"still holds {plural(remaining, 'question')}")
                return
            event = (says.SessionRestored if back else says.SessionDeleted)(session=id)
            named = f"session {id} “{row.title}”"
            change = f"bring {named} back" if back else f"hide {named}"
            self._undoing.does(subject, undone, [event], change, _targets(row))


def _targets(row: SessionRow) -> list[Target]:
    return [Target(kind="session", id=row.id, name=row.title, revision=row.message_count)]


def _visibility_line(rows: Sequence[EventRow]) -> StateLine:
    """Returns the visibility of a session or question, one per record, oldest first.

    The record that created it is included only where it is to be reverted.
    """
    touches = touches_of(sorted(rows, key=lambda row: (row.seq, row.idx)))
    is_visible = [touch.types.isdisjoint(_HIDES) for touch in touches]
    return StateLine(touches, is_visible, before=touches[0].types.isdisjoint(_BEGINS))
