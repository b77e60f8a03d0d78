"""The fold of what happens to entries and agents, into the catalog's tables.

Owns: who supersedes whom, the head of every chain, and the agents' rows.
Refuses to know: texts, and whether any of it was allowed (decided before).

An entry is its own head until something supersedes it; from then on it and all that
it stands for have the head of what came in its place. So `head` is always the
entry that holds now, however long the chain.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import duckdb
import msgspec

from kbproc.events.agent import AgentDeleted, AgentWritten
from kbproc.log.record import Record

Link = tuple[int, int, int]  # an entry, what supersedes it, the record's seq


def superseded(db: duckdb.DuckDBPyConnection, links: Sequence[Link]) -> None:
    """Many at once, in order: one at a time takes 3 ms each among ten thousand entries.

    A purged entry has no row any more: then the others stand as they would with it.
    """
    known = db.execute(
        "select id, head from documents where head is not null and "
        "id in (select unnest(?::bigint[]))",
        [[by for _, by, _ in links]],
    ).fetchall()
    head_of: dict[int, int] = dict(known)
    moved: dict[int, int] = {}
    for id, by, _ in links:
        moved[id] = _end(moved, head_of.get(by, by))
    last = {id: (by, seq) for id, by, seq in links}
    db.execute(
        "update documents set head = moved.head from (select unnest(?::bigint[]) as old, "
        "unnest(?::bigint[]) as head) as moved where documents.head = moved.old",
        [list(moved), [_end(moved, id) for id in moved]],
    )
    db.execute(
        "update documents set superseded_by = said.successor, touched = said.seq from "
        "(select unnest(?::bigint[]) as id, unnest(?::bigint[]) as successor, "
        "unnest(?::bigint[]) as seq) as said where documents.id = said.id",
        [list(last), [by for by, _ in last.values()], [seq for _, seq in last.values()]],
    )


def _end(moved: dict[int, int], head: int) -> int:
    """Where a chain that once ended at `head` ends now; shortens the way for the next."""
    passed = []
    while head in moved and moved[head] != head:
        passed.append(head)
        head = moved[head]
    for id in passed:
        moved[id] = head
    return head


def revived(db: duckdb.DuckDBPyConnection, seqs: dict[int, int]) -> None:
    """`seqs`: each entry that holds again → the record that says so. Many at once."""
    ids = list(seqs)
    heads = _heads(db, ids)
    if heads:
        db.execute(
            "update documents set head = found.head from (select unnest(?::bigint[]) as id, "
            "unnest(?::bigint[]) as head) as found where documents.id = found.id",
            [list(heads), list(heads.values())],
        )
    db.execute(
        "update documents set superseded_by = null, touched = said.seq from "
        "(select unnest(?::bigint[]) as id, unnest(?::bigint[]) as seq) as said "
        "where documents.id = said.id",
        [ids, list(seqs.values())],
    )


def _heads(db: duckdb.DuckDBPyConnection, ids: list[int]) -> dict[int, int]:
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


def agent_written(db: duckdb.DuckDBPyConnection, record: Record, event: AgentWritten) -> None:
    """The first one's time stays; an agent made again after its end is a new one."""
    row = db.execute(
        "select created_at from agents where slug = ? and deleted_at is null", [event.slug]
    ).fetchone()
    db.execute("delete from agents where slug = ?", [event.slug])
    db.execute(
        "insert into agents values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, null)",
        [
            event.slug,
            event.description,
            event.kbs,
            event.folder,
            event.scopes,
            msgspec.json.encode(event.quotas, order="sorted").decode(),
            event.instructions,
            event.revision,
            row[0] if row else record.ts,
            record.ts,
        ],
    )


def agent_deleted(db: duckdb.DuckDBPyConnection, record: Record, event: AgentDeleted) -> None:
    """The row stays: who was an agent once is never a mere name again."""
    db.execute("update agents set deleted_at = ? where slug = ?", [record.ts, event.slug])
