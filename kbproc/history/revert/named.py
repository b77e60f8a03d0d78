"""Undoing what happened to knowledge bases and agents.

Owns: what each was after every record, and how far it can go back.
Refuses to know: documents, and what else a record did.

A knowledge base that still holds documents stays, and so does an agent that still has
notes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from kbproc.base.wording import plural
from kbproc.events.agent import AgentDeleted, AgentWritten
from kbproc.events.event import Event
from kbproc.events.kb import KbCreated, KbDeleted, KbUpdated
from kbproc.history.revert.undoing import Undoing, by
from kbproc.history.revert.unwind import unwind
from kbproc.history.timeline import PastRecords, Touch, touches_of
from kbproc.settings.config import DEFAULT_KB
from kbproc.store.decision import Here, Target
from kbproc.views.catalog.queries.all import Queries
from kbproc.views.catalog.rows import AgentRow, EventRow, KbRow

_ALL = 1_000_000_000

TYPES = {
    "kb": frozenset(kind.tag() for kind in (KbCreated, KbUpdated, KbDeleted)),
    "agent": frozenset(kind.tag() for kind in (AgentWritten, AgentDeleted)),
}
KNOWN = TYPES["kb"] | TYPES["agent"]


class _Line:
    """What something was after each record, as its event says; None: it was not there."""

    def __init__(self) -> None:
        self.touches: list[Touch] = []
        self.states: list[Any] = []

    def state_after(self, index: int) -> Any:
        return self.states[index] if index >= 0 else None

    def alike(self, one: int, other: int) -> bool:
        return bool(self.state_after(one) == self.state_after(other))


def _state(event: Event) -> Any:
    """Without what counts its revisions."""
    match event:
        case KbCreated() | KbUpdated():
            return KbUpdated(slug=event.slug, name=event.name, description=event.description)
        case AgentWritten():
            return replace(event, revision=0)
    return None


def _lines(queries: Queries, records: PastRecords, kind: str) -> dict[str, _Line]:
    lines: dict[str, _Line] = {}
    seqs = queries.matching_records(0, _ALL, sorted(TYPES[kind]), None, None)
    for touch in touches_of(queries.events_of_records(seqs)):
        for event in records.events(touch.seq) or ():
            slug = getattr(event.concerns(), kind)
            if slug is not None:
                line = lines.setdefault(slug, _Line())
                line.touches.append(touch)
                line.states.append(_state(event))
    return lines


class Going(NamedTuple):
    """What was not there before, and goes once nothing is left in it."""

    row: Any
    undone: list[Touch]


def bring(
    here: Here,
    records: PastRecords,
    undoing: Undoing,
    seqs: Collection[int],
    rows: Sequence[EventRow],
) -> dict[str, list[Going]]:
    """Puts back what was deleted or different; returns what was not there before, by kind."""
    going: dict[str, list[Going]] = {}
    for kind, types in TYPES.items():
        if any(row.type in types for row in rows):
            going[kind] = _Named(here, undoing, kind).bring(records, seqs)
    return going


def remove(here: Here, undoing: Undoing, going: dict[str, list[Going]]) -> None:
    for kind, those in going.items():
        for one in those:
            _Named(here, undoing, kind).remove(one)


class _Named:
    """Either the knowledge bases or the agents."""

    def __init__(self, here: Here, undoing: Undoing, kind: str) -> None:
        self._queries = here.queries
        self._undoing = undoing
        self._kind = kind

    def bring(self, records: PastRecords, seqs: Collection[int]) -> list[Going]:
        going = []
        for slug, line in _lines(self._queries, records, self._kind).items():
            unwound = unwind(line, seqs)
            for touch, other in unwound.already:
                self._keep([touch], slug, f"is as it was before: undone {by(other)}")
            if unwound.blocked:
                last = line.touches[unwound.to]
                self._keep(unwound.blocked, slug, f"was changed again {by(last)}")
            if not unwound.undone:
                continue
            wanted, now = line.state_after(unwound.to), line.states[-1]
            if wanted == now:
                self._keep(unwound.undone, slug, "is as it was before")
            elif wanted is None:
                going.append(Going(self._row(slug), unwound.undone))
            elif taker := self._taker(wanted):
                self._keep(unwound.undone, slug, f"stays as it is: {taker} has its folder now")
            else:
                self._bring(wanted, now is not None, unwound.undone)
        return going

    def _taker(self, wanted: Any) -> str | None:
        """The agent that keeps its notes where this one did."""
        folder = getattr(wanted, "folder", None)
        others = self._queries.agents() if folder else []
        return next((o.slug for o in others if o.folder == folder and o.slug != wanted.slug), None)

    def _row(self, slug: str) -> KbRow | AgentRow | None:
        return self._queries.kb(slug) if self._kind == "kb" else self._queries.agent(slug)

    def _bring(self, wanted: Any, there: bool, undone: list[Touch]) -> None:
        row = self._row(wanted.slug)
        if isinstance(wanted, AgentWritten):
            event: Event = replace(wanted, revision=row.revision + 1 if row else 1)
        elif there:
            event = wanted
        else:
            event = KbCreated(slug=wanted.slug, name=wanted.name, description=wanted.description)
        self._does(wanted.slug, row if there else None, undone, event, "put {} back")

    def remove(self, going: Going) -> None:
        """Raises nothing: what can't go stays, and it is said why."""
        row, undone = going
        why = self._why_not(row)
        if why:
            self._keep(undone, row.slug, why)
            return
        kind: Callable[..., Event] = KbDeleted if self._kind == "kb" else AgentDeleted
        self._does(row.slug, row, undone, kind(slug=row.slug), "delete {}")

    def _why_not(self, row: Any) -> str:
        slug = row.slug
        if self._kind == "agent":
            notes = self._queries.notes_count(slug)
            return f"still has {plural(notes, 'note')}" if notes else ""
        if slug == DEFAULT_KB:
            return "is always there"
        kbs = list(self._undoing.hidden.values()), list(self._undoing.brought.values())
        live = self._queries.kb_counts([slug]).get(slug, (0, 0, 0))[0]
        left = live - kbs[0].count(slug) + kbs[1].count(slug)
        return f"still holds {plural(left, 'document')}" if left else ""

    def _does(self, slug: str, row: Any, undone: list[Touch], event: Event, says: str) -> None:
        targets = []
        if row is not None:
            name = getattr(row, "name", slug)
            targets = [Target(kind=self._kind, id=slug, name=name, revision=row.revision)]
        what = "knowledge base" if self._kind == "kb" else "agent"
        self._undoing.does(undone, [event], says.format(f"{what} {slug}"), targets)
        self._undoing.names[self._kind].append(slug)

    def _keep(self, touches: Sequence[Touch], slug: str, says: str) -> None:
        self._undoing.keep_named(self._kind, touches, slug, says)
