"""Finds damage in a catalog's file: in rows, indexes, and what folds derive from documents.

A read verifies the rows that it returns. A damaged index or counter is found here only.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

from kbproc.base.workers import Pace, at_once
from kbproc.engine.events.document import CONVERSATION
from kbproc.engine.projections.catalog import tables
from kbproc.engine.projections.catalog.files import COPIED, WAL, beside
from kbproc.engine.projections.catalog.queries import Queries
from kbproc.engine.projections.catalog.reader import damage_error
from kbproc.engine.projections.catalog.writer import DERIVED_LISTS, derived_rows

_DAMAGE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT)
_PAGE = 200  # rows
_READING = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW
_SALTS = slice(16, 24)  # place in the WAL's head of what changes when it begins anew
_MESSAGES = ("Could not decode to UTF-8", "unsupported file format")  # without a code
_HEAD = b"SQLite format 3\0"
_WAL_VERSIONS = b"\2\2"  # after the head and the page's size: who may write and read the file


def is_damage(error: BaseException) -> bool:
    """Returns whether the error says that the file is damaged; else the disk or the call failed."""
    if not isinstance(error, sqlite3.DatabaseError):
        return False
    if any(message in str(error) for message in _MESSAGES):
        return True
    code = getattr(error, "sqlite_errorcode", None)
    return code is not None and code & 0xFF in _DAMAGE


def check_head(catalog: Path) -> None:
    """Raises DatabaseError unless SQLite can write to the file, which it reads even then.

    No connection may be open: closing the file gives up SQLite's locks.
    """
    with contextlib.suppress(FileNotFoundError), catalog.open("rb") as file:
        head = file.read(20)
        if head and (head[:16] != _HEAD or head[18:] != _WAL_VERSIONS):
            raise damage_error("the file's head")


def check_schema(db: sqlite3.Connection) -> None:
    """Raises DatabaseError unless tables and indexes are those of this version, letter by letter.

    A flipped bit may change a column's name, or what an index holds.
    """
    rows = db.execute("select sql from sqlite_master where sql is not null").fetchall()
    if {sql for (sql,) in rows} != tables.statements():
        raise damage_error("the schema")


def note_copied(catalog: str, frame_count: int, folder: int) -> None:
    """Notes how many frames of the catalog's WAL a checkpoint has copied. Raises OSError.

    The note is not synced: the frames are, so that a power failure can't lose them.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
    with (
        os.fdopen(os.open(catalog + WAL, _READING, dir_fd=folder), "rb") as wal,
        os.fdopen(os.open(catalog + COPIED, flags, 0o600, dir_fd=folder), "wb") as note,
    ):
        note.write(wal.read(_SALTS.stop)[_SALTS] + frame_count.to_bytes(8, "big"))


def check_wal(db: sqlite3.Connection, catalog: Path) -> None:
    """Raises DatabaseError if the WAL of a killed process has lost what a checkpoint had copied.

    SQLite ignores a damaged frame of the WAL and all that follow. If the database has parts of
    these, it is of no one position. No other connection may be open.
    """
    try:
        note = beside(catalog, COPIED).read_bytes()
        with beside(catalog, WAL).open("rb") as file:
            salts = file.read(_SALTS.stop)[_SALTS]
    except FileNotFoundError:
        return
    if note[:4] != salts[:4] and note[4:8] != salts[4:]:
        return  # the WAL has begun anew since: both have changed
    try:  # only a checkpoint tells how many frames SQLite has read
        ((_, frame_count, _),) = db.execute("pragma wal_checkpoint(passive)").fetchall()
    except sqlite3.OperationalError:  # a full disk
        return
    if frame_count < int.from_bytes(note[8:], "big"):
        raise damage_error("the write-ahead log")


