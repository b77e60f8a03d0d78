"""Keeps the DuckDB catalog: what exists now, folded from the log.

The position is stored in the same file as the rows, so both change together.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

try:  # because the package `duckdb` takes three times as long and adds nothing that is needed
    import _duckdb as duckdb
except ImportError:
    import duckdb  # type: ignore[no-redef]

from kbproc.base import durable
from kbproc.base.failpoints import reach
from kbproc.engine.log.record import START, Position, Record
from kbproc.engine.projections.catalog import front, tables
from kbproc.engine.projections.catalog.batch import Tables
from kbproc.engine.projections.catalog.folds import fold
from kbproc.engine.projections.catalog.queries import Queries

DatabaseError = duckdb.Error


def _first_row() -> str:
    """Returns the SQL that inserts the head of an empty catalog."""
    values = "{},{},'{}','',1,1,1,1".format(tables.CATALOG_VERSION, *START)
    return f"insert into head values({values});"


class Catalog:
    """The catalog's file with one writing connection; each reader takes a cursor of its own.

    `apply` leaves its transaction open, so that the writer sees its own rows before any reader
    does; `commit` publishes them.
    """

    name: ClassVar[str] = "catalog"

    def __init__(self, path: Path) -> None:
        self.path = path
        self.roster_changed = False  # the publisher clears it after reading the roster
        is_new = not path.exists()
        self._db = _open(path)
        self._tables = Tables(self._db)
        self.is_marked = False
        self._in_transaction = False
        try:
            if is_new or not self._has_todays_tables():
                self.reset(is_new=is_new)
        except BaseException:
            self._db.close()  # DuckDB would hand out this database again, file or no file
            raise

    def _version(self) -> int:
        """Returns the version of the tables, 0 without tables.

        Doesn't ask duckdb_tables(), because that would add 6 ms to every start.
        """
        try:
            row = self._db.execute("select version from head").fetchone()
        except duckdb.CatalogException:
            return 0
        return int(row[0]) if row else 0

    def _has_todays_tables(self) -> bool:
        """Returns whether the file's tables are of this version and have its columns.

        Raises duckdb.Error if tables are missing or a damaged file can't show their start.
        """
        if self._version() != tables.CATALOG_VERSION:
            return False
        columns = {}
        for name in tables.types():
            result = self._db.execute(f"from {name} limit 1")
            columns[name] = [column[0] for column in result.description]
            result.fetchall()
        return columns == {name: list(types) for name, types in tables.types().items()}

    def reset(self, *, is_new: bool = False) -> None:
        """Replaces any tables by those of an empty catalog at the log's start."""
        self.rollback()
        self._mark()
        listing = "select table_name from duckdb_tables()"  # slower than creating all tables
        for (name,) in self._db.execute(listing).fetchall() if not is_new else ():
            self._db.execute(f'drop table "{name}"')
        self._db.execute(f"begin; {tables.schema()} {_first_row()} commit")

    def empty(self) -> None:
        """Does the same as `reset` at a fifth of its cost; needs tables of this version."""
        self.rollback()
        self._mark()
        deletions = (f"delete from {table};" for table in tables.types())  # noqa: S608
        self._db.execute("".join(deletions) + _first_row())

    @property
    def position(self) -> Position:
        return Position(*self._db.execute("select seq, hash from head").fetchall()[0])

    def cursor(self) -> duckdb.DuckDBPyConnection:
        """Returns a new connection, for one thread."""
        return self._db.cursor()

    @cached_property
    def queries(self) -> Queries:
        """Queries that also see the rows that `apply` wrote and `commit` has not published."""
        return Queries(self._db)

    def commit(self) -> None:
        if self._in_transaction:
            reach("catalog.commit")
            self._mark()
            self._db.execute("commit")
            self._in_transaction = False
            reach("catalog.committed")

    def _mark(self) -> None:
        """Marks the file as changed, before the first change. Raises OSError."""
        if not self.is_marked:
            front.drop(self.path)
        if not self.is_marked and durable.boot():
            durable.mark(self.path)
            self.is_marked = True

    def rollback(self) -> None:
        if self._in_transaction:
            self._in_transaction = False
            with contextlib.suppress(duckdb.Error):  # a failed statement may have ended it
                self._db.execute("rollback")

    def damaged(self) -> list[str]:
        """Returns the tables that can't be read whole; DuckDB checks each block that it reads."""
        with contextlib.closing(self._db.cursor()) as cursor:
            return [table for table in tables.types() if not _is_readable(cursor, table)]

    def close(self) -> None:
        """Syncs and closes the file, so that it survives a crash of the machine from now on."""
        self.rollback()
        with contextlib.suppress(duckdb.Error, OSError):  # the mark stays after a failure
            if self.is_marked:
                self._db.execute("checkpoint")
                self._db.close()
                durable.sync(self.path, ".wal")
        self._db.close()

    def apply(self, records: Iterable[Record]) -> None:
        """Folds records in, in order; readers see them after `commit`."""
        if not self._in_transaction:
            self._db.execute("begin")
            self._in_transaction = True
        changed = fold(self._tables, records)
        self.roster_changed = self.roster_changed or changed
        reach("catalog.applied")


def _is_readable(cursor: duckdb.DuckDBPyConnection, table: str) -> bool:
    try:
        cursor.execute(f"select bit_xor(hash(t)) from {table} t").fetchall()  # noqa: S608
    except duckdb.Error:
        return False
    return True


def _open(path: Path) -> duckdb.DuckDBPyConnection:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    config: dict[str, Any] = {
        "threads": 1,  # a second thread would only add a hand-over to queries this small
        "memory_limit": "1GB",
        "fsync_mode": "NONE" if durable.boot() else "STANDARD",  # see durable.mark
        "enable_external_access": "false",
        "autoinstall_known_extensions": "false",
        "autoload_known_extensions": "false",
    }
    db = duckdb.connect(str(path), config=config)
    db.execute("set lock_configuration = true")
    return db
