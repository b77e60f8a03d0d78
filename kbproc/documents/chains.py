"""Chains of entries as they will be once some are deleted, come back or are relinked.

Owns: that no live entry is superseded by a deleted one, that no chain runs in a circle, and the
events that lead there.
Refuses to know: why any of it happens, texts, and who may do it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping

from kbproc.base.errors import KbprocError
from kbproc.events.entry import EntryRevived, EntrySuperseded
from kbproc.events.event import Event
from kbproc.views.catalog.queries.all import Queries
from kbproc.views.catalog.rows import EntryRow


def check_link(queries: Queries, old: EntryRow, new: EntryRow) -> None:
    """Whether `new` may supersede `old`.

    Raises input.invalid_params, knowledge.cycle, resource.conflict.
    """
    if old.kb != new.kb:
        raise KbprocError(
            "input.invalid_params",
            f"Entry {old.id} is in {old.kb}, entry {new.id} in {new.kb}: both must be in one kb.",
            field="$.params.new_id",
            hint=f"Store the new entry in {old.kb}.",
        )
    if old.id == new.id or _stands_behind(queries, new, old):
        raise KbprocError(
            "knowledge.cycle",
            f"Entry {old.id} already stands in the place of entry {new.id}."
            if old.id != new.id
            else f"Entry {old.id} can't supersede itself.",
            field="$.params.new_id",
            hint=f"Entry {new.head} is the one that holds now."
            if old.id != new.id
            else "Store a new entry and let that supersede it.",
            detail={"head": new.head},
        )
    if old.superseded_by is not None:
        raise KbprocError(
            "resource.conflict",
            f"Entry {old.id} is superseded by entry {old.superseded_by} already.",
            field="$.params.old_id",
            hint=f"Supersede entry {old.head}, which holds now, or undo it first: "
            f"knowledge.unsupersede, old_id {old.id}, new_id {old.superseded_by}.",
            detail={"superseded_by": old.superseded_by, "head": old.head},
        )


def _stands_behind(queries: Queries, entry: EntryRow, other: EntryRow) -> bool:
    """Whether `other` comes later than `entry` in its chain.

    An entry that nothing supersedes can only be the chain's head.
    """
    if entry.head != other.head:
        return False
    if other.superseded_by is None:
        return True
    by = queries.successors(entry.head)
    id: int | None = entry.id
    while id is not None and id != other.id:
        id = by.get(id)
    return id == other.id


class Chains:
    """Everything that is linked with these entries; ids of other documents are passed over."""

    def __init__(self, queries: Queries, ids: Collection[int]) -> None:
        rows = queries.chains(list(ids))
        self._was = {id: row.superseded_by for id, row in rows.items()}
        self._by = dict(self._was)
        self._live = {id for id, row in rows.items() if row.live}

    def is_live(self, id: int | None) -> bool:
        return id in self._live

    def by(self, id: int) -> int | None:
        """What supersedes it directly."""
        return self._by.get(id)

    def remove(self, ids: Collection[int]) -> None:
        self._live -= set(ids)

    def bring(self, ids: Collection[int]) -> None:
        self._live |= self._by.keys() & set(ids)

    def relink(self, wanted: Mapping[int, int | None]) -> list[int]:
        """`wanted`: entry → what is to supersede it. Returns those that would close a circle."""
        self._by.update((id, None) for id, by in wanted.items() if by is None)
        left = {id: by for id, by in wanted.items() if by is not None}
        # A link that closes a circle now may be possible once another entry is relinked.
        while free := next((id for id, by in left.items() if not self._leads(by, id)), None):
            self._by[free] = left.pop(free)
        return list(left)

    def _leads(self, start: int, to: int) -> bool:
        at: int | None = start
        while at is not None and at != to:
            at = self._by.get(at)
        return at == to

    def settle(self) -> None:
        """A live entry that a deleted one supersedes gets the next live entry instead, or none."""
        for id in self._live:
            by = self._by[id]
            while by is not None and by not in self._live:
                by = self._by.get(by)
            self._by[id] = by

    @property
    def changed(self) -> list[int]:
        return sorted(id for id, was in self._was.items() if self._by[id] != was)

    def events(self) -> list[Event]:
        """Entries are freed first and linked then, so that every head comes out right."""
        revived: dict[int, list[int]] = defaultdict(list)
        linked: list[Event] = []
        for id in self.changed:
            was, by = self._was[id], self._by[id]
            if was is not None:
                revived[was].append(id)
            if by is not None:
                linked.append(EntrySuperseded(id=id, by=by, was=was))
        freed = [EntryRevived(ids=ids, was=was) for was, ids in sorted(revived.items())]
        return [*freed, *linked]