def damages(db: sqlite3.Connection, pace: Pace = at_once) -> Iterator[str]:
    """Yields what is damaged: tables, `indexes` or `schema`. Reads everything.

    Writes may go on. The check compares tags, metadata and counters with the documents at one
    moment. It makes no pause there, because its snapshot lets the WAL grow. Other tables are read
    by pages, so that the WAL can be copied in between.
    """
    if damaged := list(_failing([("schema", partial(check_schema, db))])):
        yield from damaged  # no row can be read by columns that are not ours
        return
    derived: Counter[str] = Counter()
    at_one_moment: list[tuple[str, Callable[[], object]]] = [
        ("documents", partial(_check_rows, db, "documents", derived, partial(pace, rests=False))),
        *((table, partial(_check_derived, db, table, derived)) for table in DERIVED_LISTS),
        ("counters", partial(_check_counters, db)),
        ("standing", partial(_check_standing, db)),
    ]
    others = [table for table in tables.types() if table != "documents"]
    db.execute("begin")
    try:
        yield from _failing(at_one_moment)
    finally:
        if db.in_transaction:
            db.execute("rollback")
    yield from _failing(
        [
            *((table, partial(_check_rows, db, table, derived, pace)) for table in others),
            ("indexes", partial(_check_indexes, db)),
        ]
    )


def _failing(checks: Iterable[tuple[str, Callable[[], object]]]) -> Iterator[str]:
    """Yields the names of the checks that fail."""
    for name, check in checks:
        try:
            check()
        except (sqlite3.Error, UnicodeError):  # a message may quote what is damaged
            yield name


def _check_rows(db: sqlite3.Connection, table: str, derived: Counter[str], pace: Pace) -> None:
    """Verifies each row, and adds digests of what is derived from documents."""
    codec, names = tables.codec_of(table), tables.key_of(table)
    key, order, marks = (0,) * len(names), ", ".join(names), ", ".join("?" * len(names))
    page = (
        f"select {order}, * from {table} "  # noqa: S608
        f"where ({order}) > ({marks}) order by {order} limit {_PAGE}"
    )
    while rows := db.execute(page, key).fetchall():
        last = rows[-1][: len(names)]
        if not all(isinstance(part, int) for part in last) or last <= key:
            raise damage_error(table)  # else it would be read for ever
        key = last
        for row in rows:
            values = codec.values(row[len(names) :])
            if table == "documents":
                for name, *columns in derived_rows(dict(zip(codec.columns, values, strict=True))):
                    derived[name] += hash(tuple(columns))
        pace()


def _check_derived(db: sqlite3.Connection, table: str, derived: Counter[str]) -> None:
    rows = db.execute(f"select * from {table}")  # noqa: S608
    if sum(map(hash, rows)) != derived[table]:
        raise damage_error(table)


def _check_counters(db: sqlite3.Connection) -> None:
    if wrong := Queries(db).miscounted():
        raise damage_error(wrong[0])


def _check_standing(db: sqlite3.Connection) -> None:
    """Compares standing instructions with what the conversations say.

    A conversation of which chunks were deleted is left out: these may have said who goes on.
    """
    from kbproc.engine.projections.catalog import instruction  # imported late: few stores need it

    rows: dict[int, set[tuple[object, ...]]] = {}
    for row in db.execute("select subject, said, chunk, at, size, document from standing"):
        rows.setdefault(row[-1], set()).add(row)
    live = "select id, created_at from documents where type = ? and deleted_at is null"
    times = dict(db.execute(live, [CONVERSATION]).fetchall())
    if not rows.keys() <= times.keys():
        raise damage_error("standing")
    queries = Queries(db)
    for id, created_at in times.items():
        chunks = queries.chunks_of(id)
        if not chunks or [chunk.idx for chunk in chunks] != list(range(len(chunks))):
            continue
        contents = [chunk.content for chunk in chunks]
        if rows.get(id, set()) != {*instruction.rows_of(id, chunks[0].id, contents, created_at)}:
            raise damage_error("standing")


def _check_indexes(db: sqlite3.Connection) -> None:
    if db.execute("pragma integrity_check(1)").fetchall() != [("ok",)]:
        raise damage_error("an index")
