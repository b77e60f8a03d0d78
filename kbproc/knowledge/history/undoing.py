"""What becomes of a revert while it is worked out.

Owns: the events that undo, what they change, what has to stay as it is and why, and the
answer and the plan made of these.
Refuses to know: how far each thing can go back.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from kbproc.base.wording import plural
from kbproc.events.event import Event
from kbproc.history.timeline import Touch
from kbproc.store.decision import Decision, Target

MOST_LISTED = 1000


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
    agent: str | None = None


class Reversal(Struct, kw_only=True, frozen=True):
    """What was undone. `documents`, `kbs`, `agents` and `sessions` tell what changed; `ids` and
    `kept` hold the first thousand."""

    reverted: list[Reverted]
    documents: int
    ids: list[int]
    kbs: list[str]
    kept: list[Kept]
    hint: str | None = None
    agents: list[str] = []
    sessions: list[int] = []


def by(touch: Touch) -> str:
    return f"at seq {touch.seq} by {touch.actor}"


class Undoing:
    """Filled by what works out sessions, documents, links, knowledge bases and agents in turn."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.ids: dict[int, None] = {}
        self.hidden: dict[int, str] = {}  # document → its knowledge base
        self.brought: dict[int, str] = {}
        self.names: dict[str, list[str]] = {"kb": [], "agent": []}
        self.sessions: dict[int, None] = {}
        self.bound: list[str] = []
        self._targets: list[Target] = []
        self._changes: list[str] = []
        self._obstacles: list[str] = []
        self._kept: list[Kept] = []
        self._undone: dict[int, Touch] = {}

    def does(
        self,
        undone: Sequence[Touch],
        events: Sequence[Event],
        says: str,
        targets: Sequence[Target] = (),
    ) -> None:
        self.events += events
        self._targets += targets
        self._changes.append(says)
        self._undone.update((touch.seq, touch) for touch in undone)

    def keep(
        self, touches: Sequence[Touch], says: str, *, id: int, title: str = "", what: str
    ) -> None:
        """The title goes into the plan only: an outcome may outlive what a purge erases."""
        why = f"{what} {id} {says}"
        self._kept += [Kept(seq=touch.seq, document_id=id, why=why) for touch in touches]
        named = f"{what} {id} “{title}”" if title else f"{what} {id}"
        if touches:
            self._obstacles.append(f"kept: {named} {says}")

    def keep_named(self, kind: str, touches: Sequence[Touch], slug: str, says: str) -> None:
        why = f"{'knowledge base' if kind == 'kb' else kind} {slug} {says}"
        for touch in touches:
            kb, agent = (slug, None) if kind == "kb" else (None, slug)
            self._kept.append(Kept(seq=touch.seq, why=why, kb=kb, agent=agent))
        if touches:
            self._obstacles.append(f"kept: {why}")

    def keep_of_session(self, touches: Sequence[Touch], why: str) -> None:
        self._kept += [Kept(seq=touch.seq, why=why) for touch in touches]
        if touches:
            self._obstacles.append(f"kept: {why}")

    def keep_record(self, seq: int, why: str, kb: str | None = None) -> None:
        self._kept.append(Kept(seq=seq, kb=kb, why=why))
        self._obstacles.append(f"kept: record {seq}: {why}")

    def decision(self, seqs: frozenset[int], *, bulk: bool) -> Decision:
        undone = [touch for _, touch in sorted(self._undone.items())]
        data = Reversal(
            reverted=[Reverted(seq=t.seq, ts=t.ts, actor=t.actor, method=t.method) for t in undone],
            documents=len(self.ids),
            ids=sorted(self.ids)[:MOST_LISTED],
            kbs=self.names["kb"],
            agents=self.names["agent"],
            sessions=list(self.sessions),
            kept=sorted(self._kept, key=lambda kept: kept.seq)[:MOST_LISTED],
            hint=None if self.events else "There is nothing to revert; kept says why.",
        )
        total = f"undo {len(undone)} of {plural(len(seqs), 'record')}"
        changed = [plural(len(self.ids), "document")]
        if self.sessions:
            changed.append(plural(len(self.sessions), "session"))
        count = f"{total}: {' and '.join(changed)} changed, {len(self._kept)} kept"
        return Decision(
            events=self.events,
            data=data,
            targets=self._targets,
            changes=[count, *self._obstacles, *self._changes],
            bound=[*(f"record {seq}" for seq in sorted(seqs)), *self.bound],
            bulk=bulk,
        )
