"""Collects the parts of a revert, and finds how far records can be taken off an object's history.

The parts are events, changes and obstacles; together they make the revert's result and plan.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import Any, Literal, NamedTuple, Protocol

from msgspec import UNSET, Struct, UnsetType

from kbproc.base.wording import plural
from kbproc.engine.events.event import Event
from kbproc.engine.projections.catalog.queries import Queries
from kbproc.engine.store.decision import Decision
from kbproc.engine.store.target import Target
from kbproc.knowledge.history.timeline import BRINGS_BACK, PastRecords, Touch, Unknown

MOST_LISTED = 1000


class Reverted(Struct, kw_only=True, frozen=True):
    """A record that was reverted, wholly or in part."""

    seq: int
    ts: str
    actor: str
    method: str


class Kept(Struct, kw_only=True, frozen=True):
    """A part of record `seq` that was not undone, and why."""

    seq: int
    why: str
    document_id: int | None = None
    kb: str | None = None
    agent: str | None = None


class Reversal(Struct, kw_only=True, frozen=True):
    """The result of a revert. `documents`, `kbs`, `agents` and `sessions` list what changed; `ids`
    and `kept` hold the first thousand. `left_out`: records of questions and answers."""

    reverted: list[Reverted]
    documents: int
    ids: list[int]
    kbs: list[str]
    kept: list[Kept]
    hint: str | None = None
    agents: list[str] = []
    sessions: list[int] = []
    left_out: int | UnsetType = UNSET


class Subject(NamedTuple):
    """An object that a revert concerns, as reports name it.

    Its title goes into the plan only, because an outcome may outlive a purge of the title.
    """

    kind: Literal["document", "kb", "agent", "session"]
    id: int | str
    name: str
    title: str = ""


_MEMBERS = {"document": "document_id", "kb": "kb", "agent": "agent"}  # kind → member of `Kept`


def by(touch: Touch) -> str:
    return f"at seq {touch.seq} by {touch.actor}"


class Undoing:
    """The revert so far: each kind of object adds its parts."""

    def __init__(self, left_out: int) -> None:
        """`left_out`: how many records of questions and answers are not to be reverted."""
        self._left_out = left_out
        self.events: list[Event] = []
        self.hidden: dict[int, str] = {}  # document → its knowledge base
        self.brought: dict[int, str] = {}
        # kind → ids or slugs of its changed objects, in order
        self.changed: dict[str, dict[Any, None]] = defaultdict(dict)
        self.bound: list[str] = []
        self._targets: list[Target] = []
        self._changes: list[str] = []
        self._obstacles: list[str] = []
        self._stays: list[Kept] = []
        self._undone: dict[int, Touch] = {}

    def does(
        self,
        subject: Subject,
        undone: Sequence[Touch],
        events: Sequence[Event],
        change: str,
        targets: Sequence[Target] = (),
    ) -> None:
        """Adds a change of an object; `targets` are added with its first change only."""
        if subject.id not in self.changed[subject.kind]:
            self._targets += targets
        self.changed[subject.kind][subject.id] = None
        self.events += events
        self._changes.append(change)
        self._undone.update((touch.seq, touch) for touch in undone)

    def keep(self, subject: Subject, touches: Sequence[Touch], reason: str) -> None:
        """Reports an object that stays."""
        why, member = f"{subject.name} {reason}", _MEMBERS.get(subject.kind)
        named: dict[str, Any] = {} if member is None else {member: subject.id}
        self._stays += [Kept(seq=touch.seq, why=why, **named) for touch in touches]
        if touches:
            title = f" “{subject.title}”" if subject.title else ""
            self._obstacles.append(f"kept: {subject.name}{title} {reason}")

    def keep_record(self, seq: int, why: str, kb: str | None = None) -> None:
        self._stays.append(Kept(seq=seq, kb=kb, why=why))
        self._obstacles.append(f"kept: record {seq}: {why}")

    def decision(self, seqs: frozenset[int], *, bulk: bool) -> Decision:
        undone = [touch for _, touch in sorted(self._undone.items())]
        data = Reversal(
            reverted=[Reverted(seq=t.seq, ts=t.ts, actor=t.actor, method=t.method) for t in undone],
            documents=len(self.changed["document"]),
            ids=sorted(self.changed["document"])[:MOST_LISTED],
            kbs=list(self.changed["kb"]),
            agents=list(self.changed["agent"]),
            sessions=list(self.changed["session"]),
            kept=sorted(self._stays, key=lambda part: part.seq)[:MOST_LISTED],
            left_out=self._left_out or UNSET,
            hint=None if self.events else self._why_nothing(),
        )
        total = f"undo {len(undone)} of {plural(len(seqs), 'record')}"
        changed = [plural(len(self.changed["document"]), "document")]
        if sessions := self.changed["session"]:
            changed.append(plural(len(sessions), "session"))
        count = f"{total}: {' and '.join(changed)} changed, {len(self._stays)} kept"
        return Decision(
            events=self.events,
            data=data,
            targets=self._targets,
            changes=[count, *self._left_out_in_words(), *self._obstacles, *self._changes],
            bound=[*(f"record {seq}" for seq in sorted(seqs)), *self.bound],
            bulk=bulk,
        )

    def _why_nothing(self) -> str:
        if self._left_out and not self._stays:
            return "Only questions and answers were written: sessions: true undoes them, too."
        return "There is nothing to revert; kept says why."

    def _left_out_in_words(self) -> list[str]:
        if not self._left_out:
            return []
        records = f"{plural(self._left_out, 'record')} of questions and answers"
        return [f"left out: {records}; sessions: true (--sessions) includes them"]


class TouchLine(Protocol):
    """The touches of one object, oldest first, and a comparison of the states after them."""

    touches: list[Touch]

    def state_after(self, index: int) -> Any: ...
    def alike(self, one: int, other: int) -> bool: ...


class StateLine:
    """The states of one object, one per record that touched it, oldest first."""

    def __init__(
        self,
        touches: Sequence[Touch] = (),
        states: Sequence[Any] = (),
        before: Any = None,
    ) -> None:
        """`before`: the state before the first touch; None: it did not exist."""
        self.touches = list(touches)
        self.states = list(states)
        self._before = before

    def add(self, touch: Touch, state: Any) -> None:
        self.touches.append(touch)
        self.states.append(state)

    def state_after(self, index: int) -> Any:
        return self.states[index] if index >= 0 else self._before

    def alike(self, one: int, other: int) -> bool:
        return bool(self.state_after(one) == self.state_after(other))


class Unwound(NamedTuple):
    """The result of `unwind`.

    `to`: the touch to go back to, -1 for before the first. `already`: a touch, and the touch that
    has undone it. `blocked`: touches that can't be undone because of the touch at `to`.
    """

    to: int
    undone: list[Touch]
    already: list[tuple[Touch, Touch]]
    blocked: list[Touch]


def unwind(line: TouchLine, seqs: Collection[int]) -> Unwound:
    """Takes records off the end, as long as they are among `seqs`."""
    at = len(line.touches) - 1
    undone: list[Touch] = []
    already: list[tuple[Touch, Touch]] = []
    while at >= 0:
        touch = line.touches[at]
        if touch.seq in seqs:
            undone.append(touch)
            at -= 1
            continue
        same = _restored_index(line, at)
        if same is None:
            break
        between = line.touches[same + 1 : at]
        already += [(other, touch) for other in between if other.seq in seqs]
        at = same
    return Unwound(at, undone, already, [t for t in line.touches[: at + 1] if t.seq in seqs])


def _restored_index(line: TouchLine, at: int) -> int | None:
    """Returns the index of the touch whose state this touch only restored; None for any other."""
    if line.touches[at].method not in BRINGS_BACK:
        return None
    return next((i for i in range(at - 1, -2, -1) if line.alike(i, at)), None)


class EarlierState(NamedTuple):
    """The state that an object gets back. `is_first`: before its first record; None: it was not."""

    state: Any
    undone: list[Touch]
    is_first: bool


class KindReversal:
    """The revert of one kind of object: takes records off, and reports objects that stay.

    Reports give `same` as the reason where the state is the earlier one, and `lost` where the log
    lacks the earlier one.
    """

    same = "is as it was before"
    lost = "was something that the log has lost since"

    def __init__(
        self, queries: Queries, records: PastRecords, undoing: Undoing, seqs: Collection[int]
    ) -> None:
        self._queries = queries
        self._records = records
        self._undoing = undoing
        self._seqs = seqs

    def change_after(self, line: TouchLine, at: int) -> str:
        """Returns what the touch at `at`, which blocks earlier ones, has done to the object."""
        return "was changed again"

    def earlier(self, subject: Subject, line: TouchLine) -> EarlierState | None:
        """Returns the state before the records to revert; None for an object that stays."""
        unwound = unwind(line, self._seqs)
        for touch, other in unwound.already:
            self.keep(subject, [touch], f"{self.same}: undone {by(other)}")
        if unwound.blocked:
            change = self.change_after(line, unwound.to)
            self.keep(subject, unwound.blocked, f"{change} {by(line.touches[unwound.to])}")
        if not unwound.undone:
            return None
        state = line.state_after(unwound.to)
        if isinstance(state, Unknown):
            self.keep(subject, unwound.undone, self.lost)
        elif line.alike(unwound.to, len(line.touches) - 1):
            self.keep(subject, unwound.undone, self.same)
        else:
            return EarlierState(state, unwound.undone, unwound.to < 0)
        return None

    def keep(self, subject: Subject, touches: Sequence[Touch], reason: str) -> None:
        """Reports that an object stays as these touches made it, so far as they are to go."""
        chosen = [touch for touch in touches if touch.seq in self._seqs]
        self._undoing.keep(subject, chosen, reason)
