"""The fold of which entry takes the place of which.

Owns: who supersedes whom, and the head of every chain.
Refuses to know: texts, and whether any of it was allowed: that was decided before.

An entry is its own head until something supersedes it; from then on it and all that
it stands for have the head of what came in its place. So `head` is always the
entry that holds now, however long the chain.
"""

from __future__ import annotations

from collections import defaultdict

from kbproc.events.entry import EntryRevived, EntrySuperseded
from kbproc.log.record import Record
from kbproc.views.catalog.batch import Batch, Tables


class Links:
    """An entry, what supersedes it, the record's seq: in order.

    Many at once: one at a time takes 3 ms each among ten thousand entries.
    """

    def __init__(self) -> None:
        self._links: list[tuple[int, int, int]] = []

    def __len__(self) -> int:
        return len(self._links)

    def add(self, id: int, by: int, seq: int) -> None:
        self._links.append((id, by, seq))

    def flush(self, db: Tables) -> None:
        """A purged entry has no row any more: then the others stand as they would with it."""
        known = db.execute(
            "select id, head from documents where head is not null and "
            "id in (select unnest(?::bigint[]))",
            [[by for _, by, _ in self._links]],
        ).fetchall()
        head_of: dict[int, int] = dict(known)
        moved: dict[int, int] = {}
        for id, by, _ in self._links:
            moved[id] = _end(moved, head_of.get(by, by))
        db.execute(
            "update documents set head = moved.head from (select unnest(?::bigint[]) as old, "
            "unnest(?::bigint[]) as head) as moved where documents.head = moved.old",
            [list(moved), [_end(moved, id) for id in moved]],
        )
        last = {link[0]: link for link in self._links}
        db.update("documents", ("superseded_by", "touched"), last.values())
        self._links.clear()


def _end(moved: dict[int, int], head: int) -> int:
    """Where a chain that once ended at `head` ends now; shortens the way for the next."""
    passed = []
    while head in moved and moved[head] != head:
        passed.append(head)
        head = moved[head]
    for id in passed:
        moved[id] = head
    return head


class Revived:
    """Each entry that holds again → the record that says so. Many at once."""

    def __init__(self) -> None:
        self._seqs: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._seqs)

    def add(self, ids: list[int], seq: int) -> None:
        self._seqs.update(dict.fromkeys(ids, seq))

    def flush(self, db: Tables) -> None:
        db.update("documents", ("head",), _heads(db, list(self._seqs)).items())
        holding = [(id, None, seq) for id, seq in self._seqs.items()]
        db.update("documents", ("superseded_by", "touched"), holding)
        self._seqs.clear()


def _heads(db: Tables, ids: list[int]) -> dict[int, int]:
    """Each of `ids` as the head of itself and of all that stand behind it, up to another."""
    sql = (
        "select id, superseded_by from documents where superseded_by is not null and head in "
        "(select head from documents where id in (select unnest(?::bigint[])))"
    )
    behind: dict[int, list[int]] = defaultdict(list)
    themselves = set(ids)
    for id, by in db.execute(sql, [ids]).fetchall():
        if id not in themselves:
            behind[by].append(id)
    heads: dict[int, int] = {}
    for head in ids:
        waiting = [head]
        while waiting:
            id = waiting.pop()
            heads[id] = head
            waiting += behind.get(id, [])
    return heads


def superseded(batch: Batch, record: Record, event: EntrySuperseded) -> None:
    """Entries that come meanwhile don't mind: they are inserted first."""
    batch.gather(Links, after=(Revived,)).add(event.id, event.by, record.seq)
    batch.roster_changed = True


def revived(batch: Batch, record: Record, event: EntryRevived) -> None:
    batch.gather(Revived, after=(Links,)).add(event.ids, record.seq)
    batch.roster_changed = True
