"""The DuckDB catalog: what exists now, folded from the log.

Owns: its file, its position, stored with the rows, and when readers see what was folded in.
Refuses to know: what an event changes (fold.py), how rows are asked for (queries/),
clocks and configuration.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

try:  # the package around it takes three times as long, for what is not needed here
    import _duckdb as duckdb
except ImportError:
    import duckdb  # type: ignore[no-redef]

from kbproc.base import durable
from kbproc.base.failpoints import reach
from kbproc.log.record import START, Position, Record
from kbproc.views.catalog.batch import Tables
from kbproc.views.catalog.fold import fold
from kbproc.views.catalog.queries.all import Queries
from kbproc.views.catalog.tables import CATALOG_VERSION, SCHEMA, TABLES

DatabaseError = duckdb.Error
_FIRST = "insert into head values({},{},'{}','',1,1,1,1);".format(CATALOG_VERSION, *START)


class Catalog:
    """One writing connection; readers take cursors of their own.

    `apply` leaves its transaction open, so that the writer sees its own rows
    before anybody else does; `commit` publishes them.
    """

    name: ClassVar[str] = "catalog"

    def __init__(self, path: Path) -> None:
        self.path = path
        self.roster_changed = False  # since whoever publishes has read it
        is_new = not path.exists()
        self._db = _open(path)
        self._tables = Tables(self._db)
        self.is_marked = False
        self._in_transaction = False
        try:
            if is_new or self._version() != CATALOG_VERSION:
                self.reset(is_new=is_new)
            else:
                self._look()
        except BaseException:
            self._db.close()  # DuckDB would hand out this database again, file or no file
            raise

    def _version(self) -> int:
        """0 where there are no tables; asking duckdb_tables() first takes 6 ms of every start."""
        try:
            row = self._db.execute("select version from head").fetchone()
        except duckdb.CatalogException:
            return 0
        return int(row[0]) if row else 0

    def _look(self) -> None:
        """Raises duckdb.Error if tables are missing or a damaged file can't show their start."""
        for name in TABLES:
            self._db.execute(f"from {name} limit 1").fetchall()

    def reset(self, *, is_new: bool = False) -> None:
        """An empty catalog at the log's start, whatever tables there were."""
        self.rollback()
        self._mark()
        tables = "select table_name from duckdb_tables()"  # takes longer than making them
        for (name,) in self._db.execute(tables).fetchall() if not is_new else ():
            self._db.execute(f'drop table "{name}"')
        self._db.execute(f"begin; {SCHEMA} {_FIRST} commit")

    def empty(self) -> None:
        """What `reset` leaves, at a fifth of its cost; the tables are those of this version."""
        self.rollback()
        self._mark()
        self._db.execute("".join(f"delete from {one};" for one in TABLES) + _FIRST)  # noqa: S608

    @property
    def position(self) -> Position:
        return Position(*self._db.execute("select seq, hash from head").fetchall()[0])

    def cursor(self) -> duckdb.DuckDBPyConnection:
        """A connection of one's own, for one thread."""
        return self._db.cursor()

    @cached_property
    def queries(self) -> Queries:
        """What sees what `apply` has done and `commit` has not yet shown."""
        return Queries(self._db)

    def commit(self) -> None:
        if self._in_transaction:
            reach("catalog.commit")
            self._mark()
            self._db.execute("commit")
            self._in_transaction = False
            reach("catalog.committed")

    def _mark(self) -> None:
        """Before the first change. Raises OSError."""
        if not self.is_marked and durable.boot():
            durable.mark(self.path)
            self.is_marked = True

    def rollback(self) -> None:
        if self._in_transaction:
            self._in_transaction = False
            with contextlib.suppress(duckdb.Error):  # a failed statement may have ended it
                self._db.execute("rollback")

    def damaged(self) -> list[str]:
        """Tables that can't be read to their end; DuckDB checks each block that it reads."""
        with contextlib.closing(self._db.cursor()) as cursor:
            return [table for table in TABLES if not _reads(cursor, table)]

    def close(self) -> None:
        """Synced, so that the next process finds it whole whatever happens to the machine."""
        self.rollback()
        with contextlib.suppress(duckdb.Error, OSError):  # then the mark stays
            if self.is_marked:
                self._db.execute("checkpoint")
                self._db.close()
                durable.sync(self.path, ".wal")
        self._db.close()

    def apply(self, records: Iterable[Record]) -> None:
        """Folds `records` in, in order; shown to readers only by `commit`."""
        if not self._in_transaction:
            self._db.execute("begin")
            self._in_transaction = True
        changed = fold(self._tables, records)
        self.roster_changed = self.roster_changed or changed
        reach("catalog.applied")


def _reads(cursor: duckdb.DuckDBPyConnection, table: str) -> bool:
    try:
        cursor.execute(f"select bit_xor(hash(t)) from {table} t").fetchall()  # noqa: S608
    except duckdb.Error:
        return False
    return True


def _open(path: Path) -> duckdb.DuckDBPyConnection:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    config: dict[str, Any] = {
        "threads": 1,  # these queries are small: a second thread only adds a hand-over
        "memory_limit": "1GB",
        "fsync_mode": "NONE" if durable.boot() else "STANDARD",  # see durable.mark
        "enable_external_access": "false",
        "autoinstall_known_extensions": "false",
        "autoload_known_extensions": "false",
    }
    db = duckdb.connect(str(path), config=config)
    db.execute("set lock_configuration = true")
    return db
