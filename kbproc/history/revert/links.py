"""Undoing which entry took the place of which.

Owns: what superseded an entry after every record, how far that can go back, and
what becomes of entries whose successor comes or goes.
Refuses to know: texts, and how documents go back (history/restore.py).

Only the link is undone here; that an entry is hidden or comes back is known already.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import lru_cache

from kbproc.documents.chains import Chains
from kbproc.documents.deletion import targets_of
from kbproc.documents.lookup import is_purged
from kbproc.events.entry import LINK_TAGS, EntryRevived, EntrySuperseded
from kbproc.events.event import Event
from kbproc.history.revert.undoing import Undoing, by
from kbproc.history.revert.unwind import unwind
from kbproc.history.timeline import PastRecords, Touch, touches_of
from kbproc.store.decision import Here
from kbproc.views.catalog.rows import EventRow

LinksOf = Callable[[int], dict[int, int | None]]
_KEPT_RECORDS = 16


class LinkLine:
    """What superseded one entry after each record, None for nothing; oldest first."""

    def __init__(self, links: LinksOf, id: int, rows: Sequence[EventRow]) -> None:
        """`links`: what a record leaves its entries linked with."""
        self.touches = touches_of([row for row in rows if row.type in LINK_TAGS])
        self._states: list[int | None] = []
        for touch in self.touches:
            before = self._states[-1] if self._states else None
            self._states.append(links(touch.seq).get(id, before))

    def state_after(self, index: int) -> int | None:
        return self._states[index] if index >= 0 else None

    def alike(self, one: int, other: int) -> bool:
        return self.state_after(one) == self.state_after(other)


def links_after(events: Iterable[Event]) -> dict[int, int | None]:
    """Entry → what supersedes it after these events, for those that they concern."""
    links: dict[int, int | None] = {}
    for event in events:
        if isinstance(event, EntrySuperseded):
            links[event.id] = event.by
        elif isinstance(event, EntryRevived):
            links.update(dict.fromkeys(event.ids))
    return links


def relink(
    here: Here,
    records: PastRecords,
    undoing: Undoing,
    seqs: Collection[int],
    rows_of: Mapping[int, Sequence[EventRow]],
) -> None:
    """Links as they were before these records, and none to what is hidden now.

    `rows_of`: entry → all that happened to it.
    """
    _Links(here, records, undoing).relink(seqs, rows_of)


class _Links:
    def __init__(self, here: Here, records: PastRecords, undoing: Undoing) -> None:
        self._queries = here.queries
        # One record may concern many entries, which are looked at one after another.
        self._links = lru_cache(_KEPT_RECORDS)(lambda seq: links_after(records.events(seq) or ()))
        self._undoing = undoing
        self._undone: dict[int, list[Touch]] = {}

    def relink(self, seqs: Collection[int], rows_of: Mapping[int, Sequence[EventRow]]) -> None:
        lines = {
            id: LinkLine(self._links, id, rows)
            for id, rows in rows_of.items()
            if any(row.type in LINK_TAGS and row.seq in seqs for row in rows)
        }
        rows = self._queries.documents_by_id(lines)
        there = [id for id in lines if id in rows and not is_purged(rows[id])]
        for id in lines.keys() - set(there):
            touches = [touch for touch in lines[id].touches if touch.seq in seqs]
            self._keep(touches, id, "is gone for good")
        wanted = {id: by for id in there for by in self._unwound(id, lines[id], seqs)}
        undoing = self._undoing
        ids = {*wanted, *filter(None, wanted.values()), *undoing.hidden, *undoing.brought}
        if not ids:
            return
        chains = Chains(self._queries, ids)
        chains.remove(undoing.hidden)
        chains.bring(undoing.brought)
        circles = chains.relink({id: by for id, by in wanted.items() if self._may(chains, id, by)})
        for id in circles:
            self._keep(self._undone.pop(id), id, "would come to supersede itself")
        chains.settle()
        self._do(chains)

    def _unwound(self, id: int, line: LinkLine, seqs: Collection[int]) -> list[int | None]:
        """What is to supersede it, if that is to change."""
        unwound = unwind(line, seqs)
        for touch, other in unwound.already:
            self._keep([touch], id, f"is linked as it was before: undone {by(other)}")
        if unwound.blocked:
            last = line.touches[unwound.to]
            self._keep(unwound.blocked, id, f"was linked otherwise {by(last)}")
        if not unwound.undone:
            return []
        if line.alike(unwound.to, len(line.touches) - 1):
            self._keep(unwound.undone, id, "is linked as it was before")
            return []
        self._undone[id] = unwound.undone
        return [line.state_after(unwound.to)]

    def _may(self, chains: Chains, id: int, by: int | None) -> bool:
        """A hidden entry may be linked with what is hidden, a live one may not."""
        if by is None or chains.is_live(by) or not chains.is_live(id):
            return True
        says = f"stays as it is: entry {by}, which took its place, is gone"
        self._keep(self._undone.pop(id), id, says)
        return False

    def _keep(self, touches: Sequence[Touch], id: int, says: str) -> None:
        self._undoing.keep(touches, says, id=id, what="entry")

    def _do(self, chains: Chains) -> None:
        changed = chains.changed
        if not changed:
            return
        undoing, rows = self._undoing, self._queries.documents_by_id(changed)
        undoing.events += chains.events()
        for id in changed:
            now, title = chains.by(id), rows[id].title
            says = "superseded no more" if now is None else f"superseded by entry {now}"
            targets = [] if id in undoing.ids else targets_of([rows[id]])
            undoing.does(self._undone.get(id, []), [], f"entry {id} “{title}”: {says}", targets)
            undoing.bound.append(f"{id} superseded by {now}")
            undoing.ids[id] = None
