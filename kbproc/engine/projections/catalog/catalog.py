"""Keeps the catalog: what exists now, folded from the log into a SQLite database.

The position is stored in the same file as the rows, so both change together. Commits are not
synced: after a power failure the database is whole and at most behind the log.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar
from weakref import WeakSet

from kbproc.base.errors import KbprocError
from kbproc.base.failpoints import reach
from kbproc.base.paths import uri_path
from kbproc.base.structs import batches
from kbproc.base.workers import Pace, at_once
from kbproc.engine.log.record import START, Position, Record
from kbproc.engine.projections.catalog import checks, tables
from kbproc.engine.projections.catalog.files import (
    COPIED,
    DAMAGED,
    PRIVATE,
    beside,
    make_private,
    note_damage,
    path_of,
    remove_catalog,
)
from kbproc.engine.projections.catalog.queries import Queries
from kbproc.engine.projections.catalog.reader import damage_error
from kbproc.engine.projections.catalog.rows import Head
from kbproc.engine.projections.catalog.tables import codec_of
from kbproc.engine.projections.catalog.writer import TableWriter

if TYPE_CHECKING:
    from msgspec import Raw

    from kbproc.engine.events.event import Event

    Decode = Callable[[Raw], Sequence[Event]]

DatabaseError = sqlite3.Error

_OLDEST = (3, 34)
_VFS = "unix-excl"
# So many new bytes in the WAL, or more, are copied into the database between commits. A commit
# writes whole pages of each table and index that it changes.
_WAL_BYTES = 16 << 20
# After so many more it is tried again where a reader still needed the end of the WAL.
_RETRY_BYTES = 1 << 20
_COMMIT_BYTES = 100_000
_PART = 4 << 20  # bytes of records that are folded at once
_EMPTY_RECORD = 1000
_STATEMENTS = 500  # prepared statements that a connection remembers
_PRAGMAS = [
    "synchronous = normal",
    "mmap_size = 0",
    "temp_store = memory",
    "wal_autocheckpoint = 0",
    f"journal_size_limit = {2 * _WAL_BYTES}",
    *(["fullfsync = 1", "checkpoint_fullfsync = 1"] if sys.platform == "darwin" else []),
]


class CatalogConnection(sqlite3.Connection):
    """A connection that the catalog closes with itself."""


class Catalog:
    """The catalog's file with one writing connection; each reader takes a connection of its own.

    `apply` leaves its transaction open, so that the writer sees its own rows before any reader
    does; `commit` publishes them.
    """

    name: ClassVar[str] = "catalog"

    def __init__(self, path: Path) -> None:
        """Opens the file, or makes it.

        Raises OSError, DatabaseError (see checks.is_damage), and store.incompatible.
        """
        if sqlite3.sqlite_version_info < _OLDEST:
            raise _unusable(f"and {'.'.join(map(str, _OLDEST))} or newer is needed")
        if not sqlite3.threadsafety:
            raise _unusable("built for a single thread")
        self.path = path
        self.roster_changed = False  # the publisher clears it after reading the roster
        self._copied = 0  # frames of the WAL, as noted last
        self._head: Head | None = None  # once it is known, with that of the open transaction
        self._is_head_new = False  # True while its table lacks it
        self._new_bytes = 0  # about so many in the WAL since the last checkpoint
        self._connections = WeakSet[CatalogConnection]()
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        is_new = not path.exists()
        checks.check_head(path)
        self._db = self._connect(path)
        try:
            if not is_new and not self._has_todays_tables():
                self._db.close()
                remove_catalog(path)
                self._db, is_new = self._connect(path), True
            if is_new:
                self._make_tables()
            else:
                checks.check_wal(self._db, path)
            self._identity = _identity(path)
            self._folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except BaseException:
            self._db.close()
            raise
        self._tables = TableWriter(self._db)

    def _connect(self, path: Path) -> CatalogConnection:
        """Opens a connection, for which no other process can open the file.

        With the VFS `unix-excl` SQLite maps no file that others could cut off, even if its locks
        are lost, which happens when this process reads the file in another way.
        """
        for suffix in PRIVATE:
            make_private(beside(path, suffix))
        try:
            db = sqlite3.connect(
                f"file:{uri_path(path)}?vfs={_VFS}",
                uri=True,
                isolation_level=None,
                check_same_thread=False,
                cached_statements=_STATEMENTS,
                factory=CatalogConnection,
            )
        except sqlite3.OperationalError as error:
            if "no such vfs" in str(error):
                raise _unusable(f"built without {_VFS}") from error
            raise
        self._connections.add(db)
        try:
            for pragma in _PRAGMAS:
                db.execute(f"pragma {pragma}")
            # SQLite's own `lower` knows ASCII only.
            db.create_function("lower_text", 1, str.lower, deterministic=True)
        except BaseException as error:
            db.close()
            if isinstance(error, UnicodeError):  # SQLite's message quotes what is damaged
                raise damage_error("the schema") from error
            raise
        return db

    def _has_todays_tables(self) -> bool:
        """Returns whether the file's tables are of this version and have its columns."""
        try:
            rows = self._db.execute("select value from local where name = 'schema'").fetchall()
        except sqlite3.OperationalError as error:
            # A text that is no UTF-8 has no code.
            if getattr(error, "sqlite_errorcode", None) != sqlite3.SQLITE_ERROR:
                raise
            return False  # no such table
        if not rows or rows[0][0] != tables.schema_digest():
            return False
        checks.check_schema(self._db)
        return True

    def _make_tables(self) -> None:
        if self._db.execute("pragma journal_mode = wal").fetchall() != [("wal",)]:
            raise _unusable("built without a write-ahead log")
        self._db.executescript(f"begin;{tables.schema()}")
        self._put_first_rows()
        self._db.execute("commit")

    def _put_first_rows(self) -> None:
        """Writes the head of an empty catalog."""
        head = (tables.CATALOG_VERSION, START.seq, START.hash, "", 1, 1, 1, 1)
        codec = codec_of("head")
        self._db.execute(codec.insertion, codec.stored(head))
        schema = ("schema", tables.schema_digest())
        self._db.execute("insert or replace into local values(?, ?)", schema)

    def reset(self) -> None:
        """Empties all tables, so that the catalog is at the log's start."""
        self.rollback()
        self._head = None
        self._begin()
        for table in (*tables.types(), *tables.DERIVED, "local"):
            self._db.execute(f"delete from {table}")  # noqa: S608
        self._put_first_rows()
        self._db.execute("commit")

    @property
    def head(self) -> Head:
        """The head with all that `apply` has folded in, which the table has after `commit`."""
        if self._head is None:
            self._head = self.queries.head()
        return self._head

    @property
    def position(self) -> Position:
        if self._head is not None:
            return self._head.position
        for row in self._db.execute("select seq, hash from head").fetchall():
            return Position(*row)
        raise damage_error("the head")

    def cursor(self) -> CatalogConnection:
        """Returns a new connection, for one thread, that sees what is committed.

        SQLite opens files by name, and the folder may have been moved since. Raises OSError.
        """
        path = self.path
        if _identity(path) != self._identity:
            path = path_of(self._folder) / path.name
            if _identity(path) != self._identity:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(self.path))
        return self._connect(path)

    @cached_property
    def queries(self) -> Queries:
        """Queries that also see the rows that `apply` wrote and `commit` has not published."""
        return Queries(self._db)

    # -------------------------------------------------------------------- writing

    def _begin(self) -> None:
        if not self._db.in_transaction:
            self._db.execute("begin immediate")

    def apply(self, records: Iterable[Record], decode: Decode | None = None) -> None:
        """Folds records in, in order; readers see them after `commit`.

        `decode` returns a record's events; who has just encoded them has them still. A fold holds
        the new rows of its records in memory, so it takes records of some megabytes at a time.
        """
        for part in batches(records, lambda record: _EMPTY_RECORD + len(record.events), most=_PART):
            self._fold(part, decode)

    def _fold(self, part: list[Record], decode: Decode | None) -> None:
        from kbproc.engine.projections.catalog.folds import fold  # a read needs no events

        self._begin()
        self._head, changed = fold(self._tables, part, self.head, decode)
        self._is_head_new = True
        self._new_bytes += _COMMIT_BYTES + sum(3 * len(record.events) for record in part)
        self.roster_changed = self.roster_changed or changed
        reach("catalog.applied")

    @contextlib.contextmanager
    def savepoint(self) -> Iterator[None]:
        """Takes back what the block has folded in if it fails.

        A full or failing disk may take back the whole transaction; see `is_rolled_back`.
        """
        self._begin()
        self._db.execute("savepoint turn")
        head_before = self._head
        try:
            yield
        except BaseException:
            self._head = head_before
            if self._db.in_transaction:
                self._db.execute("rollback to turn")
                self._db.execute("release turn")
            raise
        self._db.execute("release turn")

    @property
    def is_rolled_back(self) -> bool:
        """True if no transaction is open."""
        return not self._db.in_transaction

    def commit(self) -> None:
        if self._db.in_transaction:
            if self._is_head_new:  # once for all records of the transaction
                self._tables.put_head(self.head)
            reach("catalog.commit")
            self._db.execute("commit")
            self._is_head_new = False
            reach("catalog.committed")

    def rollback(self) -> None:
        if self._is_head_new:
            self._head, self._is_head_new = None, False
        if self._db.in_transaction:
            with contextlib.suppress(sqlite3.Error):  # a failed statement may have ended it
                self._db.execute("rollback")

    @property
    def sources_seq(self) -> int:
        """The position up to which the sources that records name are known to be durable."""
        rows = self._db.execute("select value from local where name = 'sources'").fetchall()
        return int(rows[0][0]) if rows else 0

    @sources_seq.setter
    def sources_seq(self, seq: int) -> None:
        self._db.execute("insert or replace into local values('sources', ?)", [seq])

    @property
    def needs_checkpoint(self) -> bool:
        """True if about so much was written that the WAL may be large."""
        return self._new_bytes >= _WAL_BYTES

    def checkpoint(self) -> None:
        """Copies the WAL into the database, as far as no reader needs it.

        The writing connection does it between commits, because older versions of SQLite can
        corrupt a database by a checkpoint beside a commit.
        """
        if not self._db.in_transaction:
            ((_, frames, copied),) = self._db.execute("pragma wal_checkpoint(passive)").fetchall()
            self._new_bytes = 0 if copied == frames else _WAL_BYTES - _RETRY_BYTES
            if copied > 0 and copied != self._copied:
                checks.note_copied(self.path.name, copied, self._folder)
                self._copied = copied

    # --------------------------------------------------------------------- damage

    def damaged(self, pace: Pace = at_once) -> list[str]:
        """Returns what is damaged: tables with a damaged row, or the file. Reads everything."""
        with contextlib.closing(self.cursor()) as db:
            return list(checks.damages(db, pace))

    @property
    def is_known_damaged(self) -> bool:
        return beside(self.path, DAMAGED).exists()

    def note_damage(self) -> None:
        """Marks the file as damaged, so that the next process to open it makes it afresh."""
        note_damage(self.path)

    def close(self) -> None:
        """Syncs and closes the file, so that it survives a crash of the machine from now on."""
        self.rollback()
        for db in [*self._connections]:
            if db is not self._db:
                db.close()
        if self.path.exists() and _identity(self.path) != self._identity:
            _leave_open(self._db)  # the last connection removes the WAL by its name
        else:
            self._db.close()
        if self._folder >= 0:
            with contextlib.suppress(OSError):
                os.unlink(self.path.name + COPIED, dir_fd=self._folder)
            os.close(self._folder)
            self._folder = -1


def _unusable(reason: str) -> KbprocError:
    """Returns the error for a module sqlite3 that can't keep a catalog."""
    return KbprocError(
        "store.incompatible",
        f"Python's SQLite is {sqlite3.sqlite_version}, {reason}.",
        hint=f"Run kbproc with another Python ({sys.executable} has this one): python.org's and "
        "those of today's Linux distributions have an SQLite that will do.",
    )


def is_sound(path: Path) -> bool:
    """Returns whether a catalog that no process has open is whole. Reads everything."""
    try:
        db = sqlite3.connect(path, isolation_level=None)
        with contextlib.closing(db):
            return not list(checks.damages(db))
    except sqlite3.Error:
        return False


def _identity(path: Path) -> tuple[int, int] | None:
    """Returns what tells a file from another of its name; None without a file."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _leave_open(db: sqlite3.Connection) -> None:
    """Keeps the connection open until the process ends: its files have another's name now.

    Closing it would remove the WAL of that other store.
    """
    import ctypes  # no store was ever moved, as a rule

    ctypes.pythonapi.Py_IncRef(ctypes.py_object(db))
