"""Changes on their way into the tables: gathered, then written together.

Owns: when what was gathered is written, in which order, and inserting many rows at once.
Refuses to know: which changes there are: folds/ says that, a noun a file.

One row at a time takes a hundred times as long as many. So changes of one kind are
gathered, and different kinds wait beside each other as long as their order does not
matter; before any other change whatever waits is written.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Protocol, TypeVar, cast

import duckdb

Row = tuple[Any, ...]


class Gathered(Protocol):
    """Changes of one kind that wait to be written."""

    def __len__(self) -> int: ...
    def flush(self, db: duckdb.DuckDBPyConnection) -> None:
        """Writes them; none are left."""
        ...


G = TypeVar("G", bound=Gathered)


class Batch:
    """What some records change. `order`: kinds of changes, as they are written."""

    def __init__(self, db: duckdb.DuckDBPyConnection, order: Sequence[type[Gathered]]) -> None:
        self.db = db  # the tables, without what waits
        self._gathered: dict[type, Gathered] = {kind: kind() for kind in order}
        self._events: list[Row] = []
        self._tokens: list[Row] = []
        self.next_document = 1
        self.next_chunk = 1
        self.roster_changed = False  # agents, or entries: see rows.Roster

    def gather(self, kind: type[G], *, after: Collection[type[Gathered]] | None = None) -> G:
        """What waits of this kind, to add to; what must be written before it has been.

        `after`: those kinds; None: all others.
        """
        first = self._gathered.keys() - {kind} if after is None else after
        if any(self._gathered[other] for other in first):
            self.flush()
        return cast(G, self._gathered[kind])

    def settled(self) -> duckdb.DuckDBPyConnection:
        """The tables, with all changes so far."""
        self.flush()
        return self.db

    def event(self, row: Row) -> None:
        """One row of the table of events."""
        self._events.append(row)

    def token(self, row: Row) -> None:
        """One row of the table of what requests were answered."""
        self._tokens.append(row)

    def gave_away(self, *, next_document: int, next_chunk: int) -> None:
        """Ids before these are never given to anything else."""
        self.next_document = max(self.next_document, next_document)
        self.next_chunk = max(self.next_chunk, next_chunk)

    def flush(self) -> None:
        for gathered in self._gathered.values():
            if gathered:
                gathered.flush(self.db)
        insert(self.db, "events", self._events)
        insert(self.db, "tokens", self._tokens)
        self._events.clear()
        self._tokens.clear()


def insert(db: duckdb.DuckDBPyConnection, table: str, rows: Sequence[Row]) -> None:
    """Many rows at once, by column: executemany is ten times slower."""
    if not rows:
        return
    types = [row[1].lower() for row in db.execute(f"describe {table}").fetchall()]
    arguments = [list(column) for column in zip(*rows, strict=True)]
    casts = ", ".join(f"unnest(${i}::{kind}[])" for i, kind in enumerate(types, 1))
    db.execute(f"insert into {table} select {casts}", arguments)
