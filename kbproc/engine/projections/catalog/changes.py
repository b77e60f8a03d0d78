"""Writes the rows that changed after a position into a file of SQLite, for SQL's tables.

No column says when a row has changed: the table of events does, because each event names the
documents, the session and the message that it changes. Only an entry's head changes without an
event of its own, together with that of an entry which has one. So a commit pays nothing for this.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from kbproc.base.paths import uri_path
from kbproc.engine.log.record import Position
from kbproc.engine.projections.catalog.catalog import Catalog
from kbproc.engine.projections.catalog.files import make_private

MOST_ROWS = 20_000  # events and chunks of a step, about; a record's rows stay together

_EVENTS = "from events where seq > :since and seq <= :until"
# Table of the file → its query. The first ones list what is removed before the others are added.
_QUERIES = {
    "changed_documents": f"select document_id as id {_EVENTS} and document_id is not null "  # noqa: S608
    "union select id from documents where head in (select head from documents where id in "
    f"(select document_id {_EVENTS}))",
    "changed_sessions": f"select distinct session_id as id {_EVENTS} and session_id is not null",
    # A session that is deleted or restored hides or shows its messages.
    "changed_messages": f"select message_id as id {_EVENTS} and message_id is not null "  # noqa: S608
    "union select id from messages where session_id in "
    f"(select session_id {_EVENTS} and message_id is null)",
    "documents": "select * from documents where deleted_at is null and in_review is not 1 "
    "and id in (select id from changes.changed_documents) order by id",
    "chunks": "select * from chunks where document_id in (select id from changes.documents) "
    "order by id",
    "sessions": "select * from sessions where deleted_at is null and id in "
    "(select id from changes.changed_sessions) order by id",
    "messages": "select * from messages where withdrawn_at is null and id in "
    "(select id from changes.changed_messages) and session_id in "
    "(select id from sessions where deleted_at is null) order by id",
    "pieces": "select * from pieces where message_id in (select id from changes.messages)",
    "events": f"select * {_EVENTS} order by seq, idx",
}
# Tables that are copied whole, because they are small or have no id → their query, and the first
# parts of the types of events that change them.
_WHOLE = {
    "kbs": ("select * from kbs order by rowid", ("kb",)),
    "agents": ("select * from agents where deleted_at is null order by rowid", ("agent",)),
    "failures": ("select * from failures order by rowid", ("file", "kb")),
}


class Changes(NamedTuple):
    """The file's rows have the state at `seq`, and `head` is the catalog's position.

    A row that has changed since `seq` may be newer.
    """

    seq: int
    head: Position

    @property
    def is_last(self) -> bool:
        return self.seq == self.head.seq


def _head(db: sqlite3.Connection) -> Position:
    return Position(*db.execute("select seq, hash from head").fetchall()[0])


def committed_position(catalog: Catalog) -> Position:
    """Returns the position of what is committed. Raises DatabaseError, OSError."""
    with contextlib.closing(catalog.cursor()) as db:
        return _head(db)


def write_changes(
    catalog: Catalog, since: int, target: Path, check: Callable[[], object]
) -> Changes:
    """Writes the changes after `since` into a new file, as many as make one step.

    `check` is called between tables, and may raise. Raises DatabaseError, OSError.
    """
    target.unlink(missing_ok=True)
    make_private(target)
    with contextlib.closing(catalog.cursor()) as db:
        # Another process opens the file, and it is thrown away if this one ends early.
        db.execute("attach ? as changes", [f"file:{uri_path(target)}?vfs=unix"])
        db.execute("pragma changes.journal_mode = off")
        db.execute("pragma changes.synchronous = off")
        db.execute("begin")
        head = _head(db)  # all rows are of this moment
        seq = _end_of_step(db, since, head.seq)
        bounds = {"since": since, "until": seq}
        for table, query in _QUERIES.items():
            check()
            db.execute(f"create table changes.{table} as {query}", bounds)
        for table, (query, nouns) in _WHOLE.items():
            if _has_events(db, bounds, nouns):
                db.execute(f"create table changes.{table} as {query}")
        db.execute("commit")
    return Changes(seq, head)


def _end_of_step(db: sqlite3.Connection, since: int, head_seq: int) -> int:
    """Returns the seq of the last record whose changes belong to the step."""
    sql = (
        "select events.seq, sum(1 + coalesce(chunk_count, 0)) from events left join documents "
        "on id = document_id where events.seq > ? group by events.seq order by events.seq"
    )
    count = 0
    for seq, rows in db.execute(sql, [since]):
        count += rows
        if count >= MOST_ROWS:
            return int(seq)
    return head_seq


def _has_events(db: sqlite3.Connection, bounds: dict[str, int], nouns: tuple[str, ...]) -> bool:
    among = " or ".join(f"type glob '{noun}.*'" for noun in nouns)
    sql = f"select exists(select 1 {_EVENTS} and ({among}))"
    return bool(db.execute(sql, bounds).fetchall()[0][0])
