"""Changes on their way into the tables: gathered, then written together.

Owns: when what was gathered is written, in which order, and inserting many rows at once.
Refuses to know: which changes there are: folds/ says that, a noun a file.

One row at a time takes a hundred times as long as many. So changes of one kind are
gathered, and different kinds wait beside each other as long as their order does not
matter; before any other change whatever waits is written.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from kbproc.events.event import Given
from kbproc.views.catalog.tables import TYPES

if TYPE_CHECKING:
    import duckdb

Row = tuple[Any, ...]

_MOST_PARSED = 200


class Tables:
    """The connection that folds write through. What it is told often it parses once."""

    def __init__(self, db: duckdb.DuckDBPyConnection) -> None:
        self._db = db
        self._parsed = lru_cache(_MOST_PARSED)(lambda sql: db.extract_statements(sql)[0])

    def execute(self, sql: str, values: Sequence[Any] = ()) -> duckdb.DuckDBPyConnection:
        return self._db.execute(self._parsed(sql), list(values))

    def insert(self, table: str, rows: Sequence[Row]) -> None:
        """Many rows by column, since executemany is ten times slower.

        To hand over a list takes longer than anything DuckDB does with it, and most columns say
        the same in every row. The first is a list always: it tells how many rows there are.
        """
        if not rows:
            return
        casts, values = list[str](), list[Any]()
        for kind, column in zip(TYPES[table].values(), columns_of(rows), strict=True):
            differs = len(rows) > 1 and (not values or column.count(column[0]) < len(column))
            casts.append(f"unnest(?::{kind}[])" if differs else f"?::{kind}")
            values.append(column if differs else column[0])
        self.execute(f"insert into {table} select {', '.join(casts)}", values)

    def update(self, table: str, columns: Sequence[str], rows: Collection[Row]) -> None:
        """Each row: an id, which no other has, and the new values of `columns`."""
        if not rows:
            return
        names = ("id", *columns)
        said = ", ".join(f"unnest(?::{TYPES[table][name]}[]) as {name}" for name in names)
        new = ", ".join(f"{name} = said.{name}" for name in columns)
        sql = f"update {table} set {new} from (select {said}) as said where {table}.id = said.id"  # noqa: S608
        self.execute(sql, columns_of(rows))


def columns_of(rows: Iterable[Row]) -> list[list[Any]]:
    return [list(column) for column in zip(*rows, strict=True)]


class Gathered(Protocol):
    """Changes of one kind that wait to be written."""

    def __len__(self) -> int: ...
    def flush(self, db: Tables) -> None:
        """Writes them; none are left."""


G = TypeVar("G", bound=Gathered)


class Batch:
    """What some records change. `order`: kinds of changes, as they are written."""

    def __init__(self, db: Tables, order: Sequence[type[Gathered]]) -> None:
        self.db = db  # the tables, without what waits
        self._gathered: dict[type, Gathered] = {kind: kind() for kind in order}
        self._added: dict[str, list[Row]] = {}
        self.given = Given()
        self.index = 0  # of the event that is folded in, in its record
        self.roster_changed = False  # see rows.Roster

    def gather(self, kind: type[G], *, after: Collection[type[Gathered]] | None = None) -> G:
        """What waits of this kind, to add to; what must be written before it has been.

        `after`: those kinds; None: all others.
        """
        first = self._gathered.keys() - {kind} if after is None else after
        if any(self._gathered[other] for other in first):
            self.flush()
        return cast(G, self._gathered[kind])

    def settled(self) -> Tables:
        """The tables, with all changes so far."""
        self.flush()
        return self.db

    def add(self, table: str, row: Row) -> None:
        """One row of a table that is not looked at before all is `settled`."""
        self._added.setdefault(table, []).append(row)

    def flush(self) -> None:
        for gathered in self._gathered.values():
            if gathered:
                gathered.flush(self.db)
        for table, rows in self._added.items():
            self.db.insert(table, rows)
            rows.clear()
