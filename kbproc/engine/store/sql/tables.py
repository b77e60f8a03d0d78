"""Keeps a file of DuckDB with the documented views, and brings it to the catalog's position.

It runs in the process of a query. The file stores the position of its rows, which changes in the
same transaction as they do. What an end of the process leaves is a whole earlier position.
"""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from kbproc.base.paths import uri_path
from kbproc.engine.store.sql.views import CHANGED, COLUMNS, FOLLOW, SCHEMA

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

CONFIG: dict[str, Any] = {
    "threads": 1,
    "async_threads": 0,
    "temp_directory": "",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "allow_persistent_secrets": "false",
    "python_enable_replacements": "false",
}
_PAGE = 1000  # rows that are copied at once
_LOCKED = "Could not set lock"
_encode = msgspec.json.Encoder().encode


def position_of(db: DuckDBPyConnection) -> list[Any]:
    """Returns what the rows were made of, and the seq and hash of the last record."""
    return list(db.execute("from upkeep.position").fetchall()[0])


def open_for_reading(path: str, memory_bytes: int) -> DuckDBPyConnection:
    import duckdb

    config = CONFIG | {"memory_limit": f"{memory_bytes}B"}
    return duckdb.connect(path, read_only=True, config=config)


def open_for_writing(path: str, copy: str) -> tuple[str, DuckDBPyConnection]:
    """Opens a file, or makes it. Where another process reads it, opens a copy of it instead.

    Returns the path of the file that is open.
    """
    import duckdb

    is_new = not Path(path).exists()
    try:
        db = duckdb.connect(path, config=CONFIG | {"memory_limit": "1GB"})
    except duckdb.IOException as error:
        if _LOCKED not in str(error):
            raise
        _copy(path, copy)
        return open_for_writing(copy, copy)
    if is_new:
        db.execute(f"begin; {SCHEMA}; commit")
    return path, db


def _copy(path: str, target: str) -> None:
    """Copies a file of DuckDB, its WAL first. The copy gets its name once it is whole."""
    for beside in Path(path).parent.glob(f"{Path(path).name}.*"):
        shutil.copyfile(beside, target + beside.name.removeprefix(Path(path).name))
    unfinished = shutil.copyfile(path, Path(f"{target}.tmp"))
    unfinished.rename(target)


def take(db: DuckDBPyConnection, changes: str, origin: str, seq: int, hash: str) -> None:
    """Writes the changes of a file of catalog/changes into the tables, in one transaction."""
    from kbproc.engine.projections.catalog.tables import types

    path = Path(changes)
    path.stat()  # SQLite would not tell that it is gone
    address = f"file:{uri_path(path)}?immutable=1"
    source = sqlite3.connect(address, uri=True, isolation_level=None)
    with contextlib.closing(source):
        names = {name for (name,) in source.execute("select name from sqlite_master")}
        db.execute("begin")
        for name in CHANGED:
            _stage(db, source, name, {"id": "bigint"})
        for name, columns in COLUMNS.items():
            if name in names:
                kinds = types()[name]
                _stage(db, source, name, {column: kinds[column] for column in columns.split()})
        for name, statements in FOLLOW.items():
            if name in names:
                db.execute(statements)
        db.execute("update upkeep.position set origin = ?, seq = ?, hash = ?", [origin, seq, hash])
        db.execute("commit")


def _stage(
    db: DuckDBPyConnection, source: sqlite3.Connection, name: str, columns: dict[str, str]
) -> None:
    """Puts rows into a temporary table, as one JSON array a column.

    Rows one by one take thirty times as long, and lists of Python's values three times.
    """
    from kbproc.engine.projections.catalog.tables import codec_of

    definitions = ", ".join(f'"{column}" {kind}' for column, kind in columns.items())
    db.execute(f"create or replace temp table new_{name}({definitions})")
    arrays = ", ".join(f"""unnest(from_json(?, '["{kind}"]'))""" for kind in columns.values())
    insertion = f"insert into new_{name} select {arrays}"
    decode = tuple if name in CHANGED else codec_of(name).values
    places = [0] if name in CHANGED else [codec_of(name).places[column] for column in columns]
    rows = source.execute(f"select * from {name}")  # noqa: S608
    while page := rows.fetchmany(_PAGE):
        values = [decode(row) for row in page]
        db.execute(insertion, [_encode([*map(itemgetter(i), values)]).decode() for i in places])
