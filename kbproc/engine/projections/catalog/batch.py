"""Gathers changes of the catalog's tables and writes many rows at once.

Rows written one at a time take a hundred times as long. So changes of one kind are gathered, and
changes of several kinds stay pending together as long as their order does not matter; all pending
changes are written before any other change.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from kbproc.engine.events.event import NextIds
from kbproc.engine.projections.catalog.tables import types

if TYPE_CHECKING:
    import duckdb

Row = tuple[Any, ...]

_MOST_PARSED = 200


class Tables:
    """The connection that folds write through. It parses repeated statements once."""

    def __init__(self, db: duckdb.DuckDBPyConnection) -> None:
        self._db = db
        self._parsed = lru_cache(_MOST_PARSED)(lambda sql: db.extract_statements(sql)[0])

    def execute(self, sql: str, values: Sequence[Any] = ()) -> duckdb.DuckDBPyConnection:
        return self._db.execute(self._parsed(sql), list(values))

    def insert(self, table: str, rows: Sequence[Row]) -> None:
        """Inserts many rows column by column, because executemany is ten times slower.

        Passing a list takes longer than anything DuckDB does with it, and most columns have the
        same value in every row, so such a column is passed as one value. Of several rows the first
        column is always a list, because it sets the number of rows.
        """
        if not rows:
            return
        casts, values = list[str](), list[Any]()
        for kind, column in zip(types()[table].values(), columns_of(rows), strict=True):
            is_list = len(rows) > 1 and (not values or column.count(column[0]) < len(column))
            casts.append(f"unnest(?::{kind}[])" if is_list else f"?::{kind}")
            values.append(column if is_list else column[0])
        self.execute(f"insert into {table} select {', '.join(casts)}", values)

    def update(self, table: str, columns: Sequence[str], rows: Collection[Row]) -> None:
        """Updates rows by id. Each of `rows` is an id, unique among them, and new values."""
        if not rows:
            return
        names = ("id", *columns)
        new_values = ", ".join(f"unnest(?::{types()[table][name]}[]) as {name}" for name in names)
        assignments = ", ".join(f"{name} = changes.{name}" for name in columns)
        source = f"from (select {new_values}) as changes where {table}.id = changes.id"
        self.execute(f"update {table} set {assignments} {source}", columns_of(rows))  # noqa: S608


def columns_of(rows: Iterable[Row]) -> list[list[Any]]:
    return [list(column) for column in zip(*rows, strict=True)]


class PendingChanges(Protocol):
    """Changes of one kind that are not written yet."""

    def __len__(self) -> int: ...
    def flush(self, db: Tables) -> None:
        """Writes the changes and becomes empty."""


G = TypeVar("G", bound=PendingChanges)


class ChangeBatch:
    """The changes that some records make. `order`: the kinds of changes, in writing order."""

    def __init__(self, db: Tables, order: Sequence[type[PendingChanges]]) -> None:
        self.db = db  # the tables, without pending changes
        self._gathered: dict[type, PendingChanges] = {kind: kind() for kind in order}
        self._added: dict[str, list[Row]] = {}
        self.given = NextIds()
        self.index = 0  # position of the current event in its record
        self.roster_changed = False  # see rows.Roster

    def gather(self, kind: type[G], *, after: Collection[type[PendingChanges]] | None = None) -> G:
        """Returns the pending changes of a kind, for the caller to add to.

        `after`: kinds that must be written first, None for all others. If any of these has
        changes, everything pending is written first.
        """
        earlier_kinds = self._gathered.keys() - {kind} if after is None else after
        if any(self._gathered[other_kind] for other_kind in earlier_kinds):
            self.flush()
        return cast(G, self._gathered[kind])

    def settled(self) -> Tables:
        """Writes all pending changes and returns the tables."""
        self.flush()
        return self.db

    def add(self, table: str, row: Row) -> None:
        """Adds a row to a table that no fold reads before calling `settled`."""
        self._added.setdefault(table, []).append(row)

    def flush(self) -> None:
        for gathered in self._gathered.values():
            if gathered:
                gathered.flush(self.db)
        for table, rows in self._added.items():
            self.db.insert(table, rows)
            rows.clear()
